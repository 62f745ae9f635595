package sim

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
)

// FitConfig says how closely Fit follows a recording. The zero value is
// complete. It is plain data.
type FitConfig struct {
	// Window is the length of the stretches in which the answers of an upstream
	// are taken to be alike. If zero, a sixtieth of the recording, and at least 1s.
	// Negative is an error.
	Window time.Duration

	// Samples is how many latencies stand for those of a stretch: its quantiles at
	// even distances. If zero, 32. Negative is an error.
	Samples int

	// MinAttempts is how many attempts a stretch must have to be told apart from
	// the whole recording. If zero, 8. Negative is an error.
	MinAttempts int
}

func (c FitConfig) validate() error {
	switch {
	case c.Window < 0:
		return bad("FitConfig.Window", c.Window, ">= 0")
	case c.Samples < 0:
		return bad("FitConfig.Samples", c.Samples, ">= 0")
	case c.MinAttempts < 0:
		return bad("FitConfig.MinAttempts", c.MinAttempts, ">= 0")
	}
	return nil
}

// ErrFit is what an error of Fit about the recording matches.
var ErrFit = errors.New("sim: nothing to fit a scenario to")

// Fit makes a scenario of a recording of package incident, so that one can ask
// what another configuration would have done to the traffic of that day: the
// requests come when they came, under the recorded configuration, and each
// upstream answers as it did at that time of the recording, by the empirical
// distribution of its latencies and its shares of failures. What it says of
// an upstream is what attempts at it showed; where there were too few, as while
// it was ejected, it is taken to be as it was on the whole, or to go on as it
// was before if that was bad.
//
// The model has no capacity: a recording does not tell what a latency would
// have been under another load. Set Workers and a Service of your own to ask
// that. Affinity keys become as many keys, equally likely; deadlines and the
// state at the start are left out; an upstream that was not a member or was
// unhealthy is out of the Pool for that time.
//
// The file must have events: replay one that has none. The error is that of r, a
// *ConfigError, or matches ErrFit. Memory is O(attempts).
func Fit(r *incident.Reader, cfg FitConfig) (Scenario, error) {
	if err := cfg.validate(); err != nil {
		return Scenario{}, err
	}
	f := fitter{cfg: cfg, sick: r.Header().Settings.StartUnhealthy, byID: map[string]*fitted{}, out: map[fitID]*fitOut{}, keys: map[uint64]bool{}}
	head := r.Header()
	f.members(0, head.Members)
	for {
		l, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return Scenario{}, err
		}
		f.line(&l)
	}
	pool, err := head.Config()
	if err != nil {
		return Scenario{}, err
	}
	pool.Clock, pool.StartUnhealthy = nil, false // nobody would say that they are well
	return f.scenario(pool)
}

// fitID names an attempt that is out.
type fitID struct {
	request uint64
	try     int
}

// fitOut is an attempt that is out. It may go by two names.
type fitOut struct {
	server   *fitted
	at       time.Duration
	answered time.Duration // negative while it has not
	over     bool
}

// fitAttempt is one attempt that has ended.
type fitAttempt struct {
	at, took time.Duration
	outcome  balancer.Outcome
}

// fitted is what a recording says of one upstream.
type fitted struct {
	balancer.Member
	attempts []fitAttempt
	in, well bool // a member, healthy
	since    time.Duration
	away     []Change // when it was not both
}

type fitter struct {
	cfg     FitConfig
	sick    bool      // who joins is unhealthy
	servers []*fitted // in the order of their first appearance
	byID    map[string]*fitted
	out     map[fitID]*fitOut
	keys    map[uint64]bool
	times   []time.Duration
	last    time.Duration
}

// members follows a change of the members.
func (f *fitter) members(at time.Duration, set []balancer.Member) {
	for _, s := range f.servers {
		if !slices.ContainsFunc(set, func(m balancer.Member) bool { return m.Name == s.Name }) {
			s.move(at, false, s.well)
		}
	}
	for _, m := range set {
		s := f.byID[m.Name]
		if s == nil {
			s = &fitted{}
			f.byID[m.Name] = s
			f.servers = append(f.servers, s)
		}
		s.Member = m
		// Who comes back is a new one.
		s.move(at, true, s.in && s.well || !s.in && !f.sick)
	}
}

