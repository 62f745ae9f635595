package outlier

// Draw is the keyed draw, for its golden vectors.
func Draw(seed, stream, n uint64) uint64 { return draw(seed, stream, n) }

// Settings is a Config with every default in place.
func Settings(c Config) any {
	s := c.compile()
	// The compiled form keeps only what the rules read of the nested configs;
	// percentages live in the table by rule.
	s.sr.Enforce, s.fp.Enforce, s.lt.Enforce = 0, 0, 0
	return s
}

// BaselineOf is what the score of h is compared with.
func BaselineOf(c *Core, h *Host) (int64, bool) { return c.baseline(h) }

// SetCount gives h a count that no run of a test reaches.
func SetCount(h *Host, n int32) { h.count = n }

// SetStreak gives h a run of failures that no run of a test reaches.
func SetStreak(h *Host, n uint32) { h.streak = n }

// Waiting returns how many changes the queue of c has room for.
func Waiting(c *Core) int { return cap(c.queue.list) }

// MulDiv is a * b / d, saturated.
func MulDiv(a, b, d int64) int64 { return mulDiv(a, b, d) }

// Total is the 128-bit sum of what is added less what is taken out.
func Total(add, sub []uint64) (hi, lo uint64) {
	var w wide
	for _, v := range add {
		w = w.add(v)
	}
	for _, v := range sub {
		w = w.sub(v)
	}
	return w.hi, w.lo
}

// HashID is the key of a host of a Detector.
func HashID(id string) uint64 { return hashID(id) }
