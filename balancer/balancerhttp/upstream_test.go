package balancerhttp_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
)

// sentTo is the URL that a request for reqURL is sent to under base.
func sentTo(t testing.TB, base string, reqURL *url.URL) *url.URL {
	t.Helper()
	var got *url.URL
	rt := newTransport(t, balancerhttp.Config{Pool: plain(), Base: roundTripper(func(req *http.Request) (*http.Response, error) {
		got = req.URL
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})}, base)
	_, err := rt.RoundTrip(&http.Request{Method: "GET", URL: reqURL, Header: http.Header{}})
	require.NoError(t, err)
	return got
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestJoin(t *testing.T) {
	for _, c := range []struct{ base, req, want string }{
		{"http://a", "http://svc", "http://a"},
		{"http://a", "http://svc/", "http://a/"},
		{"http://a/", "http://svc", "http://a"},
		{"http://a/", "http://svc/x", "http://a/x"},
		{"http://a:81", "https://svc:80/x?q=1", "http://a:81/x?q=1"},
		{"https://a/api", "http://svc", "https://a/api"},
		{"http://a/api", "http://svc/", "http://a/api/"},
		{"http://a/api", "http://svc/x/", "http://a/api/x/"},
		{"http://a/api/", "http://svc", "http://a/api/"},
		{"http://a/api/", "http://svc/x", "http://a/api/x"},
		{"http://a/api/", "http://svc//x", "http://a/api//x"},
		{"http://a/api", "http://svc//x", "http://a/api//x"},
		{"http://a", "http://svc//x", "http://a//x"},
		{"http://a", "http://svc/a%2Fb?q=1", "http://a/a%2Fb?q=1"},
		{"http://a/v%2F1", "http://svc/x", "http://a/v%2F1/x"},
		{"http://a/v%2F", "http://svc/x", "http://a/v%2F/x"},
		{"http://a/api", "http://svc/%2Fx", "http://a/api/%2Fx"},
		{"http://a/api", "http://svc/%41%2f", "http://a/api/%41%2f"},
		{"http://a/%C3%A4", "http://svc/%c3%b6", "http://a/%C3%A4/%c3%b6"},
		{"http://a/api", "http://svc/x?", "http://a/api/x?"},
		{"http://a/api?k=1", "http://svc/x", "http://a/api/x?k=1"},
		{"http://a/api?k=1", "http://svc/x?q=2&q=%20", "http://a/api/x?k=1&q=2&q=%20"},
		{"http://a/api?k=1", "http://svc/x?", "http://a/api/x?k=1"},
		{"http://a", "http://svc/x#part", "http://a/x"},
		{"http://a", "http://me:secret@svc/x", "http://a/x"},
		{"http://[::1]:80/api", "http://svc/x;v=1", "http://[::1]:80/api/x;v=1"},
		{"http://a/api", "http://svc/../x", "http://a/api/../x"},
	} {
		u, err := url.Parse(c.req)
		require.NoError(t, err)
		require.Equal(t, c.want, sentTo(t, c.base, u).String(), "%s + %s", c.base, c.req)
	}
	// What Parse would not make.
	require.Equal(t, "*", sentTo(t, "http://a/api", &url.URL{Path: "*"}).RequestURI())
	require.Equal(t, "/x", sentTo(t, "http://a", &url.URL{Path: "x"}).RequestURI())
	require.Equal(t, "/api/x", sentTo(t, "http://a/api", &url.URL{Path: "x"}).RequestURI())
	require.Equal(t, "/api/", sentTo(t, "http://a/api", &url.URL{Path: "/"}).RequestURI())
	e := balancerhttp.Endpoint{URL: &url.URL{Scheme: "http", Host: "a", Path: "api"}}
	_, err := balancerhttp.NewUpstream(e)
	require.NoError(t, err)
}
