package balancerhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// ticking is a clock without timers.
type ticking struct{}

func (ticking) Now() time.Time { return time.Unix(0, 0) }

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		cfg  balancerhttp.Config
		want string
	}{
		{balancerhttp.Config{AttemptTimeout: -1}, "balancerhttp.Config.AttemptTimeout is -1ns, want >= 0"},
		{balancerhttp.Config{AttemptTimeout: 1, Pool: balancer.Config{Clock: ticking{}}}, "Pool.Clock is balancerhttp_test.ticking, want a clock.Scheduler"},
		{balancerhttp.Config{MaxBuffer: -1}, "balancerhttp.Config.MaxBuffer is -1, want >= 0"},
		{balancerhttp.Config{RetryMethods: []string{"GET", ""}}, "RetryMethods"},
		{balancerhttp.Config{RetryStatuses: []int{101}}, "RetryStatuses is 101, want 200 to 999"},
		{balancerhttp.Config{Pool: balancer.Config{Retry: balancer.Retry{Max: -1}}}, "Retry.Max"},
	} {
		_, err := balancerhttp.NewTransport(c.cfg, "http://a")
		require.ErrorIs(t, err, balancer.ErrConfig)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, err, c.cfg.Validate())
	}
	for _, urls := range [][]string{
		{"a:80"}, {"localhost"}, {"ftp://a"}, {"http://"}, {"http://:80"}, {"http://a#b"}, {"http://a?\xe4"}, {"http:a"}, {"http://a", "http://a"}, {":"}, {""},
	} {
		_, err := balancerhttp.NewTransport(balancerhttp.Config{}, urls...)
		require.ErrorIs(t, err, balancer.ErrConfig, "%q", urls)
	}
	_, err := balancerhttp.ParseEndpoint("http://me:secret@a")
	require.ErrorIs(t, err, balancer.ErrConfig)
	require.NotContains(t, err.Error(), "secret")
	require.ErrorIs(t, balancerhttp.Endpoint{}.Validate(), balancer.ErrConfig)

	// The zero Config is complete.
	require.NoError(t, balancerhttp.Config{}.Validate())
	rt, err := balancerhttp.NewTransport(balancerhttp.Config{})
	require.NoError(t, err)
	_, err = rt.RoundTrip(request(t, "GET", nil))
	require.ErrorIs(t, err, balancer.ErrNoUpstreams)
	rt.CloseIdleConnections()
}

func TestEndpoints(t *testing.T) {
	f := &fake{}
	for _, h := range []string{"a", "b", "c", "d"} {
		f.on(h, f.answer(200, h))
	}
	cfg := balancerhttp.Config{Pool: plain(), Base: f}
	cfg.Pool.Policy = balancer.WeightedRoundRobin{}
	rt := newTransport(t, cfg)
	at := func(s string) balancerhttp.Endpoint {
		e, err := balancerhttp.ParseEndpoint(s)
		require.NoError(t, err)
		return e
	}
	a, b, c, d := at("http://a"), at("http://b"), at("http://c"), at("http://d")
	a.Weight, b.NoTraffic, b.Weight, c.Priority, d.MaxInflight = 3, true, 5, 1, 1
	require.NoError(t, rt.Update(a, b, c, d))
	count := map[string]int{}
	for range 40 {
		resp, err := rt.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		count[readAll(t, resp)]++
	}
	require.Equal(t, map[string]int{"a": 30, "d": 10}, count, "weights 3, none, other tier, 1")

	a.Weight = -1
	require.ErrorIs(t, rt.Update(a), balancer.ErrConfig)
	require.ErrorIs(t, rt.Update(balancerhttp.Endpoint{}), balancer.ErrConfig)
	require.Len(t, rt.Pool().Snapshot().Upstreams, 4)

	u, err := balancerhttp.NewUpstream(d)
	require.NoError(t, err)
	require.Equal(t, []any{"http://d", "http://d", 1, 0, 1}, []any{u.ID(), u.String(), u.Weight(), u.Priority(), u.MaxInflight()})
	u.URL().Host = "changed"
	require.Equal(t, d.URL, u.URL())
}

