package balancerhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
)

// A scene is one request and what its attempts will meet. The model says, from
// the written rules alone, which backends see it and what the caller gets; the
// Transport is then held against that.
type scene struct {
	method string
	key    bool // Idempotency-Key
	body   int  // of bodyKinds
	fates  [3]int
	use    int // of the response: 0 read, 1 close, 2 read and close
	max    int // retries
}

const (
	noBody     = iota
	getBody    // may be had again
	smallOnce  // a stream that fits the buffer
	largeOnce  // one that does not
	bodyKinds  // their number
	bufferSize = 8
)

// A fate is what becomes of an attempt.
type fate struct {
	name   string
	status int  // 0 for an error
	dial   bool // never sent
	reads  bool // looks at the body
}

var fates = [...]fate{
	{"ok", 200, false, true},
	{"early ok", 200, false, false},
	{"unavailable", 503, false, true},
	{"early unavailable", 503, false, false},
	{"refused", 0, true, false},
	{"reset", 0, false, true},
	{"early reset", 0, false, false},
	{"broken", 500, false, true},
	{"missing", 404, false, true},
}

var methods = [...]string{"GET", "POST", "PUT", "PATCH"}

func (s scene) text() string {
	switch s.body {
	case getBody, smallOnce:
		return "whole"
	case largeOnce:
		return strings.Repeat("whole", 10)
	}
	return ""
}

// expect is the model.
func (s scene) expect() (hosts []string, last fate) {
	repeatable := s.key || s.method == "GET" || s.method == "PUT"
	consumed := false
	for i, host := range []string{"a", "b", "c"} {
		last = fates[s.fates[i]]
		hosts = append(hosts, host)
		if s.body == largeOnce || s.body == smallOnce && !repeatable {
			consumed = consumed || last.reads
		}
		bad := last.status == 0 || last.status == 503
		safe := repeatable || last.dial
		if !bad || !safe || consumed || i >= s.max {
			break
		}
	}
	return hosts, last
}

// fatal is what play needs of a test: *testing.T and *rapid.T have it.
type fatal interface {
	Fatalf(format string, args ...any)
}

// play runs the scene and compares.
func play(t fatal, rt *balancerhttp.Transport, f *fake, s scene) {
	var trail []string
	fail := func(format string, args ...any) {
		t.Fatalf("%s\nscene %+v\nsent %v", fmt.Sprintf(format, args...), s, trail)
	}
	*f = fake{}
	for i, h := range []string{"a", "b", "c"} {
		f.on(h, f.meet(fates[s.fates[i]]))
	}
	var bodies []*reqBody
	fresh := func() io.ReadCloser {
		b := &reqBody{Reader: strings.NewReader(s.text())}
		bodies = append(bodies, b)
		return b
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, s.method, "http://svc/x", nil)
	if err != nil {
		fail("%v", err)
	}
	if s.body != noBody {
		req.Body = fresh()
	}
	if s.body == getBody {
		req.ContentLength = int64(len(s.text()))
		req.GetBody = func() (io.ReadCloser, error) { return fresh(), nil }
	}
	if s.key {
		req.Header.Set("Idempotency-Key", "1")
	}
	resp, err := rt.RoundTrip(req)
	trail = f.sent

	hosts, last := s.expect()
	switch {
	case !slices.Equal(hosts, f.sent):
		fail("want attempts at %v", hosts)
	case (resp == nil) == (err == nil):
		fail("response %v and error %v", resp, err)
	case (last.status == 0) != (err != nil):
		fail("want %s, got error %v", last.name, err)
	}
	if resp != nil {
		if resp.StatusCode != last.status {
			fail("got %d, want %d", resp.StatusCode, last.status)
		}
		if open := f.open(); open != 1 {
			fail("%d bodies open before the caller has closed its own", open)
		}
		if s.use != 1 {
			data, err := io.ReadAll(resp.Body)
			if err != nil || string(data) != "from "+hosts[len(hosts)-1] {
				fail("body %q, error %v", data, err)
			}
			if in := inflight(rt); in != 0 {
				fail("%d in flight after the end of the body", in)
			}
		}
		_ = resp.Body.Close()
	}
	for _, got := range f.got {
		if got != s.text() {
			fail("a backend got %q", got)
		}
	}
	for i, b := range bodies {
		if b.closings() == 0 {
			fail("body %d of %d is not closed", i+1, len(bodies))
		}
	}
	if open, in := f.open(), inflight(rt); open != 0 || in != 0 {
		fail("%d bodies open, %d requests in flight", open, in)
	}
}

// meet is the exchange of a fate.
func (f *fake) meet(a fate) exchange {
	return func(req *http.Request) (*http.Response, error) {
		switch {
		case a.dial:
			return f.refuse(req)
		case a.status == 0 && a.reads:
			return f.reset(req)
		case a.status == 0:
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, io.ErrUnexpectedEOF
		case a.reads:
			return f.answer(a.status, "from "+req.URL.Host)(req)
		}
		return f.early(a.status, "from "+req.URL.Host)(req)
	}
}

// stage makes the Transport for any number of scenes: by their tiers the
// backends are tried in the order a, b, c.
func stage(f *fake, max int) *balancerhttp.Transport {
	cfg := balancerhttp.Config{Pool: plain(), Base: f, MaxBuffer: bufferSize}
	retries(max)(&cfg)
	rt, err := balancerhttp.NewTransport(cfg)
	if err != nil {
		panic(err)
	}
	var tiers []balancerhttp.Endpoint
	for i, host := range []string{"http://a", "http://b", "http://c"} {
		e, err := balancerhttp.ParseEndpoint(host)
		if err != nil {
			panic(err)
		}
		e.Priority = i
		tiers = append(tiers, e)
	}
	if err := rt.Update(tiers...); err != nil {
		panic(err)
	}
	return rt
}

// drawScene draws a scene.
func drawScene(rt *rapid.T) scene {
	s := scene{
		method: rapid.SampledFrom(methods[:]).Draw(rt, "method"),
		key:    rapid.Bool().Draw(rt, "key"),
		body:   rapid.IntRange(0, bodyKinds-1).Draw(rt, "body"),
		use:    rapid.IntRange(0, 2).Draw(rt, "use"),
		max:    rapid.IntRange(0, 3).Draw(rt, "max"),
	}
	for i := range s.fates {
		s.fates[i] = rapid.IntRange(0, len(fates)-1).Draw(rt, "fate")
	}
	return s
}

// TestModel plays drawn scenes, TestModelWhole every seventh of all that there
// are, the use of the response aside.
func TestModel(t *testing.T) {
	checkSeeded(t, 11, func(rt *rapid.T) {
		s := drawScene(rt)
		f := &fake{}
		play(rt, stage(f, s.max), f, s)
	})
}

func TestModelWhole(t *testing.T) {
	seed, _ := seedOf(t, 5)
	n, at := len(fates), int(seed%7)
	for max := range 4 {
		f := &fake{}
		rt := stage(f, max)
		for _, method := range methods {
			for body := range bodyKinds {
				for ; at < n*n*n; at += 7 {
					play(t, rt, f, scene{
						method: method, body: body, max: max, use: at % 3, key: method == "PATCH" && at%2 == 0,
						fates: [3]int{at % n, at / n % n, at / n / n},
					})
				}
				at -= n * n * n
			}
		}
	}
}
