package balancer

import "time"

// Portion is what one upstream got of the traffic of its tier, beside what it
// should get now. A plain value.
type Portion struct {
	ID       string // as the Upstream says
	Priority int    // its tier
	Weight   int    // 0 for no traffic
	Ramp     int    // see Status

	Served   uint64  // attempts with an outcome other than Ignored
	Share    float64 // their share of all those that the tier served, 0 to 1
	Expected float64 // see Status

	Latency  time.Duration // decayed estimate
	Measured bool          // Latency was measured at all
}

// Distribution is how the traffic of each tier is spread over its upstreams, in
// the order of Upstreams. Served counts from the time an upstream joined, so that
// of two Snapshots the difference in Served tells what happened between them. For
// the same reason Share is not what an upstream gets now: a newcomer's is small
// beside those of old ones, and one that has changed its tier brings along what it
// served in the other. O(n).
func (s Snapshot) Distribution() []Portion {
	served := map[int]uint64{}
	for i := range s.Upstreams {
		served[s.Upstreams[i].Priority] += s.Upstreams[i].Served
	}
	out := make([]Portion, len(s.Upstreams))
	for i := range s.Upstreams {
		u := &s.Upstreams[i]
		out[i] = Portion{
			ID: u.ID, Priority: u.Priority, Weight: u.Weight, Ramp: u.Ramp,
			Served: u.Served, Share: ratio(u.Served, served[u.Priority]), Expected: u.Expected,
			Latency: u.Latency, Measured: u.Measured,
		}
	}
	return out
}

// expect fills in Status.Expected, with the reasons that keep the upstreams out.
// A claim is in thousandths of a unit of weight; the sums are whole numbers.
func (s *Snapshot) expect(whys []reasons) {
	claims := make([]uint64, len(whys))
	sums := map[int]uint64{}
	for i, why := range whys {
		u := &s.Upstreams[i]
		switch {
		case s.Fallback && why == outEjected:
			claims[i] = uint64(u.Weight) * fullRamp
		case why == 0 || why == outFull:
			claims[i] = uint64(u.Weight) * uint64(u.Ramp)
		}
		sums[u.Priority] += claims[i]
	}
	for i := range claims {
		u := &s.Upstreams[i]
		u.Expected = ratio(claims[i], sums[u.Priority])
	}
}

// ratio is a/b for show, 0 if there is nothing to divide.
func ratio(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