func TestHost(t *testing.T) {
	for _, c := range []struct {
		keep       bool
		host, want string
	}{{false, "", ""}, {false, "virtual", ""}, {true, "", "svc"}, {true, "virtual", "virtual"}} {
		f := &fake{}
		f.on("a", f.answer(200, ""))
		rt := abc(t, f, func(cfg *balancerhttp.Config) { cfg.KeepHost = c.keep })
		req := request(t, "GET", nil)
		req.Host = c.host
		req.RequestURI = "/as/received"
		_, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, c.want, f.reqs[0].Host, "empty is the URL's")
		require.Empty(t, f.reqs[0].RequestURI)
		require.Equal(t, c.host, req.Host)
	}
}

func TestRetryRules(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*balancerhttp.Config)
		method string
		first  func(*fake) exchange
		want   int // attempts
	}{
		{"500 is the answer", nil, "GET", func(f *fake) exchange { return f.answer(500, "") }, 1},
		{"502", nil, "DELETE", func(f *fake) exchange { return f.answer(502, "") }, 2},
		{"504", nil, "OPTIONS", func(f *fake) exchange { return f.answer(504, "") }, 2},
		{"501 is the answer", nil, "GET", func(f *fake) exchange { return f.answer(501, "") }, 1},
		{"404 is the answer", nil, "GET", func(f *fake) exchange { return f.answer(404, "") }, 1},
		{"429 is the answer", nil, "GET", func(f *fake) exchange { return f.answer(429, "") }, 1},
		{"no method is GET", nil, "", func(f *fake) exchange { return f.answer(503, "") }, 2},
		{"reset", nil, "HEAD", func(f *fake) exchange { return f.reset }, 2},
		{"reset after POST", nil, "POST", func(f *fake) exchange { return f.reset }, 1},
		{"refused POST", nil, "POST", func(f *fake) exchange { return f.refuse }, 2},
		{"PATCH by setting", func(c *balancerhttp.Config) { c.RetryMethods = []string{"PATCH"} }, "PATCH", func(f *fake) exchange { return f.reset }, 2},
		{"GET not by setting", func(c *balancerhttp.Config) { c.RetryMethods = []string{"PATCH"} }, "GET", func(f *fake) exchange { return f.reset }, 1},
		{"no methods", func(c *balancerhttp.Config) { c.RetryMethods = []string{} }, "GET", func(f *fake) exchange { return f.answer(503, "") }, 1},
		{"never sent, no methods", func(c *balancerhttp.Config) { c.RetryMethods = []string{} }, "GET", func(f *fake) exchange { return f.refuse }, 2},
		{"500 by setting", func(c *balancerhttp.Config) { c.RetryStatuses = []int{500} }, "GET", func(f *fake) exchange { return f.answer(500, "") }, 2},
		{"503 not by setting", func(c *balancerhttp.Config) { c.RetryStatuses = []int{500} }, "GET", func(f *fake) exchange { return f.answer(503, "") }, 1},
		{"no statuses", func(c *balancerhttp.Config) { c.RetryStatuses = []int{} }, "GET", func(f *fake) exchange { return f.answer(503, "") }, 1},
		{"no failure, no retry", func(c *balancerhttp.Config) { c.RetryStatuses = []int{429} }, "GET", func(f *fake) exchange { return f.answer(429, "") }, 1},
		{"a failure by Classify", func(c *balancerhttp.Config) {
			c.RetryStatuses = []int{429}
			c.Classify = func(req *http.Request, resp *http.Response, err error) balancer.Outcome {
				if resp != nil && resp.StatusCode == 429 {
					return balancer.Failure
				}
				return balancerhttp.Classify(req, resp, err)
			}
		}, "GET", func(f *fake) exchange { return f.answer(429, "") }, 2},
		{"retries off", retries(0), "GET", func(f *fake) exchange { return f.refuse }, 1},
	} {
		f := &fake{}
		f.on("a", c.first(f)).on("b", f.answer(200, "ok"))
		if c.change == nil {
			c.change = func(*balancerhttp.Config) {}
		}
		rt := abc(t, f, c.change)
		req := request(t, c.method, strings.NewReader("body"))
		req.Method = c.method
		resp, err := rt.RoundTrip(req)
		require.Len(t, f.sent, c.want, c.what)
		require.NotEqual(t, resp == nil, err == nil, c.what)
		if resp != nil {
			require.NoError(t, resp.Body.Close())
		}
		require.Zero(t, inflight(rt), c.what)
		require.Zero(t, f.open(), c.what)
	}
}

