package outlier

// due is one planned change of a host: the end of its ejection or the next step
// of its ramp.
type due struct {
	at int64
	h  *Host
}

// agenda is a binary heap of planned changes by time. Equal times are in no
// order here: the owner may renumber hosts at any moment, so ties are broken
// when they fall due (see Core.expire). Each host has at most one entry and
// knows where it is, which makes every change O(log n).
type agenda []due

// set plans the change of h for at, in place of the one planned before.
func (a *agenda) set(h *Host, at int64) {
	if h.pos < 0 {
		h.pos = int32(len(*a))
		*a = append(*a, due{at, h})
	} else {
		(*a)[h.pos].at = at
	}
	i := a.up(int(h.pos))
	a.down(i)
}

// drop forgets what is planned for h.
func (a *agenda) drop(h *Host) {
	i := int(h.pos)
	if i < 0 {
		return
	}
	h.pos = -1
	last := len(*a) - 1
	if i != last {
		(*a)[i] = (*a)[last]
		(*a)[i].h.pos = int32(i)
	}
	(*a)[last] = due{}
	*a = (*a)[:last]
	if i != last {
		a.down(a.up(i))
	}
}

// up moves the entry at i towards the root and returns where it ends.
func (a *agenda) up(i int) int {
	s := *a
	for i > 0 {
		p := (i - 1) / 2
		if s[p].at <= s[i].at {
			break
		}
		s.swap(i, p)
		i = p
	}
	return i
}

// down moves the entry at i away from the root.
func (a *agenda) down(i int) {
	s := *a
	for {
		c := 2*i + 1
		if c >= len(s) {
			return
		}
		if c+1 < len(s) && s[c+1].at < s[c].at {
			c++
		}
		if s[i].at <= s[c].at {
			return
		}
		s.swap(i, c)
		i = c
	}
}

// swap exchanges two entries and tells their hosts.
func (a agenda) swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].h.pos, a[j].h.pos = int32(i), int32(j)
}
