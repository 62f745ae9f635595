package balancerhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// exchange is what a backend does with one request.
type exchange func(*http.Request) (*http.Response, error)

// fake is a base RoundTripper that keeps the contract: it closes every request
// body, and records what went by.
type fake struct {
	mu     sync.Mutex
	hosts  map[string][]exchange // by host, the last one repeats
	sent   []string              // hosts, in the order of the attempts
	reqs   []*http.Request
	got    []string // what arrived as a body
	log    []string // opening and closing of response bodies, and attempts
	bodies []*respBody
}

func (f *fake) on(host string, ex ...exchange) *fake {
	if f.hosts == nil {
		f.hosts = map[string][]exchange{}
	}
	f.hosts[host] = ex
	return f
}

func (f *fake) RoundTrip(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.sent = append(f.sent, req.URL.Host)
	f.reqs = append(f.reqs, req)
	f.log = append(f.log, "send "+req.URL.Host)
	ex := f.hosts[req.URL.Host]
	if len(ex) > 1 {
		f.hosts[req.URL.Host] = ex[1:]
	}
	f.mu.Unlock()
	if len(ex) == 0 {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, errors.New("no script for " + req.URL.Host)
	}
	return ex[0](req)
}

// take reads and closes a request's body.
func (f *fake) take(req *http.Request) error {
	if req.Body == nil {
		return nil
	}
	data, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, string(data))
	return err
}

// open counts the response bodies that nobody has closed.
func (f *fake) open() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.bodies {
		if !b.closed {
			n++
		}
	}
	return n
}

// answer takes the request's body and answers.
func (f *fake) answer(status int, body string) exchange {
	return func(req *http.Request) (*http.Response, error) {
		if err := f.take(req); err != nil {
			return nil, err
		}
		return f.response(req, status, strings.NewReader(body)), nil
	}
}

// early answers without looking at the body.
func (f *fake) early(status int, body string) exchange {
	return func(req *http.Request) (*http.Response, error) {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return f.response(req, status, strings.NewReader(body)), nil
	}
}

func (f *fake) response(req *http.Request, status int, body io.Reader) *http.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := &respBody{Reader: body, f: f, n: len(f.bodies) + 1}
	f.bodies = append(f.bodies, b)
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: b, ContentLength: -1, Request: req,
	}
}

// refuse is a dial error: the body is closed and was not read.
func (f *fake) refuse(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// reset takes the whole request and breaks the connection.
func (f *fake) reset(req *http.Request) (*http.Response, error) {
	if err := f.take(req); err != nil {
		return nil, err
	}
	return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}

// hang takes the request and never answers.
func (f *fake) hang(req *http.Request) (*http.Response, error) {
	if err := f.take(req); err != nil {
		return nil, err
	}
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// respBody is a response body that knows whether it was closed.
type respBody struct {
	io.Reader
	f      *fake
	n      int
	closed bool
	ended  bool
}

func (b *respBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	if b.closed {
		return 0, errors.New("http: read on closed response body")
	}
	if err == io.EOF && !b.ended {
		b.ended = true
		b.f.log = append(b.f.log, fmt.Sprintf("end %d", b.n))
	}
	return n, err
}

func (b *respBody) Close() error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	if !b.closed {
		b.closed = true
		b.f.log = append(b.f.log, fmt.Sprintf("close %d", b.n))
	}
	return nil
}

// failing is a reader that gives some bytes, then an error.
func failing(data string, err error) io.Reader {
	return io.MultiReader(strings.NewReader(data), errReader{err})
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// plain is a Pool that only balances, in the order a, b, c: what a test wants
// more it sets.
func plain() balancer.Config {
	return balancer.Config{
		Policy:  balancer.RoundRobin{First: true},
		Seed:    7,
		Breaker: breaker.Config{Off: true},
		Outlier: outlier.Config{Off: true},
		Budget:  retrybudget.Config{Off: true},
	}
}

func newTransport(t testing.TB, cfg balancerhttp.Config, urls ...string) *balancerhttp.Transport {
	t.Helper()
	rt, err := balancerhttp.NewTransport(cfg, urls...)
	require.NoError(t, err)
	return rt
}

// abc is a Transport over three backends.
func abc(t testing.TB, f *fake, change ...func(*balancerhttp.Config)) *balancerhttp.Transport {
	t.Helper()
	cfg := balancerhttp.Config{Pool: plain(), Base: f}
	for _, c := range change {
		c(&cfg)
	}
	return newTransport(t, cfg, "http://a", "http://b", "http://c")
}

func request(t testing.TB, method string, body io.Reader) *http.Request {
	t.Helper()
	return requestIn(t, context.Background(), method, body)
}

func requestIn(t testing.TB, ctx context.Context, method string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://svc/x", body)
	require.NoError(t, err)
	return req
}

// onlyReader hides everything but Read, so that NewRequest can make no GetBody.
type onlyReader struct{ io.Reader }

// reqBody is a request body that counts its closings.
type reqBody struct {
	io.Reader
	mu     sync.Mutex
	closed int
}

func (b *reqBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed++
	return nil
}

func (b *reqBody) closings() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

func readAll(t testing.TB, resp *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(data)
}

func inflight(rt *balancerhttp.Transport) int { return int(rt.Pool().Snapshot().Totals.Inflight) }

func status(t testing.TB, rt *balancerhttp.Transport, id string) balancer.Status {
	t.Helper()
	for _, u := range rt.Pool().Snapshot().Upstreams {
		if u.ID == id {
			return u
		}
	}
	t.Fatalf("no upstream %q", id)
	return balancer.Status{}
}