// The caller's own failures are not the backend's.
func TestCallersFault(t *testing.T) {
	for _, err := range []error{syscall.ECONNRESET, io.ErrUnexpectedEOF, errors.New("other")} {
		f := &fake{}
		f.on("a", f.answer(200, "")).on("b", f.answer(200, ""))
		rt := abc(t, f)
		_, got := rt.RoundTrip(request(t, "PUT", failing("half", err)))
		require.ErrorIs(t, got, err)
		require.Equal(t, []string{"a"}, f.sent)
		require.Equal(t, uint64(1), rt.Pool().Snapshot().Totals.Ignored)

		// While it is read ahead, it has not even been sent.
		f = &fake{}
		body := &reqBody{Reader: failing("half", err)}
		rt = abc(t, f, func(c *balancerhttp.Config) { c.MaxBuffer = 10 })
		_, got = rt.RoundTrip(request(t, "PUT", body))
		require.ErrorIs(t, got, err)
		require.Empty(t, f.sent)
		require.Equal(t, 1, body.closings())
		require.Zero(t, rt.Pool().Snapshot().Totals.Attempts)
	}
}

func TestBuffer(t *testing.T) {
	big := strings.Repeat("x", 1000)
	for _, c := range []struct {
		what     string
		method   string
		max      int64
		declared int64
		body     string
		sent     int   // attempts, the first two of which fail
		length   int64 // that the attempts declare
	}{
		{"fits", "PUT", 1000, 0, big, 3, 1000},
		{"one too long", "PUT", 999, 0, big, 1, 0},
		{"declared too long", "PUT", 999, 1000, big, 1, 1000},
		{"declared", "PUT", 1000, 1000, big, 3, 1000},
		{"declared wrongly", "PUT", 1000, 3, big, 3, 3},
		{"no bound", "PUT", 1<<63 - 1, 0, big, 3, 1000},
		{"empty", "PUT", 1000, 0, "", 3, 0},
		{"not to be sent again", "POST", 1000, 0, big, 1, 0},
		{"off", "PUT", 0, 0, big, 1, 0},
	} {
		f := &fake{}
		f.on("a", f.answer(503, "")).on("b", f.answer(503, "")).on("c", f.answer(200, ""))
		rt := abc(t, f, func(cfg *balancerhttp.Config) { cfg.MaxBuffer = c.max })
		body := &reqBody{Reader: strings.NewReader(c.body)}
		req := request(t, c.method, body)
		req.ContentLength = c.declared
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err, c.what)
		require.NoError(t, resp.Body.Close())
		require.Len(t, f.sent, c.sent, c.what)
		for i, r := range f.reqs {
			require.Equal(t, c.length, r.ContentLength, c.what)
			if c.body == "" {
				require.Equal(t, http.NoBody, r.Body, c.what)
			}
			require.Equal(t, c.body, f.got[i], c.what)
		}
		require.Equal(t, 1, body.closings(), c.what)
		require.True(t, req.Body == io.ReadCloser(body), c.what)
	}

	// A body with trailers is sent in chunks, whatever is known of its length.
	f := &fake{}
	f.on("a", f.reset).on("b", f.answer(200, ""))
	rt := abc(t, f, func(cfg *balancerhttp.Config) { cfg.MaxBuffer = 100 })
	req := request(t, "PUT", onlyReader{strings.NewReader("x")})
	req.ContentLength, req.Trailer = -1, http.Header{"Sum": nil}
	_, err := rt.RoundTrip(req)
	require.NoError(t, err)
	require.Len(t, f.sent, 2)
	require.Equal(t, int64(-1), f.reqs[1].ContentLength)
	require.NotNil(t, f.reqs[1].GetBody)
}

