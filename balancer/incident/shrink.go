package incident

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// ErrShrink is the error of a Shrink that has nothing to preserve.
var ErrShrink = errors.New("incident: keep is not true of the whole file")

// Shrink makes a small incident of a large one. It leaves out as much as it can,
// such that keep is true of what is left: a recording of a bad hour becomes the
// five requests that matter (delta debugging: Zeller and Hildebrandt, "Simplifying
// and Isolating Failure-Inducing Input", 2002). It leaves out requests, other
// inputs, upstreams in an update and, of a file without a state, upstreams at the
// start.
//
// keep is called with candidates: the inputs that are left and the events that
// come of them. It must be a function of the file, must not change it and must not
// hold on to it. The result is a candidate of which keep is true and no longer is
// when any one more of these is left out. It verifies under cfg.
//
// A request goes as a whole. Without others before it, it may go elsewhere; its
// outcomes stay what they were. Inputs that have lost their object, such as the
// outcome of a retry that is no longer made, are dropped.
//
// cfg is the configuration, as for Replay. The error is ErrShrink, or says that
// the file does not replay, or is that of ctx, which is asked before each
// candidate; with it comes the smallest file so far, if there is one.
//
// Of n things that can be left out, of which k are not, it tries about 2k log n
// candidates and at the end 2k more, which find nothing; in the worst case, where
// each thing can go only after another, O(n^2). A candidate costs a replay of what
// it has.
func Shrink(ctx context.Context, f *File, cfg balancer.Config, keep func(*File) bool) (*File, error) {
	if _, err := f.Bytes(); err != nil {
		return nil, err
	}
	s := shrinker{ctx: ctx, f: f, cfg: cfg, keep: keep}
	left := s.split()
	best, err := s.replay(left, true)
	if err != nil {
		return nil, err
	}
	if !keep(best) {
		return nil, ErrShrink
	}
	s.best = best
	// What goes first may be what has held another thing back.
	for size := -1; size != left.size() && err == nil; {
		size = left.size()
		left, err = s.round(left)
	}
	s.best.Lines = slices.Clone(s.best.Lines) // of the whole file's capacity
	return s.best, err
}

// shrinker is a Shrink under way.
type shrinker struct {
	ctx   context.Context
	f     *File
	cfg   balancer.Config
	keep  func(*File) bool
	units [][]int // the lines of each request, and of each other input
	best  *File
	spare *File // whose lines may be overwritten
	lines []int
}

// choice is what is left in a candidate.
type choice struct {
	units    []int // in the order of their first lines
	members  []balancer.Member
	mentions []mention // in order
}

// mention is an upstream in an update.
type mention struct{ line, member int }

func (c choice) size() int { return len(c.units) + len(c.members) + len(c.mentions) }

// split gives each request and each other input a unit, and returns all there is.
func (s *shrinker) split() choice {
	all := choice{members: s.f.Header.Members}
	open := map[uint64]int{}
	for i := range s.f.Lines {
		l := &s.f.Lines[i]
		if !l.Kind.In() {
			continue
		}
		u := len(s.units)
		switch l.Kind {
		case InUpdate:
			for m := range l.Members {
				all.mentions = append(all.mentions, mention{i, m})
			}
		case InHealth, InTime:
		case InAcquire, InRequest:
			open[l.Request] = u
		default:
			// A request that began before the file begins with its first line.
			if known, ok := open[l.Request]; ok {
				u = known
			} else {
				open[l.Request] = u
			}
		}
		if u == len(s.units) {
			s.units, all.units = append(s.units, nil), append(all.units, u)
		}
		s.units[u] = append(s.units[u], i)
	}
	return all
}

// round leaves out what it can of each kind once.
func (s *shrinker) round(left choice) (choice, error) {
	var err error
	left.units, err = minimize(left.units, func(units []int) (bool, error) {
		c := left
		c.units = units
		return s.try(c)
	})
	if err != nil {
		return left, err
	}
	lines := s.merge(left.units)
	left.mentions = slices.DeleteFunc(left.mentions, func(m mention) bool {
		_, ok := slices.BinarySearch(lines, m.line)
		return !ok
	})
	left.mentions, err = minimize(left.mentions, func(mentions []mention) (bool, error) {
		c := left
		c.mentions = mentions
		return s.try(c)
	})
	// Who was there at the start is in the state.
	if err == nil && len(s.f.Header.State) == 0 {
		left.members, err = minimize(left.members, func(members []balancer.Member) (bool, error) {
			c := left
			c.members = members
			return s.try(c)
		})
	}
	return left, err
}

// try keeps a candidate if it will do.
func (s *shrinker) try(c choice) (bool, error) {
	if err := s.ctx.Err(); err != nil {
		return false, err
	}
	got, err := s.replay(c, false)
	switch {
	case err != nil:
		return false, nil
	case !s.keep(got):
		s.spare = got
		return false, nil
	}
	s.best, s.spare = got, s.best
	return true, nil
}

// replay makes a candidate: what was chosen, with the events that come of it. An
// input that cannot be fed does nothing and is dropped, unless strict.
func (s *shrinker) replay(c choice, strict bool) (*File, error) {
	out := &File{Header: s.f.Header}
	out.Header.Settings, out.Header.Library = data(s.cfg), Library
	out.Header.Members = slices.Clone(c.members)
	p, err := out.Reader().player(s.cfg)
	if err != nil {
		return nil, err
	}
	if s.spare != nil {
		out.Lines, s.spare = s.spare.Lines[:0], nil
	}
	for _, i := range s.merge(c.units) {
		l := s.f.Lines[i]
		if l.Kind == InUpdate {
			l.Members = mentioned(i, l.Members, c.mentions)
		}
		n := len(out.Lines)
		out.Lines, err = p.feed(&l, out.Lines)
		if err != nil && (strict || p.trans.err != nil) {
			return nil, at(i+2, &l, err) // the header is line 1
		}
		for j := n; j < len(out.Lines); j++ {
			if out.Lines[j].Kind.In() {
				out.Lines[j] = l
			}
		}
	}
	return out, nil
}

// merge returns the lines of units, in order, until it is called again.
func (s *shrinker) merge(units []int) []int {
	s.lines = s.lines[:0]
	for _, u := range units {
		s.lines = append(s.lines, s.units[u]...)
	}
	slices.Sort(s.lines)
	return s.lines
}

// mentioned returns those of the members of an update that are among the mentions.
func mentioned(line int, members []balancer.Member, mentions []mention) []balancer.Member {
	from, _ := slices.BinarySearchFunc(mentions, line, func(m mention, line int) int { return cmp.Compare(m.line, line) })
	var out []balancer.Member
	for _, m := range mentions[from:] {
		if m.line != line {
			break
		}
		out = append(out, members[m.member])
	}
	return out
}

// minimize leaves out of all as much as it can, in halves, quarters and so on,
// until no single one can be left out. With an error of good comes what is left
// by then.
func minimize[T any](all []T, good func([]T) (bool, error)) ([]T, error) {
	for size := (len(all) + 1) / 2; size > 0; {
		less := false
		for i := 0; i < len(all); {
			without := slices.Concat(all[:i], all[min(i+size, len(all)):])
			ok, err := good(without)
			switch {
			case err != nil:
				return all, err
			case ok:
				all, less = without, true
			default:
				i += size
			}
		}
		switch {
		case size > 1:
			size /= 2
		case !less:
			return all, nil
		}
	}
	return all, nil
}
