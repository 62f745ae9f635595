package balancerhttp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
)

// stub answers at once. It allocates what a response needs, and no more.
type stub struct{ body bool }

func (s stub) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	resp := &http.Response{StatusCode: 200, Body: http.NoBody, Request: req, ProtoMajor: 1}
	if s.body {
		resp.Body = io.NopCloser(strings.NewReader("hello"))
	}
	return resp, nil
}

var benchHeader = http.Header{"Accept": {"*/*"}, "User-Agent": {"bench"}, "X-Request-Id": {"1"}}

// trips are the requests whose cost is looked at: each is made and sent once
// per call.
func trips(tb testing.TB, rt http.RoundTripper) map[string]func() {
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	send := func(ctx context.Context, method string, body io.Reader, header http.Header) {
		req, err := http.NewRequestWithContext(ctx, method, "http://svc/orders/42?full=1", body)
		if err != nil {
			panic(err)
		}
		if header != nil {
			req.Header = header
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	kib := strings.Repeat("x", 1024)
	return map[string]func(){
		"get":             func() { send(context.Background(), "GET", nil, nil) },
		"get_headers":     func() { send(context.Background(), "GET", nil, benchHeader) },
		"get_cancellable": func() { send(ctx, "GET", nil, nil) },
		"get_everything":  func() { send(ctx, "GET", nil, benchHeader) },
		"put_1KiB":        func() { send(context.Background(), "PUT", strings.NewReader(kib), nil) },
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	b.Run("now", func(b *testing.B) {
		for b.Loop() {
			_ = time.Now()
		}
	})
	b.Run("mutex", func(b *testing.B) {
		var mu sync.Mutex
		n := 0
		for b.Loop() {
			mu.Lock()
			n++
			mu.Unlock()
		}
	})
	for _, withBody := range []bool{false, true} {
		kind := map[bool]string{false: "empty", true: "body"}[withBody]
		base := stub{withBody}
		rt, err := balancerhttp.NewTransport(balancerhttp.Config{Pool: balancer.Config{Seed: 7}, Base: base}, "http://a", "http://b", "http://c")
		require.NoError(b, err)
		direct, through := trips(b, base), trips(b, rt)
		for _, name := range []string{"get", "get_headers", "get_cancellable", "get_everything", "put_1KiB"} {
			for how, send := range map[string]func(){"direct": direct[name], "transport": through[name]} {
				b.Run(kind+"/"+name+"/"+how, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						send()
					}
				})
			}
		}
	}
}
