package balancer

// Exclusion says why an upstream cannot take a request's next attempt.
type Exclusion struct {
	Upstream string   // id
	Why      []string // as in Status.Why, and "already_tried"
}

// Exclusions lists the upstreams that this request's next attempt cannot go to
// now, in the order of the latest Update, with all the reasons of each. It is a
// read: it changes nothing that happens later. It does not know of a fallback
// that ignores ejections. O(n).
func (t *Try[U]) Exclusions() []Exclusion {
	e := &t.pool.e
	now := e.read()
	e.mu.Lock()
	defer e.unlock()
	now = max(now, e.now)
	var out []Exclusion
	for _, h := range e.hosts {
		st, _ := e.status(h, now)
		for _, tried := range t.course.triedHosts() {
			if tried == h {
				st.Why = append(st.Why, "already_tried")
			}
		}
		if len(st.Why) > 0 {
			out = append(out, Exclusion{Upstream: h.id, Why: st.Why})
		}
	}
	return out
}
