package balancerhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// retries sets the number of retries.
func retries(n int) func(*balancerhttp.Config) {
	return func(c *balancerhttp.Config) { c.Pool.Retry.Max, c.Pool.Retry.Off = n, n == 0 }
}

// refusing is the URL of a loopback port that nobody listens on.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return "http://" + l.Addr().String()
}

// server is a real HTTP server on loopback.
func server(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// real is a Transport over real sockets, closed with the test.
func real(t *testing.T, cfg balancerhttp.Config, urls ...string) *balancerhttp.Transport {
	t.Helper()
	cfg.Pool = plain()
	rt := newTransport(t, cfg, urls...)
	t.Cleanup(rt.CloseIdleConnections)
	return rt
}

func TestTraps(t *testing.T) {
	t.Run("A-RT-01", func(t *testing.T) {
		// The first backend refuses; the second gets every byte.
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		var length atomic.Int64
		echo := server(t, func(w http.ResponseWriter, r *http.Request) {
			length.Store(r.ContentLength)
			_, _ = io.Copy(w, r.Body)
		})
		rt := real(t, balancerhttp.Config{}, refusing(t), echo)
		resp, err := rt.RoundTrip(request(t, "POST", bytes.NewReader(want)))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.True(t, string(want) == readAll(t, resp))
		require.Equal(t, int64(1<<20), length.Load())
		require.Equal(t, uint64(2), rt.Pool().Snapshot().Totals.Attempts)
	})

	t.Run("A-RT-02", func(t *testing.T) {
		f := &fake{}
		f.on("a", f.answer(503, "")).on("b", f.answer(503, "")).on("c", f.answer(200, "ok"))
		resp, err := abc(t, f).RoundTrip(request(t, "PUT", strings.NewReader("whole")))
		require.NoError(t, err)
		require.Equal(t, "ok", readAll(t, resp))
		require.Equal(t, []string{"whole", "whole", "whole"}, f.got)

		// What exists once is sent once.
		f = &fake{}
		f.on("a", f.answer(503, "down")).on("b", f.answer(200, "ok"))
		r, w := io.Pipe()
		go func() {
			_, _ = w.Write([]byte("whole"))
			_ = w.Close()
		}()
		resp, err = abc(t, f).RoundTrip(request(t, "PUT", r))
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.Equal(t, "down", readAll(t, resp))
		require.Equal(t, []string{"a"}, f.sent)

		// Unless nobody has read from it.
		f = &fake{}
		f.on("a", f.early(503, "down")).on("b", f.refuse).on("c", f.answer(200, "ok"))
		body := &reqBody{Reader: strings.NewReader("whole")}
		resp, err = abc(t, f).RoundTrip(request(t, "PUT", body))
		require.NoError(t, err)
		require.Equal(t, "ok", readAll(t, resp))
		require.Equal(t, []string{"whole"}, f.got)
		require.Equal(t, 1, body.closings())
	})

	t.Run("A-RT-03", func(t *testing.T) {
		f := &fake{}
		f.on("a", f.answer(503, "down")).on("b", f.answer(503, "down")).on("c", f.answer(200, "ok"))
		resp, err := abc(t, f).RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		require.Equal(t, []string{"send a", "end 1", "close 1", "send b", "end 2", "close 2", "send c"}, f.log)
		require.Equal(t, "ok", readAll(t, resp))
		require.Zero(t, f.open())

		// With one connection a body that is left open would block the next attempt.
		var n atomic.Int32
		url := server(t, func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1) < 3 {
				w.WriteHeader(503)
			}
			_, _ = w.Write(make([]byte, 32<<10))
		})
		one := &http.Transport{MaxConnsPerHost: 1}
		defer one.CloseIdleConnections()
		cfg := balancerhttp.Config{Pool: plain(), Base: one}
		cfg.Pool.Retry.SameUpstream = 2
		resp, err = newTransport(t, cfg, url).RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Len(t, readAll(t, resp), 32<<10)
	})

	t.Run("A-RT-04", func(t *testing.T) {
		f := &fake{}
		f.on("a", f.answer(503, "1")).on("b", f.answer(503, "2")).on("c", f.answer(503, "3"))
		resp, err := abc(t, f).RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.Equal(t, "3", readAll(t, resp))
		require.Zero(t, f.open())

		f = &fake{}
		f.on("a", f.answer(503, "1")).on("b", f.answer(503, "2")).on("c", f.reset)
		resp, err = abc(t, f).RoundTrip(request(t, "GET", nil))
		require.Nil(t, resp)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Zero(t, f.open())
	})

	t.Run("A-RT-05", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{}
			f.on("a", func(req *http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				return f.response(req, 200, &slow{ctx: req.Context(), left: 8 << 20}), nil
			})
			rt := abc(t, f, func(c *balancerhttp.Config) { c.AttemptTimeout = 2 * time.Second })
			for _, toEnd := range []bool{true, false} {
				f.on("a", f.hosts["a"][0]).on("b", f.hosts["a"][0]).on("c", f.hosts["a"][0])
				resp, err := rt.RoundTrip(request(t, "GET", nil))
				require.NoError(t, err)
				attempt := f.reqs[len(f.reqs)-1].Context()
				if toEnd {
					n, err := io.Copy(io.Discard, resp.Body)
					require.NoError(t, err)
					require.Equal(t, int64(8<<20), n)
					require.Error(t, attempt.Err(), "the end of the body ends the attempt's context")
				} else {
					_, err := io.ReadFull(resp.Body, make([]byte, 1<<20))
					require.NoError(t, err)
					require.NoError(t, attempt.Err())
				}
				require.NoError(t, resp.Body.Close())
				require.Error(t, attempt.Err())
			}
		})
	})

	t.Run("A-RT-06", func(t *testing.T) {
		for _, c := range []struct {
			what, method, key string
			first             func(*fake) exchange
			want              []string
		}{
			{"never sent", "POST", "", func(f *fake) exchange { return f.refuse }, []string{"a", "b"}},
			{"no headers in time", "POST", "", func(f *fake) exchange { return f.hang }, []string{"a"}},
			{"no headers in time", "POST", "k1", func(f *fake) exchange { return f.hang }, []string{"a", "b"}},
			{"bad gateway", "POST", "", func(f *fake) exchange { return f.answer(502, "") }, []string{"a"}},
			{"bad gateway", "POST", "k1", func(f *fake) exchange { return f.answer(502, "") }, []string{"a", "b"}},
			{"never sent", "GET", "", func(f *fake) exchange { return f.refuse }, []string{"a", "b"}},
			{"no headers in time", "GET", "", func(f *fake) exchange { return f.hang }, []string{"a", "b"}},
			{"bad gateway", "GET", "", func(f *fake) exchange { return f.answer(502, "") }, []string{"a", "b"}},
		} {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				f.on("a", c.first(f)).on("b", f.answer(200, "ok"))
				rt := abc(t, f, func(cfg *balancerhttp.Config) { cfg.AttemptTimeout = time.Second })
				req := request(t, c.method, strings.NewReader("order"))
				if c.key != "" {
					req.Header.Set("Idempotency-Key", c.key)
				}
				resp, err := rt.RoundTrip(req)
				if resp != nil {
					_ = resp.Body.Close()
				}
				require.Equal(t, c.want, f.sent, "%s %s %s: %v", c.what, c.method, c.key, err)
				if len(c.want) == 2 {
					require.NoError(t, err)
					require.Equal(t, 200, resp.StatusCode)
				}
			})
		}
	})

	t.Run("A-RT-07", func(t *testing.T) {
		f := &fake{}
		f.on("a", f.refuse).on("b", f.refuse).on("c", f.refuse)
		resp, err := abc(t, f, retries(9)).RoundTrip(request(t, "GET", nil))
		require.Nil(t, resp)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Equal(t, []string{"a", "b", "c"}, f.sent)
	})

	t.Run("A-RT-08", func(t *testing.T) {
		f := &fake{}
		f.on("a", f.refuse).on("b", f.answer(200, "ok"))
		cfg := balancerhttp.Config{Pool: plain(), Base: f}
		cfg.Pool.Retry.Max = 1
		rt := newTransport(t, cfg, "http://a", "http://b")
		var wg sync.WaitGroup
		var good atomic.Int32
		for range 200 {
			req := request(t, "GET", nil)
			wg.Go(func() {
				resp, err := rt.RoundTrip(req)
				if err == nil && resp.StatusCode == 200 {
					good.Add(1)
					_ = resp.Body.Close()
				}
			})
		}
		wg.Wait()
		require.Equal(t, int32(200), good.Load())
		require.Zero(t, inflight(rt))
	})

	t.Run("A-RT-10", func(t *testing.T) {
		clk := clock.NewManual(time.Unix(0, 0))
		f := &fake{}
		f.on("a", func(req *http.Request) (*http.Response, error) {
			clk.Advance(100 * time.Millisecond)
			return f.answer(503, "down")(req)
		})
		rt := abc(t, f, func(c *balancerhttp.Config) {
			c.Pool.Clock = clk
			c.Pool.Retry.Backoff = balancer.Backoff{Base: 2 * time.Second, JitterPercent: -1}
		})
		var res balancer.Result
		ctx := balancerhttp.WithRequest(context.Background(), balancer.Request{Deadline: clk.Now().Add(time.Second), Result: &res})
		resp, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.Equal(t, "down", readAll(t, resp))
		require.Equal(t, time.Unix(0, 0).Add(100*time.Millisecond), clk.Now())
		require.Zero(t, clk.Pending())
		require.Equal(t, balancer.EndDeadline, res.End)

		// The same by the deadline of the context, on the system's clock.
		synctest.Test(t, func(t *testing.T) {
			f := &fake{}
			f.on("a", func(req *http.Request) (*http.Response, error) {
				time.Sleep(100 * time.Millisecond)
				return f.answer(503, "down")(req)
			})
			rt := abc(t, f, func(c *balancerhttp.Config) {
				c.Pool.Retry.Backoff = balancer.Backoff{Base: 2 * time.Second, JitterPercent: -1}
			})
			start := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			resp, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
			require.NoError(t, err)
			require.Equal(t, "down", readAll(t, resp))
			require.Equal(t, 100*time.Millisecond, time.Since(start))
		})
	})

	t.Run("A-RT-11", func(t *testing.T) {
		for _, ex := range []string{"status", "error"} {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				f.on("a", f.answer(503, "down"))
				if ex == "error" {
					f.on("a", f.reset)
				}
				rt := abc(t, f, func(c *balancerhttp.Config) {
					c.Pool.Retry.Backoff = balancer.Backoff{Base: time.Second, JitterPercent: -1}
				})
				ctx, cancel := context.WithCancel(context.Background())
				start := time.Now()
				time.AfterFunc(10*time.Millisecond, cancel)
				resp, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
				require.Nil(t, resp)
				require.ErrorIs(t, err, context.Canceled)
				if ex == "error" {
					require.ErrorIs(t, err, syscall.ECONNRESET)
				} else {
					require.ErrorContains(t, err, "503 Service Unavailable")
				}
				require.Equal(t, 10*time.Millisecond, time.Since(start))
				require.Equal(t, []string{"a"}, f.sent)
				require.Zero(t, f.open())
				require.Zero(t, inflight(rt))
			})
		}
	})

	t.Run("A-RT-12", func(t *testing.T) {
		// A stub, so that every part can be looked at.
		f := &fake{}
		near, far := net.Pipe()
		f.on("a", func(req *http.Request) (*http.Response, error) {
			resp := f.response(req, 101, nil)
			resp.Body = near
			return resp, nil
		}).on("b", f.answer(200, "hello"))
		rt := abc(t, f)
		resp, err := rt.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		rwc, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok)
		go func() {
			_, _ = io.Copy(far, far) // echo
		}()
		_, err = rwc.Write([]byte("ping"))
		require.NoError(t, err)
		got := make([]byte, 4)
		_, err = io.ReadFull(rwc, got)
		require.NoError(t, err)
		require.Equal(t, "ping", string(got))
		require.Equal(t, 1, inflight(rt))
		require.NoError(t, rwc.Close())
		require.Zero(t, inflight(rt))
		_ = rwc.Close()
		require.Zero(t, inflight(rt))
		require.Equal(t, []string{"a"}, f.sent)

		// The end of the context, which was for the handshake, is not its end.
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer far.Close()
			f := &fake{}
			f.on("a", func(req *http.Request) (*http.Response, error) {
				resp := f.response(req, 101, nil)
				resp.Body = near
				return resp, nil
			})
			rt := abc(t, f)
			ctx, cancel := context.WithCancel(context.Background())
			resp, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
			require.NoError(t, err)
			cancel()
			synctest.Wait()
			require.Equal(t, 1, inflight(rt))
			require.NoError(t, resp.Body.Close())
			require.Zero(t, inflight(rt))
		})

		// And only then.
		resp, err = rt.RoundTrip(request(t, "GET", nil))
		require.NoError(t, err)
		_, ok = resp.Body.(io.Writer)
		require.False(t, ok)
		require.Equal(t, "hello", readAll(t, resp))

		// The real thing.
		url := server(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
			_ = rw.Flush()
			_, _ = io.Copy(conn, rw)
		})
		rt = real(t, balancerhttp.Config{}, url)
		req := request(t, "GET", nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err = rt.RoundTrip(req)
		require.NoError(t, err)
		rwc = resp.Body.(io.ReadWriteCloser)
		_, err = rwc.Write([]byte("ping"))
		require.NoError(t, err)
		_, err = io.ReadFull(rwc, got)
		require.NoError(t, err)
		require.Equal(t, "ping", string(got))
		require.Equal(t, 1, inflight(rt))
		// Closing one direction is still possible, and is not the end.
		require.NoError(t, rwc.(interface{ CloseWrite() error }).CloseWrite())
		rest, err := io.ReadAll(rwc)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, 1, inflight(rt))
		require.NoError(t, rwc.Close())
		require.Zero(t, inflight(rt))
	})

	t.Run("A-RT-13", func(t *testing.T) {
		f := &fake{}
		f.on("a", func(req *http.Request) (*http.Response, error) {
			return f.response(req, 200, failing("half", io.ErrUnexpectedEOF)), nil
		}).on("b", f.answer(200, "ok")).on("c", f.answer(200, "ok"))
		rt := abc(t, f, func(c *balancerhttp.Config) {
			c.Pool.Outlier = outlier.Config{Consecutive: 3}
		})
		for range 9 {
			require.False(t, status(t, rt, "http://a").Ejected)
			resp, err := rt.RoundTrip(request(t, "GET", nil))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			if resp.Request.URL.Host == "a" {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			}
			_ = resp.Body.Close()
			_, _ = resp.Body.Read(make([]byte, 1)) // once is enough
			if status(t, rt, "http://a").Ejected {
				break
			}
		}
		a := status(t, rt, "http://a")
		require.True(t, a.Ejected)
		require.Equal(t, uint64(3), a.Failures)
		require.Equal(t, uint64(3), a.Served)
		require.Zero(t, inflight(rt))
	})

	t.Run("A-RT-15", func(t *testing.T) { bodiesAreClosed(t) })

	t.Run("A-RT-16", func(t *testing.T) {
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		busy := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
		echo := server(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
		for range 5 {
			rt := real(t, balancerhttp.Config{}, busy, echo)
			req := request(t, "POST", bytes.NewReader(want))
			req.Header.Set("Idempotency-Key", "1")
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			require.True(t, string(want) == readAll(t, resp))
		}
	})

	t.Run("A-RT-17", func(t *testing.T) {
		for _, c := range []struct {
			what   string
			reader io.Reader
			buffer int64
		}{
			{"GetBody", strings.NewReader("whole"), 0},
			{"buffered", onlyReader{strings.NewReader("whole")}, 5},
		} {
			f := &fake{}
			f.on("a", f.reset).on("b", f.answer(503, "")).on("c", f.answer(200, ""))
			resp, err := abc(t, f, func(cfg *balancerhttp.Config) { cfg.MaxBuffer = c.buffer }).RoundTrip(request(t, "PUT", c.reader))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, []string{"whole", "whole", "whole"}, f.got, c.what)
			for _, req := range f.reqs {
				require.Equal(t, int64(5), req.ContentLength, c.what)
				require.NotNil(t, req.GetBody, c.what)
				b, err := req.GetBody()
				require.NoError(t, err)
				data, err := io.ReadAll(b)
				require.NoError(t, err)
				require.Equal(t, "whole", string(data))
			}
		}
	})

	t.Run("A-RT-18", func(t *testing.T) {
		f := &fake{}
		// A base that sets headers, which it should not.
		meddle := func(ex exchange) exchange {
			return func(req *http.Request) (*http.Response, error) {
				req.Header.Set("Authorization", "for "+req.URL.Host)
				req.Header.Add("Via", req.URL.Host)
				req.Header["Accept"][0] = "nothing"
				req.URL.RawQuery += "&signed"
				return ex(req)
			}
		}
		seen := []string{}
		record := func(ex exchange) exchange {
			return func(req *http.Request) (*http.Response, error) {
				host := req.Host
				if host == "" {
					host = req.URL.Host
				}
				require.Empty(t, req.Header.Values("Authorization"))
				require.Equal(t, []string{"client"}, req.Header.Values("Via"))
				seen = append(seen, host+" "+req.URL.RequestURI())
				return ex(req)
			}
		}
		f.on("a", record(meddle(f.answer(503, "")))).on("b", record(meddle(f.answer(200, ""))))
		req := request(t, "PUT", strings.NewReader("whole"))
		req.URL, _ = url.Parse("http://svc/a%2Fb?q=1")
		req.Header = http.Header{"Via": {"client"}, "Accept": {"*/*"}}
		before, body := req.Clone(req.Context()), req.Body
		resp, err := abc(t, f).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, []string{"a /a%2Fb?q=1", "b /a%2Fb?q=1"}, seen)
		require.True(t, body == req.Body)
		require.Equal(t, before.URL, req.URL)
		require.Equal(t, before.Header, req.Header)
		require.Equal(t, before.Host, req.Host)
		require.Equal(t, before.ContentLength, req.ContentLength)
		before.GetBody, req.GetBody = nil, nil
		before.Body, req.Body = nil, nil
		require.True(t, reflect.DeepEqual(before, req))
	})

	t.Run("A-RT-19", func(t *testing.T) {
		for _, body := range []io.ReadCloser{nil, http.NoBody} {
			f := &fake{}
			f.on("a", f.answer(503, "")).on("b", f.answer(200, "ok"))
			req := request(t, "GET", nil)
			req.Body = body
			resp, err := abc(t, f).RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
		}
	})

	t.Run("A-RT-20", func(t *testing.T) {
		for n := 1; n <= 3; n++ {
			f := &fake{}
			f.on("a", f.refuse).on("b", f.refuse).on("c", f.refuse)
			_, err := abc(t, f, retries(n-1)).RoundTrip(request(t, "GET", nil))
			require.Error(t, err)
			require.Len(t, f.sent, n)
		}
	})

	t.Run("A-RT-21", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var sent []time.Duration
			start := time.Now()
			dial := func(req *http.Request) (*http.Response, error) {
				sent = append(sent, time.Since(start))
				select {
				case <-time.After(2 * time.Second):
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ETIMEDOUT}
				case <-req.Context().Done():
					return nil, req.Context().Err()
				}
			}
			f := &fake{}
			f.on("a", dial).on("b", dial).on("c", dial)
			rt := abc(t, f, func(c *balancerhttp.Config) {
				c.Pool.Retry.Max, c.Pool.Retry.SameUpstream = 9, 9
			})
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 5*time.Second, time.Since(start))
			require.Equal(t, []time.Duration{0, 2 * time.Second, 4 * time.Second}, sent)
		})
	})

	t.Run("A-RT-22", func(t *testing.T) {
		for _, code := range []int{200, 426} {
			f := &fake{}
			ex := func(req *http.Request) (*http.Response, error) {
				resp := f.response(req, code, strings.NewReader("not an upgrade"))
				resp.Header.Set("Upgrade", "h2c")
				resp.Header.Set("Connection", "Upgrade")
				return resp, nil
			}
			f.on("a", ex)
			rt := abc(t, f)
			resp, err := rt.RoundTrip(request(t, "GET", nil))
			require.NoError(t, err)
			require.Equal(t, code, resp.StatusCode)
			_, writer := resp.Body.(io.Writer)
			require.False(t, writer)
			require.Equal(t, 1, inflight(rt))
			data, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, "not an upgrade", string(data))
			require.Zero(t, inflight(rt), "the end of the body is the end of the call")
		}
	})

	t.Run("A-RT-24", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{}
			f.on("a", f.answer(200, "ok")).on("b", f.answer(200, "ok"))
			rt := abc(t, f)
			ctx, cancel := context.WithCancel(context.Background())
			_, err := rt.RoundTrip(requestIn(t, ctx, "GET", nil))
			require.NoError(t, err)
			require.Equal(t, 1, inflight(rt))
			cancel()
			synctest.Wait()
			require.Zero(t, inflight(rt))

			resp, err := rt.RoundTrip(request(t, "GET", nil))
			require.NoError(t, err)
			time.Sleep(time.Hour)
			require.Equal(t, 1, inflight(rt))
			require.NoError(t, resp.Body.Close())
			require.Zero(t, inflight(rt))
		})
	})

	t.Run("A-LC-04", func(t *testing.T) { everyExit(t) })
}

