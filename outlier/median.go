package outlier

// median keeps the lower median of the scores of the hosts put into it: a heap
// of the lower half with the greatest on top, and one of the upper half with the
// least on top, the lower as large as the upper or larger by one. Every change
// is O(log n). Which of two equal scores lies where depends on history, their
// median does not.
//
// Host.med is 0 for a host outside, i+1 for place i of the lower half, -(i+1)
// for place i of the upper.
type median struct {
	low, high []*Host
}

// value returns the median of a non-empty set.
func (m *median) value() int64 { return m.low[0].score }

// reset empties m; hosts are all that may be in it.
func (m *median) reset(hosts []*Host) {
	for _, h := range hosts {
		h.med = 0
	}
	clear(m.low)
	clear(m.high)
	m.low, m.high = m.low[:0], m.high[:0]
}

// insert adds h.
func (m *median) insert(h *Host) {
	// Against the top of the lower half alone: a score between the tops is right
	// in either half.
	if len(m.low) > 0 && h.score > m.low[0].score {
		m.push(&m.high, -1, h)
	} else {
		m.push(&m.low, 1, h)
	}
	m.balance()
}

// remove takes h out; its score is still the one it was inserted with.
func (m *median) remove(h *Host) {
	if h.med > 0 {
		m.cut(&m.low, 1, int(h.med)-1)
	} else {
		m.cut(&m.high, -1, int(-h.med)-1)
	}
	m.balance()
}

// balance restores the sizes of the halves.
func (m *median) balance() {
	if len(m.low) < len(m.high) {
		h := m.high[0]
		m.cut(&m.high, -1, 0)
		m.push(&m.low, 1, h)
	} else if len(m.low) > len(m.high)+1 {
		h := m.low[0]
		m.cut(&m.low, 1, 0)
		m.push(&m.high, -1, h)
	}
}

// push adds h to a half. sign is 1 for the lower half, -1 for the upper: the
// host with the greatest sign x score is on top.
func (m *median) push(half *[]*Host, sign int64, h *Host) {
	*half = append(*half, h)
	i := len(*half) - 1
	h.med = int32(sign) * int32(i+1)
	siftUp(*half, sign, i)
}

// cut removes place i of a half.
func (m *median) cut(half *[]*Host, sign int64, i int) {
	s := *half
	last := len(s) - 1
	s[i].med = 0
	if i != last {
		s[i] = s[last]
		s[i].med = int32(sign) * int32(i+1)
	}
	s[last] = nil
	*half = s[:last]
	if i != last {
		siftDown(*half, sign, siftUp(*half, sign, i))
	}
}

// siftUp moves place i towards the top and returns where it ends.
func siftUp(s []*Host, sign int64, i int) int {
	for i > 0 {
		p := (i - 1) / 2
		if sign*s[p].score >= sign*s[i].score {
			break
		}
		swapHosts(s, i, p)
		i = p
	}
	return i
}

// siftDown moves place i away from the top.
func siftDown(s []*Host, sign int64, i int) {
	for {
		c := 2*i + 1
		if c >= len(s) {
			return
		}
		if c+1 < len(s) && sign*s[c+1].score > sign*s[c].score {
			c++
		}
		if sign*s[i].score >= sign*s[c].score {
			return
		}
		swapHosts(s, i, c)
		i = c
	}
}

// swapHosts exchanges two places of a half and the hosts' notes of them.
func swapHosts(s []*Host, i, j int) {
	s[i].med, s[j].med = s[j].med, s[i].med
	s[i], s[j] = s[j], s[i]
}
