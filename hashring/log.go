package hashring

import "math/bits"

// logSteps is the number of table intervals per octave.
const logSteps = 256

// logTable holds ln(1 + a/256) for a = 0..256 in units of 2^-64.
type logTable [logSteps + 1]uint64

// newLogTable sums ln((k+1)/k) = 2*atanh(1/(2k+1)) for k = 256..511, in integer
// arithmetic: the series z + z^3/3 + z^5/5 + z^7/7 with z < 2^-9 is exact to
// the last bits, and no float or library function takes part.
func newLogTable() *logTable {
	var t logTable
	for a := range uint64(logSteps) {
		odd := 2*(logSteps+a) + 1
		z, _ := bits.Div64(1, 0, odd) // 2^64 / odd
		sq, _ := bits.Mul64(z, z)
		sum, power := z, z
		for d := uint64(3); d <= 7; d += 2 {
			power, _ = bits.Mul64(power, sq)
			sum += power / d
		}
		t[a+1] = t[a] + 2*sum
	}
	return &t
}

// cost returns -ln((h+1) / 2^64) in units of 2^-58, accurate to about 2^-50: an
// exponentially distributed number if h is uniform. It never increases with h,
// which the order of [Rendezvous] relies on.
func (t *logTable) cost(h uint64) uint64 {
	if h == 1<<64-1 {
		return 0
	}
	h++
	zeros := bits.LeadingZeros64(h)
	h <<= zeros
	// h/2^63 = (1 + a/256) * (1 + e), with e < 2^-8 in units of 2^-64.
	a := h>>55 - logSteps
	recip, _ := bits.Div64(1, 0, logSteps+a)
	e, _ := bits.Mul64(h<<9, recip)
	// Six bits less than the unit of the sum below: a step of e then outweighs
	// every rounding in it, so the result is monotone within an interval.
	e &^= 63
	e2, _ := bits.Mul64(e, e)
	e3, _ := bits.Mul64(e2, e)
	e4, _ := bits.Mul64(e3, e)
	e5, _ := bits.Mul64(e4, e)
	ln := t[a] + e - e2/2 + e3/3 - e4/4 + e5/5
	// And this makes it monotone across intervals.
	ln = min(ln, t[a+1])
	// -ln(h / 2^(64+zeros)), where h/2^63 = exp(ln).
	return uint64(zeros)*(t[logSteps]>>6) + (t[logSteps]-ln)>>6
}