// A body with GetBody is never read ahead.
func TestNoCopy(t *testing.T) {
	f := &fake{}
	var body io.ReadCloser
	f.on("a", func(req *http.Request) (*http.Response, error) {
		require.True(t, req.Body == body)
		return f.answer(200, "")(req)
	})
	req := request(t, "PUT", strings.NewReader("whole"))
	body = req.Body
	_, err := abc(t, f, func(c *balancerhttp.Config) { c.MaxBuffer = 1 << 20 }).RoundTrip(req)
	require.NoError(t, err)
}

func TestAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.on("a", f.hang).on("b", f.hang).on("c", f.hang)
		rt := abc(t, f, func(c *balancerhttp.Config) { c.AttemptTimeout = time.Second })
		start := time.Now()
		_, err := rt.RoundTrip(request(t, "GET", nil))
		var timeout interface {
			Timeout() bool
			Temporary() bool
		}
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout() && timeout.Temporary())
		require.EqualError(t, err, "balancerhttp: no response headers within AttemptTimeout")
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, uint64(3), rt.Pool().Snapshot().Totals.Failures)

		// A response that comes too late is none.
		f = &fake{}
		f.on("a", func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			return f.answer(200, "late")(req)
		}).on("b", f.answer(200, "ok"))
		rt = abc(t, f, func(c *balancerhttp.Config) { c.AttemptTimeout = time.Second })
		resp, err := rt.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		require.Equal(t, "ok", readAll(t, resp))
		require.Zero(t, f.open())

		// An answer without more attempts is read under its context.
		f = &fake{}
		f.on("a", func(req *http.Request) (*http.Response, error) {
			return f.response(req, 503, &slow{ctx: req.Context(), left: 1 << 20}), nil
		})
		cfg := balancerhttp.Config{Pool: plain(), Base: f, AttemptTimeout: time.Second}
		rt = newTransport(t, cfg, "http://a")
		resp, err = rt.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		require.Len(t, readAll(t, resp), 1<<20)
		require.Error(t, f.reqs[0].Context().Err())

		// The caller's end comes first.
		f = &fake{}
		f.on("a", f.hang)
		rt = abc(t, f, func(c *balancerhttp.Config) { c.AttemptTimeout = time.Hour })
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		_, err = rt.RoundTrip(requestIn(t, ctx, "GET", nil))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, uint64(1), rt.Pool().Snapshot().Totals.Ignored)
	})
}

// What is not handed out delays the next attempt for a moment at most.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // says nothing until it is closed
		defer w.Close()
		f := &fake{}
		f.on("a", func(req *http.Request) (*http.Response, error) {
			resp := f.response(req, 503, nil)
			_ = resp.Body.Close()
			resp.Body = r
			return resp, nil
		}).on("b", f.answer(200, "ok"))
		start := time.Now()
		resp, err := abc(t, f).RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		require.Equal(t, "ok", readAll(t, resp))
		require.Equal(t, 50*time.Millisecond, time.Since(start))
	})

	// What is long, or known to be, is closed instead.
	for _, c := range []struct {
		declared int64
		read     int
	}{{-1, 64 << 10}, {1 << 20, 0}} {
		f := &fake{}
		long := bytes.NewReader(make([]byte, 1<<20))
		f.on("a", func(req *http.Request) (*http.Response, error) {
			resp := f.response(req, 503, onlyReader{long})
			resp.ContentLength = c.declared
			return resp, nil
		}).on("b", f.answer(200, "ok"))
		resp, err := abc(t, f).RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		require.Equal(t, "ok", readAll(t, resp))
		require.Equal(t, 1<<20-c.read, long.Len())
		require.Zero(t, f.open())
	}
}

