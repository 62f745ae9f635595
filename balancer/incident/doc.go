// Package incident turns what happened to a live Pool into a file that can be
// read, edited, replayed and kept as a test.
//
// A Pool is a function of its configuration, its seed and its inputs in their
// order. A [Recorder] keeps the latest of a Pool's life in a ring, beginning with
// a checkpoint of its state, and hands it out on demand or when a breaker opens,
// an upstream is ejected or nothing is selectable. [Verify] replays a file in a
// new Pool on a clock that is moved by hand and finds the first event that is
// not the same. [Replay] makes the events of inputs that were written by hand.
// [Timeline] draws a file for a terminal, and [Shrink] leaves out what did not
// matter. A [Log] writes down a Pool's life of any length.
//
//	rec := incident.NewRecorder(incident.Config{})
//	pool, err := balancer.NewPool(balancer.Config{OnEvent: rec.OnEvent}, hosts...)
//	...
//	rec.Attach(pool)
//	defer rec.Close()
//	...
//	err = rec.WriteFile("incident.jsonl")
//
// # The file
//
// A file is UTF-8 text with one JSON object a line. Lines that are blank or whose
// first character is # are skipped. The first line is the header; then come input
// lines, with "in", which a replay feeds, and event lines, with "ev", which it
// must reproduce; the last line is {"end":true}, so that a file that was cut off is
// noticed. A file without event lines is a scenario.
//
// Reading is exact about what stands in a file and lax about how it is spelt. The
// keys of a line have a fixed order, none stands twice and none that is not listed
// here. A key with ? may be left out, which means 0, "", false or, of a deadline,
// "never"; it may also be given with that value. Blanks, escapes in strings and
// trailing zeros of decimals are as one likes. Writing has one way: no blanks, no
// default value, no needless escape, so that equal timelines are equal bytes and
// diff compares two of them.
//
//	{"incident":1,"lib":"evenkeel/0","seed":7,"start":"2026-01-02T15:04:05Z",
//	 "note"?:"...","keys"?:"hashed","config"?:{...},"members":[...],"state"?:"base64"}
//
// incident is the version of the format. start is the instant from which times
// count. config has the fields of balancer.Config that are not zero, with the
// names and the order that they have in Go: durations are strings of seconds,
// rates are decimal numbers, in as many digits as it takes to give the same bits
// again, and a policy is {"name":"hash",...} with its settings, or "custom":true
// if it is not built in. A member is {"b":"name","weight"?:1,"tier"?:0,"limit"?:0},
// where the weight left out is 1. state is what Pool.Save returned at the start;
// without it the Pool is new.
//
// The lines between the header and the end begin with "t", the time since the
// start. Times and spans are strings of decimal seconds with up to nine decimals,
// exact to the nanosecond, such as "12.00012" or "never"; none is ever rounded.
// Times do not decrease. Upstreams are named, as b. r is the number of a request,
// by which its random draws are keyed: a request that is deleted changes no other
// one's draws. A number is in use from the first attempt of its request, or from
// the decision that there is none, to the request's end, also while no attempt is
// out: a line about it is about the latest request that was begun under it. try is
// 0 for a request's first attempt.
//
//	in        then
//	update    members                             Pool.Update
//	health    b up why?                           Pool.SetHealth
//	time                                          Pool.Poll or Save: time moves
//	acquire   r key? hash?                        Pool.Acquire: a request of one attempt
//	request   r key? hash? deadline?              Pool.Start and the first Try.Next
//	next      r progress?                         a later Try.Next
//	done      r out lat? retry? progress?         Try.Done
//	stop      r progress?                         Try.Stop
//	answered  r try?                              Lease.Answered
//	settle    r try? out lat?                     Lease.Settle or Release
//
//	ev        then
//	pick      r b fallback?                       the first attempt's upstream
//	retry     r try b fallback?                   a later attempt's
//	none      r                                   an acquire found nothing
//	wait      r for                               a retry waits
//	end       r why                               a request is over, see balancer.End
//	joined left healthy unhealthy ejected returned ejection_withheld opened
//	half_open closed flapping steady trial_lost
//	          n b until? why? count?              see balancer.Event; n is its number
//
// out is ignored, success, failure or transport_failure; retry is default, allowed
// or forbidden. An affinity key stands as its text, key, or as its hash in 16
// hexadecimal digits; a recording has the hash, since the Pool never sees the
// text. progress says of a request that began before the file how far it had
// come, on the first line about it: phase, which is sent, failed or waiting, then
// settled? retries? same? wait_until? tried? latest? key? hash? deadline? It says
// so again of a request that was forgotten: a replay knows the 65,536 requests at
// least that were begun last and have not ended.
//
// n is what finds an event of the file in the log of a service, and shows one that
// is lost. It also differs in all lines after one event more: a comparison of two
// timelines looks past it.
//
//	diff <(sed 's/"n":[0-9]*,//' a.jsonl) <(sed 's/"n":[0-9]*,//' b.jsonl)
//
// A request that fails over, by its inputs and its events:
//
//	{"incident":1,"lib":"evenkeel/0","seed":7,"start":"2026-01-02T15:04:05Z",...}
//	{"t":"0","in":"request","r":1}
//	{"t":"0","ev":"pick","r":1,"b":"a"}
//	{"t":"0.013","in":"done","r":1,"out":"transport_failure"}
//	{"t":"0.013","in":"next","r":1}
//	{"t":"0.013","ev":"retry","r":1,"try":1,"b":"b"}
//	{"t":"0.02","in":"done","r":1,"out":"success","lat":"0.006"}
//	{"t":"5","in":"time"}
//	{"end":true}
package incident
