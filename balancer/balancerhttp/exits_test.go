package balancerhttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
)

// next draws from a keyed sequence: SplitMix64 over a counter.
func next(state *uint64, n uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	x := *state
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return (x ^ x>>31) % n
}

// everyExit sends a thousand requests, twenty at a time, each of which may end
// in any of the ways that there are, and finds nothing in flight after them.
func everyExit(t *testing.T) {
	seed, _ := seedOf(t, 4)
	ops := opsOf(t, 1000)
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var mu sync.Mutex
		state := seed
		draw := func(n uint64) uint64 {
			mu.Lock()
			defer mu.Unlock()
			return next(&state, n)
		}
		chaos := func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Duration(draw(20)) * time.Millisecond)
			switch draw(10) {
			case 0:
				return f.refuse(req)
			case 1:
				return f.reset(req)
			case 2:
				return f.hang(req)
			case 3:
				return f.answer(503, "down")(req)
			case 4:
				return f.early(500, "broken")(req)
			case 5:
				if req.Body != nil {
					_ = req.Body.Close()
				}
				panic("chaos")
			case 6:
				if err := f.take(req); err != nil {
					return nil, err
				}
				return f.response(req, 200, failing("half", io.ErrUnexpectedEOF)), nil
			case 7:
				if err := f.take(req); err != nil {
					return nil, err
				}
				near, far := net.Pipe()
				_ = far.Close()
				resp := f.response(req, 101, nil)
				_ = resp.Body.Close()
				resp.Body = near
				return resp, nil
			}
			return f.answer(200, "fine")(req)
		}
		f.on("a", chaos).on("b", chaos).on("c", chaos)
		cfg := balancerhttp.Config{Pool: balancer.Config{Seed: seed | 1}, Base: f, AttemptTimeout: 300 * time.Millisecond, MaxBuffer: 3}
		rt := newTransport(t, cfg, "http://a", "http://b", "http://c")
		one := func() {
			defer func() { _ = recover() }()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if draw(4) == 0 {
				time.AfterFunc(time.Duration(draw(50))*time.Millisecond, cancel)
			}
			var body io.Reader
			switch draw(4) {
			case 0:
				body = strings.NewReader("again")
			case 1:
				body = onlyReader{strings.NewReader("once")}
			case 2:
				body = onlyReader{strings.NewReader("buf")}
			}
			req, err := http.NewRequestWithContext(ctx, []string{"GET", "PUT", "POST"}[draw(3)], "http://svc/x", body)
			if err != nil {
				panic(err)
			}
			resp, err := rt.RoundTrip(req)
			if (resp == nil) == (err == nil) {
				t.Errorf("response %v, error %v", resp, err)
			}
			if err != nil {
				return
			}
			switch draw(4) {
			case 0:
				_ = resp.Body.Close() // unread
			case 1:
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			case 2:
				_, _ = io.Copy(io.Discard, resp.Body) // to the end, not closed
				if resp.StatusCode == 101 {
					_ = resp.Body.Close()
				}
			default:
				// Dropped: the context ends it, a connection excepted.
				if resp.StatusCode == 101 {
					_ = resp.Body.Close()
				}
			}
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range ops / 20 {
					one()
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		snap := rt.Pool().Snapshot()
		require.Zero(t, snap.Totals.Inflight)
		for _, u := range snap.Upstreams {
			require.Zero(t, u.Inflight, u.ID)
		}
		tot := snap.Totals
		require.Equal(t, tot.Attempts, tot.Successes+tot.Failures+tot.Ignored)
	})
}