func TestResult(t *testing.T) {
	clk := clock.NewManual(time.Unix(100, 0))
	f := &fake{}
	f.on("a", func(req *http.Request) (*http.Response, error) {
		clk.Advance(time.Second)
		return f.refuse(req)
	}).on("b", f.answer(503, "")).on("c", f.answer(200, ""))
	rt := abc(t, f, func(c *balancerhttp.Config) { c.Pool.Clock = clk })
	var res balancer.Result
	ctx := balancerhttp.WithRequest(context.Background(), balancer.Request{ID: 77, Result: &res})
	for range 2 { // the second one starts afresh
		_, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
		require.NoError(t, err)
		require.Len(t, res.Attempts, 3)
		require.Equal(t, []string{"http://a", "http://b", "http://c"}, []string{res.Attempts[0].Upstream, res.Attempts[1].Upstream, res.Attempts[2].Upstream})
		require.Equal(t, []balancer.Outcome{balancer.TransportFailure, balancer.Failure, balancer.Success}, []balancer.Outcome{res.Attempts[0].Outcome, res.Attempts[1].Outcome, res.Attempts[2].Outcome})
		require.Equal(t, time.Second, res.Attempts[0].Latency)
		require.Equal(t, time.Second, res.Attempts[1].Start.Sub(res.Attempts[0].Start))
		require.ErrorIs(t, res.Attempts[0].Err, syscall.ECONNREFUSED)
		require.Equal(t, uint64(77), res.Request)
		require.Equal(t, balancer.EndAnswered, res.End)
	}

	// The reason for the end.
	for _, c := range []struct {
		max  int
		want balancer.End
	}{{1, balancer.EndAttempts}, {5, balancer.EndNoTarget}} {
		f.on("a", f.refuse).on("b", f.refuse).on("c", f.refuse)
		rt = abc(t, f, retries(c.max))
		_, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
		require.Error(t, err)
		require.Equal(t, c.want, res.End)
	}
	rt = newTransport(t, balancerhttp.Config{Pool: plain(), Base: f})
	_, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
	require.ErrorIs(t, err, balancer.ErrNoUpstreams)
	require.Equal(t, balancer.EndUnavailable, res.End)
	require.Empty(t, res.Attempts)
}

func TestKey(t *testing.T) {
	f := &fake{}
	for _, h := range []string{"a", "b", "c"} {
		f.on(h, f.answer(200, ""))
	}
	rt := abc(t, f, func(c *balancerhttp.Config) {
		c.Pool.Policy = balancer.Hash{}
		c.Key = func(r *http.Request) balancer.Key { return balancer.StringKey(r.Header.Get("X-User")) }
	})
	where := func(user string, own balancer.Key) string {
		req := requestIn(t, balancerhttp.WithRequest(context.Background(), balancer.Request{Key: own}), "GET", nil)
		req.Header.Set("X-User", user)
		_, err := rt.RoundTrip(req)
		require.NoError(t, err)
		return f.sent[len(f.sent)-1]
	}
	hosts := map[string]bool{}
	for i := range 50 {
		user := fmt.Sprint("user", i)
		home := where(user, balancer.Key{})
		hosts[home] = true
		require.Equal(t, home, where(user, balancer.Key{}))
		require.Equal(t, home, where("other", balancer.StringKey(user)), "the request's own key counts")
	}
	require.Len(t, hosts, 3)
}

