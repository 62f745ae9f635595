package incident

import (
	"errors"
	"fmt"

	"github.com/evenkeel-go/evenkeel/balancer/internal/jsonline"
)

// ErrSyntax is what every error about the text of a file matches. The error
// itself is a [*SyntaxError].
var ErrSyntax = errors.New("incident: bad file")

// SyntaxError says in which line a file is wrong and what was expected there.
type SyntaxError struct {
	Line int    // from 1
	Msg  string // what is wrong
}

// Error implements error.
func (e *SyntaxError) Error() string { return fmt.Sprintf("incident: line %d: %s", e.Line, e.Msg) }

// Is makes the error match ErrSyntax.
func (e *SyntaxError) Is(target error) bool { return target == ErrSyntax }

// cursor reads one line of a file.
type cursor struct{ jsonline.Cursor }
