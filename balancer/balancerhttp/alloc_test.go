//go:build !race

package balancerhttp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
)

// A RoundTrip adds at most six allocations to its base: one for the attempt's
// request, URL and bodies together, up to two for its header, and three where
// the end of a context has to be watched.
func TestAllocations(t *testing.T) {
	for _, withBody := range []bool{false, true} {
		base := stub{withBody}
		rt := newTransport(t, balancerhttp.Config{Pool: balancer.Config{Seed: 7}, Base: base}, "http://a", "http://b", "http://c")
		direct, through := trips(t, base), trips(t, rt)
		for name, most := range map[string]float64{"get": 2, "get_headers": 3, "get_cancellable": 5, "get_everything": 6, "put_1KiB": 2} {
			added := testing.AllocsPerRun(200, through[name]) - testing.AllocsPerRun(200, direct[name])
			require.LessOrEqual(t, added, most, name)
		}
	}
}
