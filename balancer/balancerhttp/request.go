package balancerhttp

import (
	"context"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// requestKey is the context key of WithRequest.
type requestKey struct{}

// WithRequest says what the Pool shall know of the request that is sent under
// the returned context: its affinity Key, its number, its Deadline on the
// Pool's clock, and where to put its Result. Fields that are zero are as if it
// were not used.
//
//	var res balancer.Result
//	ctx = balancerhttp.WithRequest(ctx, balancer.Request{Result: &res})
//	req, err := http.NewRequestWithContext(ctx, "GET", "http://orders/42", nil)
//	resp, err := client.Do(req)
//	// res.Attempts says where it was sent and what came of it.
//
// The Result is complete when RoundTrip returns, and describes the latest
// RoundTrip if the client has followed redirects: a context must not be used
// for two requests at once then. An attempt's Outcome is as of its headers.
func WithRequest(ctx context.Context, r balancer.Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// requestOf is what WithRequest has said.
func requestOf(ctx context.Context) balancer.Request {
	r, _ := ctx.Value(requestKey{}).(balancer.Request)
	return r
}
