package breaker

import (
	"context"
	"errors"
	"time"
)

// Outcome is what a call says about the server. The zero Outcome is Success. A
// plain value, safe for concurrent use.
type Outcome uint8

// The outcomes. Two are not enough: a call that its caller gave up, or that was
// never sent, is no success and no failure of the server.
const (
	Success Outcome = iota // the server did what it should
	Failure                // the server did not answer, or answered badly
	Neutral                // nothing is known about the server
)

// Classify returns what the result of a call says about the server, which is what
// [Breaker.Do] goes by:
//
//   - no error is a Success;
//   - an error marked by [Ignore] is Neutral, as is the rejection by a breaker
//     ([ErrRejected]): the call was not made;
//   - if the caller gave up it is Neutral: ctx is cancelled, or err is
//     context.Canceled. Some transports report a cancellation as a text only,
//     hence the look at ctx;
//   - any other error, context.DeadlineExceeded included, is a Failure.
//
// Safe for concurrent use.
func Classify(ctx context.Context, err error) Outcome {
	switch {
	case err == nil:
		return Success
	case errors.Is(err, errIgnored),
		errors.Is(err, ErrRejected),
		errors.Is(err, context.Canceled),
		errors.Is(ctx.Err(), context.Canceled):
		return Neutral
	}
	return Failure
}

// Ignore marks err as saying nothing about the server, such as an answer that
// blames the client. It returns nil for nil; otherwise the text is that of err,
// and errors.Is and errors.As see through the mark. Safe for concurrent use.
func Ignore(err error) error {
	if err == nil {
		return nil
	}
	return &ignored{err}
}

// ignored is the mark of Ignore. errors.Is finds it by errIgnored, which unlike
// errors.As allocates nothing.
type ignored struct{ err error }

var errIgnored = errors.New("breaker: ignored")

func (e *ignored) Error() string        { return e.err.Error() }
func (e *ignored) Unwrap() error        { return e.err }
func (e *ignored) Is(target error) bool { return target == errIgnored }

// Do calls f if the breaker admits it, settles the call by [Classify], and returns
// the error of f; without the mark if that is the result of [Ignore]. If the
// breaker does not admit it, f is not called and the error is a [*RejectedError].
//
// The call is settled whatever happens in f. A panic counts as a failure and goes
// on unchanged, with its own stack; so does runtime.Goexit. The time is read from
// clock before the call and after it. ctx is handed to f, and not otherwise
// waited for. Safe for concurrent use.
func (b *Breaker) Do(ctx context.Context, clock interface{ Now() time.Time }, f func(context.Context) error) error {
	p, err := b.Allow(clock.Now())
	if err != nil {
		return err
	}
	// Stays if f does not return. There is no recover here: it would change the
	// stack that the panic reports.
	outcome := Failure
	defer func() {
		if outcome == Neutral {
			p.Cancel(clock.Now())
			return
		}
		p.Done(clock.Now(), outcome == Success)
	}()
	err = f(ctx)
	outcome = Classify(ctx, err)
	if mark, ok := err.(*ignored); ok {
		err = mark.err
	}
	return err
}
