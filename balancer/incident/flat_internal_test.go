package incident

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a replay remembers of a request it forgets when the request is over, so
// that its memory does not grow with the file.
func TestNothingIsKept(t *testing.T) {
	names, err := filepath.Glob("testdata/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		in, err := os.Open(name)
		require.NoError(t, err)
		r, err := NewReader(in)
		require.NoError(t, err)
		cfg, err := r.head.Config()
		require.NoError(t, err)
		p, err := newPlayer(&r.head, cfg)
		require.NoError(t, err)
		ledger := newLedger(&r.head)
		var l Line
		for {
			if err = r.read(&l); err != nil {
				break
			}
			ledger.follow(&l)
			if l.Kind.In() {
				_, err := p.feed(&l, nil)
				require.NoError(t, err)
			}
		}
		require.Equal(t, io.EOF, err)
		require.NoError(t, in.Close())
		require.Empty(t, p.leases, name)
		require.Empty(t, p.tries, name)
		require.Empty(t, p.trans.begun.young, name)
		require.Empty(t, p.trans.begun.old, name)
		require.Empty(t, ledger.out, name)
		require.LessOrEqual(t, len(p.idle), 4, name)
	}
}