// move notes when an upstream begins or ceases to be a healthy member.
func (s *fitted) move(at time.Duration, in, well bool) {
	was, is := s.in && s.well, in && well
	if s.in, s.well = in, well; was == is {
		return
	}
	if is && at > s.since {
		s.away = append(s.away, Change{Kind: Roll, At: s.since, For: at - s.since, Servers: s.Name})
	}
	s.since = at
}

// line takes the next line of the recording.
func (f *fitter) line(l *incident.Line) {
	f.last = max(f.last, l.At)
	switch l.Kind {
	case incident.InUpdate:
		f.members(l.At, l.Members)
	case incident.InHealth:
		if s := f.byID[l.Upstream]; s != nil {
			s.move(l.At, s.in, l.Healthy)
		}
	case incident.InAcquire, incident.InRequest:
		f.times = append(f.times, l.At)
		switch {
		case l.HasHash:
			f.keys[l.Hash] = true
		case l.HasKey:
			f.keys[keyNumber(l.Key)] = true
		}
	case incident.EvPick, incident.EvRetry:
		if s := f.byID[l.Upstream]; s != nil {
			o := &fitOut{server: s, at: l.At, answered: -1}
			f.out[fitID{l.Request, l.Try}] = o
			// A Done is about the latest attempt, whose number it does not say.
			f.out[fitID{l.Request, latestTry}] = o
		}
	case incident.InAnswered:
		if o := f.out[fitID{l.Request, l.Try}]; o != nil {
			o.answered = l.At
		}
	case incident.InDone:
		f.end(fitID{l.Request, latestTry}, l)
	case incident.InSettle:
		f.end(fitID{l.Request, l.Try}, l)
	}
}

// latestTry stands for the number of a request's latest attempt.
const latestTry = -1

// keyNumber tells keys apart.
func keyNumber(key string) uint64 {
	h, _ := balancer.StringKey(key).Hash()
	return h
}

// end is the outcome of an attempt. It took as long as was reported, else until
// the first byte of its answer, else until now.
func (f *fitter) end(id fitID, l *incident.Line) {
	o := f.out[id]
	if delete(f.out, id); o == nil || o.over {
		return // it began before the recording, or its lease was settled before
	}
	o.over = true
	took := l.Latency
	switch {
	case took > 0:
	case o.answered >= 0:
		took = o.answered - o.at
	default:
		took = l.At - o.at
	}
	o.server.attempts = append(o.server.attempts, fitAttempt{o.at, took, l.Outcome})
}

// scenario puts together what was found.
func (f *fitter) scenario(pool balancer.Config) (Scenario, error) {
	s := Scenario{Seed: pool.Seed, Duration: f.last + 1, Pool: pool}
	if len(f.times) == 0 {
		return s, fmt.Errorf("%w: no request begins in the recording", ErrFit)
	}
	window := f.cfg.Window
	if window == 0 {
		window = max(time.Second, s.Duration/60)
	}
	all := fitStretch{}
	for _, x := range f.servers {
		all.add(x.attempts)
	}
	if len(all.ok)+len(all.failed)+len(all.refused) == 0 {
		return s, fmt.Errorf("%w: no attempt begins and ends in the recording", ErrFit)
	}
	for _, x := range f.servers {
		x.move(s.Duration, true, true) // so that the time away ends
		windows := x.split(window, s.Duration)
		usual := f.usual(windows)
		if len(usual) == 0 {
			usual = all.ok
		}
		server := Server{Name: x.Name, Weight: x.Share, Priority: x.Tier, MaxInflight: x.Limit, Workers: -1, Service: f.quantiles(usual)}
		if x.Share == 0 {
			server.Weight = -1
		}
		s.Servers = append(s.Servers, server)
		s.Script = append(s.Script, x.away...)
		s.Script = append(s.Script, f.stretches(x, windows, usual, window, s.Duration)...)
	}
	s.Clients = []Client{{Times: f.times, Keys: len(f.keys)}}
	return s, s.Validate()
}

// fitStretch is how an upstream answered in some time. What was ignored says
// nothing about it.
type fitStretch struct{ ok, failed, refused []time.Duration }

