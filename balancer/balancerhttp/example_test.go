package balancerhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
)

// hello starts a server for the examples.
func hello(name string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s from %s", r.URL.Path, name)
	}))
}

// An http.Client over two backends, one of which is down: the caller sees no
// failure.
func Example() {
	one, two := hello("one"), hello("two")
	one.Close() // nobody listens there any more
	defer two.Close()

	transport, err := balancerhttp.NewTransport(balancerhttp.Config{}, one.URL, two.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for range 3 {
		resp, err := client.Get("http://greeter/hello")
		if err != nil {
			fmt.Println(err)
			return
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(string(text))
	}
	// Output:
	// /hello from two
	// /hello from two
	// /hello from two
}

// What was tried for one request, and what the Pool thinks of its members.
func ExampleWithRequest() {
	one, two := hello("one"), hello("two")
	one.Close()
	defer two.Close()

	cfg := balancerhttp.Config{Pool: balancer.Config{Policy: balancer.RoundRobin{First: true}}}
	transport, err := balancerhttp.NewTransport(cfg, one.URL, two.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer transport.CloseIdleConnections()
	var res balancer.Result
	ctx := balancerhttp.WithRequest(context.Background(), balancer.Request{Result: &res})
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://greeter/hello", nil)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	for _, a := range res.Attempts {
		fmt.Println(a.Upstream == one.URL, a.Outcome)
	}
	for _, u := range transport.Pool().Snapshot().Upstreams {
		fmt.Println(u.Served, u.Failures, u.Inflight)
	}
	// Output:
	// true transport_failure
	// false success
	// 1 1 0
	// 1 0 0
}

// A reverse proxy: the Transport chooses the backend, so Rewrite has little to
// do.
func ExampleTransport_reverseProxy() {
	one := hello("one")
	defer one.Close()

	transport, err := balancerhttp.NewTransport(balancerhttp.Config{MaxBuffer: 64 << 10}, one.URL+"/v1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer transport.CloseIdleConnections()
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "pool"})
			r.SetXForwarded()
		},
		Transport: transport,
	})
	defer proxy.Close()

	resp, err := http.Get(proxy.URL + "/hello")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	fmt.Println(string(text))
	// Output: /v1/hello from one
}

// Weights, tiers and limits are given to Update.
func ExampleTransport_Update() {
	transport, err := balancerhttp.NewTransport(balancerhttp.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	big, _ := balancerhttp.ParseEndpoint("http://10.0.0.1:8080")
	small, _ := balancerhttp.ParseEndpoint("http://10.0.0.2:8080")
	spare, _ := balancerhttp.ParseEndpoint("http://10.1.0.1:8080")
	big.Weight, small.MaxInflight, spare.Priority = 3, 100, 1
	if err := transport.Update(big, small, spare); err != nil {
		fmt.Println(err)
		return
	}
	for _, u := range transport.Pool().Snapshot().Upstreams {
		fmt.Println(u.ID, "weight", u.Weight, "tier", u.Priority)
	}
	// Output:
	// http://10.0.0.1:8080 weight 3 tier 0
	// http://10.0.0.2:8080 weight 1 tier 0
	// http://10.1.0.1:8080 weight 1 tier 1
}