// slow gives a body in chunks, a second apart.
type slow struct {
	ctx  context.Context
	left int
}

func (s *slow) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	if s.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), s.left, 1<<20)
	s.left -= n
	return n, nil
}

// bodiesAreClosed looks at every way out of RoundTrip: whatever body was handed
// out, the caller's or one of GetBody's, has been closed.
func bodiesAreClosed(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		what  string
		setup func(*fake) *balancerhttp.Transport
		ctx   context.Context
		edit  func(*http.Request)
		want  error
	}{
		{what: "success", setup: func(f *fake) *balancerhttp.Transport { return abc(t, f.on("a", f.answer(200, ""))) }},
		{what: "cancelled", ctx: cancelled, want: context.Canceled, setup: func(f *fake) *balancerhttp.Transport { return abc(t, f) }},
		{what: "no upstreams", want: balancer.ErrNoUpstreams, setup: func(f *fake) *balancerhttp.Transport {
			return newTransport(t, balancerhttp.Config{Pool: plain(), Base: f})
		}},
		{what: "unhealthy", want: balancer.ErrNoneAvailable, setup: func(f *fake) *balancerhttp.Transport {
			return abc(t, f, func(c *balancerhttp.Config) { c.Pool.StartUnhealthy = true })
		}},
		{what: "breaker open", want: balancer.ErrNoneAvailable, setup: func(f *fake) *balancerhttp.Transport {
			f.on("a", f.refuse)
			cfg := balancerhttp.Config{Pool: plain(), Base: f}
			cfg.Pool.Breaker = breaker.Config{ConsecutiveFailures: 1}
			rt := newTransport(t, cfg, "http://a")
			_, err := rt.RoundTrip(request(t, "GET", nil))
			require.Error(t, err)
			return rt
		}},
		{what: "no URL", edit: func(r *http.Request) { r.URL = nil }, setup: func(f *fake) *balancerhttp.Transport { return abc(t, f) }},
		{what: "opaque URL", edit: func(r *http.Request) { r.URL.Opaque = "x" }, setup: func(f *fake) *balancerhttp.Transport { return abc(t, f) }},
		{what: "three attempts", want: syscall.ECONNREFUSED, setup: func(f *fake) *balancerhttp.Transport {
			return abc(t, f.on("a", f.refuse).on("b", f.early(503, "")).on("c", f.refuse))
		}},
		{what: "reset", want: syscall.ECONNRESET, setup: func(f *fake) *balancerhttp.Transport {
			return abc(t, f.on("a", f.reset).on("b", f.reset).on("c", f.reset))
		}},
		{what: "Key panics", setup: func(f *fake) *balancerhttp.Transport {
			return abc(t, f, func(c *balancerhttp.Config) { c.Key = func(*http.Request) balancer.Key { panic("key") } })
		}},
		{what: "base panics", setup: func(f *fake) *balancerhttp.Transport {
			return abc(t, f.on("a", func(*http.Request) (*http.Response, error) { panic("base") }))
		}},
		{what: "Classify panics", setup: func(f *fake) *balancerhttp.Transport {
			return abc(t, f.on("a", f.answer(200, "")), func(c *balancerhttp.Config) {
				c.Classify = func(*http.Request, *http.Response, error) balancer.Outcome { panic("classify") }
			})
		}},
		{what: "GetBody fails", want: syscall.ECONNREFUSED, edit: func(r *http.Request) {
			if r.GetBody != nil {
				r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
			}
		}, setup: func(f *fake) *balancerhttp.Transport {
			return abc(t, f.on("a", f.refuse).on("b", f.refuse).on("c", f.refuse))
		}},
		{what: "GetBody panics", edit: func(r *http.Request) {
			if r.GetBody != nil {
				r.GetBody = func() (io.ReadCloser, error) { panic("body") }
			}
		}, setup: func(f *fake) *balancerhttp.Transport {
			return abc(t, f.on("a", f.early(503, "")).on("b", f.refuse).on("c", f.refuse))
		}},
		{what: "buffered", want: syscall.ECONNRESET, setup: func(f *fake) *balancerhttp.Transport {
			return abc(t, f.on("a", f.reset).on("b", f.reset).on("c", f.reset), func(c *balancerhttp.Config) { c.MaxBuffer = 100 })
		}},
		{what: "too long to buffer", setup: func(f *fake) *balancerhttp.Transport {
			return abc(t, f.on("a", f.answer(503, "")), func(c *balancerhttp.Config) { c.MaxBuffer = 3 })
		}},
	} {
		for _, replay := range []bool{false, true} {
			f := &fake{}
			rt := c.setup(f)
			ctx := c.ctx
			if ctx == nil {
				ctx = context.Background()
			}
			bodies := []*reqBody{{Reader: strings.NewReader("whole")}}
			req := requestIn(t, ctx, "PUT", bodies[0])
			if replay {
				req.GetBody = func() (io.ReadCloser, error) {
					b := &reqBody{Reader: strings.NewReader("whole")}
					bodies = append(bodies, b)
					return b, nil
				}
			}
			if c.edit != nil {
				c.edit(req)
			}
			var resp *http.Response
			var err error
			func() {
				defer func() {
					if r := recover(); r != nil {
						require.Contains(t, c.what, "panics")
					}
				}()
				resp, err = rt.RoundTrip(req)
			}()
			if resp != nil {
				require.NoError(t, resp.Body.Close())
			}
			if c.want != nil && (replay || c.what != "reset") {
				require.ErrorIs(t, err, c.want, c.what)
			}
			for i, b := range bodies {
				require.Positive(t, b.closings(), "%s, replay %v: body %d of %d", c.what, replay, i+1, len(bodies))
			}
			require.Zero(t, inflight(rt), c.what)
			require.Zero(t, f.open(), c.what)
		}
	}
}