// A base that does not keep its contract does no harm.
func TestOddBases(t *testing.T) {
	for _, c := range []struct {
		what string
		ex   func(f *fake) exchange
		want string
	}{
		{"nothing", func(*fake) exchange {
			return func(*http.Request) (*http.Response, error) { return nil, nil }
		}, "balancerhttp: the base RoundTripper returned neither response nor error"},
		{"both", func(f *fake) exchange {
			return func(req *http.Request) (*http.Response, error) {
				resp, _ := f.answer(200, "")(req)
				return resp, errors.New("and yet")
			}
		}, "and yet"},
		{"no body", func(f *fake) exchange {
			return func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200}, nil
			}
		}, ""},
	} {
		f := &fake{}
		f.on("a", c.ex(f))
		rt := abc(t, f)
		resp, err := rt.RoundTrip(request(t, "GET", nil))
		if c.want == "" {
			require.NoError(t, err)
			require.Empty(t, readAll(t, resp))
		} else {
			require.EqualError(t, err, c.want, c.what)
			require.Nil(t, resp)
		}
		require.Zero(t, f.open(), c.what)
		require.Zero(t, inflight(rt), c.what)
	}
	// 101 with a body that cannot be written to is an ordinary response.
	f := &fake{}
	f.on("a", f.early(101, "x"))
	rt := abc(t, f)
	resp, err := rt.RoundTrip(request(t, "GET", nil))
	require.NoError(t, err)
	require.Equal(t, "x", readAll(t, resp))
	require.Zero(t, inflight(rt))
}

// A retry that was paid for and is not made costs nothing.
func TestRefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.on("a", f.answer(503, ""))
		rt := abc(t, f, func(c *balancerhttp.Config) {
			c.Pool.Budget = retrybudget.Config{}
			c.Pool.Retry.Backoff = balancer.Backoff{Base: time.Second, JitterPercent: -1}
		})
		before := rt.Pool().Snapshot().Tokens
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
		require.ErrorIs(t, err, context.Canceled)
		snap := rt.Pool().Snapshot()
		require.Equal(t, uint64(1), snap.Totals.Granted)
		require.Equal(t, before, snap.Tokens)
	})
}

// A budget that counts the requests under way hears of the end of each, which is
// the end of its body.
func TestBudgetOfActiveRequests(t *testing.T) {
	f := &fake{}
	ok := f.answer(200, "ok")
	rt := abc(t, f.on("a", ok).on("b", ok).on("c", ok), retries(1), func(c *balancerhttp.Config) {
		// Two requests under way allow one retry.
		c.Pool.Budget = retrybudget.Config{Capacity: -1, Share: retrybudget.Share{Rate: 0.5, Of: retrybudget.Active}}
	})
	get := func() *http.Response {
		resp, err := rt.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		return resp
	}
	for range 5 {
		readAll(t, get())
	}
	open := get()
	f.on("a", f.answer(503, "")).on("b", f.answer(503, "")).on("c", f.answer(503, ""))
	before := len(f.sent)
	readAll(t, get())
	require.Equal(t, 2, len(f.sent)-before, "with another one open")
	require.NoError(t, open.Body.Close())
	before = len(f.sent)
	readAll(t, get())
	require.Equal(t, 1, len(f.sent)-before, "alone")
}

// The latency of a backend is the time to its headers.
func TestLatency(t *testing.T) {
	clk := clock.NewManual(time.Unix(0, 0))
	f := &fake{}
	f.on("a", func(req *http.Request) (*http.Response, error) {
		clk.Advance(100 * time.Millisecond)
		return f.answer(200, "ok")(req)
	})
	rt := abc(t, f, func(c *balancerhttp.Config) { c.Pool.Clock = clk })
	resp, err := rt.RoundTrip(request(t, "GET", nil))
	require.NoError(t, err)
	clk.Advance(time.Minute)
	readAll(t, resp)
	a := status(t, rt, "http://a")
	require.True(t, a.Measured)
	require.Equal(t, 100*time.Millisecond, a.Latency)
}

// A caller that is gone when an attempt ends is not served by another one.
func TestNoRetryForNobody(t *testing.T) {
	for _, max := range []int{2, 0} {
		f := &fake{}
		ctx, cancel := context.WithCancel(context.Background())
		f.on("a", func(req *http.Request) (*http.Response, error) {
			cancel()
			return f.answer(503, "down")(req)
		}).on("b", f.answer(200, "ok"))
		rt := abc(t, f, retries(max))
		_, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "503")
		require.Equal(t, []string{"a"}, f.sent)
		require.Zero(t, f.open())
	}
}