func (s *fitStretch) add(attempts []fitAttempt) {
	for _, a := range attempts {
		switch a.outcome {
		case balancer.Success:
			s.ok = append(s.ok, a.took)
		case balancer.Failure:
			s.failed = append(s.failed, a.took)
		case balancer.TransportFailure:
			s.refused = append(s.refused, a.took)
		}
	}
}

// split sorts the attempts of an upstream into windows.
func (x *fitted) split(window, duration time.Duration) []fitStretch {
	out := make([]fitStretch, (duration+window-1)/window)
	for i := range x.attempts {
		a := x.attempts[i : i+1]
		out[a[0].at/window].add(a)
	}
	return out
}

// usual are the latencies of the windows that were much like most: those whose
// median is not far from the median of all medians. An hour in which an upstream
// was slow does not belong to how it usually is.
func (f *fitter) usual(windows []fitStretch) []time.Duration {
	var medians, out []time.Duration
	for _, w := range windows {
		if len(w.ok) >= f.least() {
			medians = append(medians, quantile(w.ok, 1, 2))
		}
	}
	for _, w := range windows {
		if len(medians) == 0 || len(w.ok) > 0 && !far(quantile(w.ok, 1, 2), quantile(medians, 1, 2)) {
			out = append(out, w.ok...)
		}
	}
	return out
}

// least is how many attempts say something about a window.
func (f *fitter) least() int {
	if f.cfg.MinAttempts == 0 {
		return 8
	}
	return f.cfg.MinAttempts
}

// stretches describes in what stretches of time an upstream was not as usual.
func (f *fitter) stretches(x *fitted, windows []fitStretch, usual []time.Duration, window, duration time.Duration) []Change {
	var out []Change
	for i, s := range windows {
		at := time.Duration(i) * window
		n := len(s.ok) + len(s.failed) + len(s.refused)
		bad := len(s.failed) + len(s.refused)
		switch {
		case n == 0:
			// Nobody dared: what was bad before is taken to go on.
			out = extend(out, at, min(window, duration-at))
			continue
		case n < f.least() && bad < n:
			continue
		}
		change := func(kind Kind, share, of int, took []time.Duration) {
			c := Change{Kind: kind, At: at, For: min(window, duration-at), Servers: x.Name, Service: f.quantiles(took)}
			if share < of {
				c.Share = float64(share) / float64(of)
			}
			out = append(out, c)
		}
		if len(s.refused) > 0 {
			change(Refusals, len(s.refused), n, s.refused)
		}
		if len(s.failed) > 0 {
			change(Sinkhole, len(s.failed), n-len(s.refused), s.failed)
		}
		if len(s.ok) >= f.least() && unlike(s.ok, usual) {
			change(Brownout, 1, 1, s.ok)
		}
	}
	return out
}

// extend lets changes that end at that instant, and make most requests fail, go
// on for one window more.
func extend(out []Change, at, window time.Duration) []Change {
	for i := range out {
		c := &out[i]
		if c.At+c.For == at && c.Kind != Brownout && (c.Share == 0 || c.Share > .5) {
			c.For += window
		}
	}
	return out
}

// unlike tells whether latencies are so different that it matters: the median
// or the 90th percentile is half as much again. Chance does less to a few dozen.
func unlike(a, b []time.Duration) bool {
	for _, q := range []int{5, 9} {
		x, y := quantile(a, q, 10), quantile(b, q, 10)
		if far(x, y) {
			return true
		}
	}
	return false
}

// far tells whether one of two latencies is more than half as much again.
func far(x, y time.Duration) bool { return x > y+y/2 || y > x+x/2 }

// quantile is the quantile num/den of latencies, which it sorts.
func quantile(d []time.Duration, num, den int) time.Duration {
	slices.Sort(d)
	return d[min(len(d)-1, len(d)*num/den)]
}

// quantiles is the distribution of latencies, by not too many of them.
func (f *fitter) quantiles(d []time.Duration) Dist {
	n := f.cfg.Samples
	if n == 0 {
		n = 32
	}
	n = min(n, len(d))
	if n == 0 {
		return Dist{}
	}
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = max(1, quantile(d, 2*i+1, 2*n))
	}
	return Recorded(out)
}
