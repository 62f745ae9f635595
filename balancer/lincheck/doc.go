// Package lincheck checks that the locked types of the library are
// linearizable: whatever several goroutines do to one at the same time, there is
// an order of the calls, each at some instant between its start and its return,
// in which a plain sequential model gives the same answers.
//
// Checked are
//
//   - breaker.Breaker: admissions, refusals with their reason and end, results
//     that count and that come too late, trials with two slots that are leased,
//     given back and lost, and the reads;
//   - retrybudget.Budget: withdrawals, refunds, deposits and the drip, to the
//     billionth of a token;
//   - outlier.Detector: hosts that are added, shared and removed, ejections of
//     growing length, and the cap on them;
//   - balancer.Pool: calls in flight against MaxInflight, leases that several
//     goroutines release, and the totals.
//
// Time is an argument of the first three, so the goroutines hand in instants
// that run ahead and behind, and the models know the rule for it: an earlier
// instant counts as the latest one.
//
// The models are written from the documentation, not from the code, and each has
// to prove that it sees something: beside every type the tests run a wrong copy
// of it, which does in two critical sections what belongs into one and yields in
// between. The check must call that one illegal.
//
// EVENKEEL_SEED chooses what the goroutines ask, and EVENKEEL_OPS how many
// histories are taken of each type. How the goroutines interleave is up to the
// scheduler, so a seed does not bring a failure back; many histories may.
//
// # Reading a counterexample
//
// A failure prints the path of an HTML page by porcupine, the checker. It has a
// line for each goroutine and a bar for each call, from its start to its return.
// The longest sequence of calls that the model could explain is numbered; the
// state of the model after each of them shows under the pointer. The calls that
// come next in time, marked as impossible, are where to look: from the state
// before, the model gives none of the answers that they got. Names in the page:
// instants are nanoseconds since the history began, and p3 is slot 3 in which a
// goroutine keeps a permit.
//
// It is a module of its own, so that nobody who imports evenkeel has porcupine
// among the requirements.
package lincheck