// Values that a base appends to one field of the header stay out of the next.
func TestHeaderFieldsAreApart(t *testing.T) {
	names := []string{"A", "B", "C", "D", "E"}
	f := &fake{}
	f.on("a", func(req *http.Request) (*http.Response, error) {
		for _, n := range names {
			req.Header.Add(n, "added")
		}
		for _, n := range names {
			require.Equal(t, []string{n + "1", n + "2", "added"}, req.Header[n])
		}
		require.Nil(t, req.Header["Nil"])
		require.Contains(t, req.Header, "Nil")
		return f.answer(200, "")(req)
	})
	for _, n := range [][]string{names[:3], names} { // in the room at hand and beyond it
		names = n
		req := request(t, "GET", nil)
		req.Header["Nil"] = nil
		for _, n := range names {
			req.Header[n] = []string{n + "1", n + "2"}
		}
		rt := abc(t, f)
		_, err := rt.RoundTrip(req)
		require.NoError(t, err)
	}
}

// A stream that nobody wanted is closed once, whatever the base does later.
func TestStreamIsClosedOnce(t *testing.T) {
	f := &fake{}
	var kept io.ReadCloser
	f.on("a", func(req *http.Request) (*http.Response, error) {
		kept = req.Body
		return f.response(req, 503, strings.NewReader("")), nil
	})
	cfg := balancerhttp.Config{Pool: plain(), Base: f}
	rt := newTransport(t, cfg, "http://a")
	body := &reqBody{Reader: strings.NewReader("whole")}
	_, err := rt.RoundTrip(request(t, "PUT", body))
	require.NoError(t, err)
	require.Equal(t, 1, body.closings())
	_, err = kept.Read(make([]byte, 1))
	require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	require.NoError(t, kept.Close())
	require.Equal(t, 1, body.closings())

	// One that an attempt still has is left to it.
	f.on("a", func(req *http.Request) (*http.Response, error) {
		kept = req.Body
		return f.response(req, 200, strings.NewReader("")), nil
	})
	body = &reqBody{Reader: strings.NewReader("whole")}
	_, err = rt.RoundTrip(request(t, "PUT", body))
	require.NoError(t, err)
	require.Zero(t, body.closings())
	got, err := io.ReadAll(kept)
	require.NoError(t, err)
	require.Equal(t, "whole", string(got))
	require.NoError(t, kept.Close())
	require.Equal(t, 1, body.closings())
}

func TestDeadlineBeforeFirstAttempt(t *testing.T) {
	clk := clock.NewManual(time.Unix(0, 0))
	f := &fake{}
	rt := abc(t, f, func(c *balancerhttp.Config) { c.Pool.Clock = clk })
	ctx := balancerhttp.WithRequest(context.Background(), balancer.Request{Deadline: clk.Now()})
	_, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
	require.ErrorIs(t, err, balancer.ErrDeadline)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, f.sent)

	rt = abc(t, f)
	ctx = late{context.Background()}
	_, err = rt.RoundTrip(requestIn(t, ctx, "GET", nil))
	require.ErrorIs(t, err, balancer.ErrDeadline)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, f.sent)
}

// late is a context whose deadline has passed and whose timer has not fired yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// Through an http.Client over real sockets: redirects, connections that are
// used again, a backend that goes away.
func TestClient(t *testing.T) {
	var urls []string
	var servers []*httptest.Server
	for range 3 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/from" {
				http.Redirect(w, r, "/to?q=1", http.StatusFound)
				return
			}
			_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI())
		}))
		defer s.Close()
		servers, urls = append(servers, s), append(urls, s.URL+"/api")
	}
	rt := real(t, balancerhttp.Config{}, urls...)
	client := &http.Client{Transport: rt}
	defer client.CloseIdleConnections()
	get := func(path string) string {
		resp, err := client.Get("http://svc" + path)
		require.NoError(t, err)
		return readAll(t, resp)
	}
	require.Equal(t, "GET /api/to?q=1", get("/from"))
	servers[1].Close()
	for range 12 {
		require.Equal(t, "GET /api/x", get("/x"))
	}
	require.Positive(t, rt.Pool().Snapshot().Totals.Failovers)
	require.Zero(t, inflight(rt))
}
