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

// Waiting returns how many changes the queue of c has room for.
func Waiting(c *Core) int { return cap(c.queue.list) }
