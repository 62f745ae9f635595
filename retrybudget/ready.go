package retrybudget

import "time"

// Finagle returns the budget of Finagle, which Tower and linkerd share: every
// request deposits a fifth of a token, ten retries per second need no deposit,
// and deposits and withdrawals expire after ten seconds in ten slots.
//
// The original has no cap but the expiry; here it is a million tokens, which
// is out of reach below half a million requests per second. Requests pay
// whatever their result, so a total outage is amplified by a fifth.
func Finagle() Config {
	return Config{
		Capacity:   1e6,
		PerRequest: 0.2,
		PerSuccess: -1,
		PerSecond:  10,
		TTL:        10 * time.Second,
	}
}

// GRPC returns the retry throttling of gRPC (gRFC A6) with maxTokens 10 and
// tokenRatio 0.1: a failure takes a token, a success returns a tenth, and a
// retry is granted while more than half of the tokens are there. Retries
// themselves cost nothing.
func GRPC() Config {
	return Config{
		Capacity:   10,
		Cost:       -1,
		Threshold:  5,
		PerSuccess: 0.1,
		PerFailure: 1,
		PerSecond:  -1,
	}
}

// AWS returns the standard retry quota of the AWS SDKs: 500 tokens, 5 per
// retry, all of which return if the retry succeeds (1 as for any success and 4
// more, see [Core.EndRetry]); a request that succeeds at once returns 1. The
// SDKs take 10 for a retry after a timeout: where that is the usual failure,
// set Cost to 10 and RetrySuccess to 9.
func AWS() Config {
	return Config{
		Capacity:     500,
		Cost:         5,
		PerSuccess:   1,
		RetrySuccess: 4,
		PerSecond:    -1,
	}
}

// Envoy returns the retry budget of Envoy: retries in flight may be a fifth of
// the requests in flight, and three in any case. It needs [Core.End] and
// [Core.EndRetry].
func Envoy() Config {
	return Config{
		Capacity: -1,
		Share:    Share{Of: Active, Rate: 0.2, Min: 3},
	}
}

// Ferron returns the retry budget of the Ferron proxy: ten tokens, one per
// retry, one back per success and two per second, and retries at most a tenth
// of all requests ever after a burst of ten. (Ferron itself leaves the budget
// off unless it is asked for.)
func Ferron() Config {
	return Config{
		Capacity:   10,
		PerSuccess: 1,
		PerSecond:  2,
		Share:      Share{Of: Requests, Rate: 0.1, Burst: 10, Window: -1},
	}
}

// FerronStrict returns the variant of [Ferron] that later versions use:
// retries at most a tenth of all successes ever, with no burst, and no such
// cap until the first success.
func FerronStrict() Config {
	return Config{
		Capacity:   10,
		PerSuccess: 1,
		PerSecond:  2,
		Share:      Share{Of: Successes, Rate: 0.1, Window: -1},
	}
}

// Echofront returns the retry budget of the Echofront engine: ten tokens, one
// per retry, and a fifth back per request; time provides none.
func Echofront() Config {
	return Config{
		Capacity:   10,
		PerRequest: 0.2,
		PerSuccess: -1,
		PerSecond:  -1,
	}
}
