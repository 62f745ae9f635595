package incident

import (
	"errors"
	"slices"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// ErrShrink is the error of a Shrink that has nothing to preserve.
var ErrShrink = errors.New("incident: keep is not true of the whole file")

// Shrink makes a small incident of a large one. It leaves out as many requests,
// other inputs and, of a file without a state, upstreams as it can, such that
// keep is true of what is left: a recording of a bad hour becomes the five
// requests that matter (delta debugging: Zeller and Hildebrandt, "Simplifying and
// Isolating Failure-Inducing Input", 2002). keep is called with candidates: the
// inputs that are left and the events that come of them. It must be a function
// of the file and must not change it. The result is a candidate of which keep is
// true and no longer is when any one more is left out.
//
// A request goes as a whole. Without others before it, it may go elsewhere; its
// outcomes stay what they were. Inputs that have lost their object, such as the
// outcome of a retry that is no longer made, are dropped.
//
// cfg is the configuration, as for Replay. The error is ErrShrink, or says that
// the file does not replay. It replays the file up to O(n^2) times for n
// requests, and about 2k log n times if k of them are left.
func Shrink(f *File, cfg balancer.Config, keep func(*File) bool) (*File, error) {
	if _, err := f.Bytes(); err != nil {
		return nil, err
	}
	s := shrinker{f: f, cfg: cfg, keep: keep}
	s.split()
	all := make([]int, s.units)
	for i := range all {
		all[i] = i
	}
	best, err := s.replay(all, f.Header.Members)
	if err != nil {
		return nil, err
	}
	if !keep(best) {
		return nil, ErrShrink
	}
	s.best = best
	members := f.Header.Members
	units := minimize(all, func(units []int) bool { return s.try(units, members) })
	if len(f.Header.State) == 0 {
		members = minimize(members, func(members []balancer.Member) bool { return s.try(units, members) })
		// With fewer upstreams fewer requests may do.
		minimize(units, func(units []int) bool { return s.try(units, members) })
	}
	return s.best, nil
}

// shrinker is a Shrink under way.
type shrinker struct {
	f     *File
	cfg   balancer.Config
	keep  func(*File) bool
	unit  []int // of each line, the unit it is left out with; -1 of an event
	units int
	best  *File
}

// split gives each request and each other input a unit.
func (s *shrinker) split() {
	open := map[uint64]int{}
	s.unit = make([]int, len(s.f.Lines))
	for i := range s.f.Lines {
		l := &s.f.Lines[i]
		u := s.units
		switch l.Kind {
		case InUpdate, InHealth, InTime:
		case InAcquire, InRequest:
			open[l.Request] = u
		default:
			if !l.Kind.In() {
				s.unit[i] = -1
				continue
			}
			// A request that began before the file begins with its first line.
			if known, ok := open[l.Request]; ok {
				u = known
			} else {
				open[l.Request] = u
			}
		}
		if s.unit[i] = u; u == s.units {
			s.units++
		}
	}
}

// try keeps a candidate if it will do.
func (s *shrinker) try(units []int, members []balancer.Member) bool {
	got, err := s.replay(units, members)
	if err != nil || !s.keep(got) {
		return false
	}
	s.best = got
	return true
}

// replay makes a candidate: the lines of the units, which are in order, among
// the members, with the events that come of them.
func (s *shrinker) replay(units []int, members []balancer.Member) (*File, error) {
	out := &File{Header: s.f.Header}
	out.Header.Settings, out.Header.Library = data(s.cfg), Library
	out.Header.Members = slices.Clone(members)
	p, err := out.Reader().player(s.cfg)
	if err != nil {
		return nil, err
	}
	for i := range s.f.Lines {
		if s.unit[i] < 0 {
			continue
		}
		if _, ok := slices.BinarySearch(units, s.unit[i]); !ok {
			continue
		}
		l := s.f.Lines[i]
		if l.Kind == InUpdate {
			l.Members = slices.DeleteFunc(slices.Clone(l.Members), func(m balancer.Member) bool {
				// Those that were there from the start, and have been left out.
				there := func(n balancer.Member) bool { return n.Name == m.Name }
				return slices.ContainsFunc(s.f.Header.Members, there) && !slices.ContainsFunc(members, there)
			})
		}
		n := len(out.Lines)
		lines, err := p.feed(&l, out.Lines)
		if p.trans.err != nil {
			return nil, p.trans.err
		}
		if err != nil {
			continue // it has lost its object, and done nothing
		}
		for i := n; i < len(lines); i++ {
			if lines[i].Kind.In() {
				lines[i] = l
			}
		}
		out.Lines = lines
	}
	return out, nil
}

// minimize leaves out of all as much as it can, in halves, quarters and so on,
// until no single one can be left out.
func minimize[T any](all []T, good func([]T) bool) []T {
	for size := (len(all) + 1) / 2; size > 0; {
		less := false
		for i := 0; i < len(all); {
			without := slices.Concat(all[:i], all[min(i+size, len(all)):])
			if good(without) {
				all, less = without, true
			} else {
				i += size
			}
		}
		switch {
		case size > 1:
			size /= 2
		case !less:
			return all
		}
	}
	return all
}