// A verdict is given once, by whichever end comes first.
func TestBodyEnds(t *testing.T) {
	unlucky := errors.New("connection lost")
	for _, c := range []struct {
		what    string
		status  int
		body    io.Reader
		use     func(t *testing.T, resp *http.Response, cancel func())
		want    [3]uint64 // successes, failures, ignored
		timeout time.Duration
	}{
		{what: "end", status: 200, body: strings.NewReader("x"), want: [3]uint64{1, 0, 0}, use: func(t *testing.T, resp *http.Response, _ func()) {
			readAll(t, resp)
		}},
		{what: "closed early", status: 200, body: strings.NewReader("x"), want: [3]uint64{1, 0, 0}, use: func(t *testing.T, resp *http.Response, _ func()) {
			_ = resp.Body.Close()
			_ = resp.Body.Close()
		}},
		{what: "closed early, bad status", status: 500, body: strings.NewReader("x"), want: [3]uint64{0, 1, 0}, use: func(t *testing.T, resp *http.Response, _ func()) {
			_ = resp.Body.Close()
		}},
		{what: "broken off", status: 200, body: failing("x", unlucky), want: [3]uint64{0, 1, 0}, use: func(t *testing.T, resp *http.Response, _ func()) {
			_, err := io.ReadAll(resp.Body)
			require.ErrorIs(t, err, unlucky)
			_ = resp.Body.Close()
		}},
		{what: "broken off after the client's fault", status: 404, body: failing("x", unlucky), want: [3]uint64{0, 1, 0}, use: func(t *testing.T, resp *http.Response, _ func()) {
			_, _ = io.ReadAll(resp.Body)
		}},
		{what: "cancelled while reading", status: 200, body: failing("x", context.Canceled), want: [3]uint64{0, 0, 1}, use: func(t *testing.T, resp *http.Response, cancel func()) {
			cancel()
			_, _ = io.ReadAll(resp.Body)
		}},
		{what: "cancelled and dropped", status: 200, body: strings.NewReader("x"), want: [3]uint64{0, 0, 1}, use: func(t *testing.T, resp *http.Response, cancel func()) {
			cancel()
		}},
		{what: "deadline while reading", status: 200, body: stall{}, timeout: time.Second, want: [3]uint64{0, 1, 0}, use: func(t *testing.T, resp *http.Response, _ func()) {
			go func() { _, _ = resp.Body.Read(make([]byte, 1)) }()
			time.Sleep(2 * time.Second)
		}},
		{what: "deadline and dropped", status: 200, body: strings.NewReader("x"), timeout: time.Second, want: [3]uint64{1, 0, 0}, use: func(t *testing.T, resp *http.Response, _ func()) {
			time.Sleep(2 * time.Second)
		}},
		{what: "closed before cancelled", status: 200, body: strings.NewReader("x"), want: [3]uint64{1, 0, 0}, use: func(t *testing.T, resp *http.Response, cancel func()) {
			_ = resp.Body.Close()
			cancel()
		}},
		{what: "closed under a reader that notices at once", status: 200, body: nil, want: [3]uint64{1, 0, 0}, use: func(t *testing.T, resp *http.Response, _ func()) {
			go func() { _, _ = resp.Body.Read(make([]byte, 1)) }()
			synctest.Wait()
			_ = resp.Body.Close()
		}},
		{what: "closed under a reader", status: 200, body: stall{}, want: [3]uint64{1, 0, 0}, use: func(t *testing.T, resp *http.Response, _ func()) {
			go func() { _, _ = resp.Body.Read(make([]byte, 1)) }()
			synctest.Wait()
			_ = resp.Body.Close()
			time.Sleep(4 * time.Second)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				f.on("a", func(req *http.Request) (*http.Response, error) {
					resp := f.response(req, c.status, c.body)
					if c.body == nil {
						resp.Body = newSlowClose()
					}
					return resp, nil
				})
				rt := abc(t, f)
				ctx, cancel := context.WithCancel(context.Background())
				if c.timeout > 0 {
					ctx, cancel = context.WithTimeout(context.Background(), c.timeout)
				}
				defer cancel()
				resp, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
				require.NoError(t, err)
				require.Equal(t, 1, inflight(rt))
				c.use(t, resp, cancel)
				synctest.Wait()
				got := rt.Pool().Snapshot().Totals
				require.Equal(t, c.want, [3]uint64{got.Successes, got.Failures, got.Ignored})
				require.Zero(t, got.Inflight)
				time.Sleep(5 * time.Second) // for the stalled reader
			})
		})
	}
}

// stall gives nothing for three seconds, then an error.
type stall struct{}

func (stall) Read([]byte) (int, error) {
	time.Sleep(3 * time.Second)
	return 0, io.ErrUnexpectedEOF
}

// slowClose is a body that says nothing; its Close fails its readers first and
// returns a second later.
type slowClose struct {
	*io.PipeReader
	w *io.PipeWriter
}

func newSlowClose() slowClose {
	r, w := io.Pipe()
	return slowClose{r, w}
}

func (s slowClose) Close() error {
	_ = s.w.CloseWithError(errors.New("read on closed body"))
	time.Sleep(time.Second)
	return nil
}
