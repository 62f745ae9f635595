package balancer_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
	"pgregory.net/rapid"
)

// FuzzPoolOps reads bytes as operations and their arguments, compares with the
// model after each, and at the end releases all that is out.
func FuzzPoolOps(f *testing.F) {
	for i := range uint64(24) {
		var b []byte
		for j := range uint64(600) {
			b = append(b, byte(mixed(i<<20+j)>>40))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 2000 {
			b = b[:2000]
		}
		at := 0
		choose := func(_ string, n int) int {
			if at >= len(b) {
				return 0
			}
			at++
			return int(b[at-1]) % n
		}
		m := newPoolModel(t.Fatalf, choose)
		ops := m.ops()
		names := make([]string, 0, len(ops))
		for name := range ops {
			names = append(names, name)
		}
		slices.Sort(names)
		for at < len(b) {
			ops[names[choose("op", len(names))]]()
			m.check()
		}
		for _, l := range m.leases {
			l.real.Release(balancer.Success)
		}
		s := m.pool.Snapshot()
		if s.Totals.Inflight != 0 {
			t.Fatalf("%d in flight after all were released", s.Totals.Inflight)
		}
		for _, u := range s.Upstreams {
			if u.Inflight != 0 || u.Oldest != 0 {
				t.Fatalf("%+v after all were released", u)
			}
		}
	})
}

// FuzzPoolModel is TestPoolModel with the fuzzer drawing.
func FuzzPoolModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(poolProperty)) }

// FuzzRestorePool: whatever the bytes, the result is an error or a Pool that
// holds together and works.
func FuzzRestorePool(f *testing.F) {
	policies := twinPolicies()
	members := drawTwinMembers(5, 0)
	many := drawTwinMembers(40, 0)
	config := func(kind byte) (balancer.Config, []balancer.Member) {
		cfg := tapeConfig(policies[int(kind)%len(policies)])
		if kind >= 128 {
			return cfg, many
		}
		return cfg, members
	}
	for kind := range 2 * len(policies) {
		k := byte(kind % len(policies))
		if kind >= len(policies) {
			k += 130 // a multiple of the number of policies
		}
		cfg, set := config(k)
		clk := clock.NewManual(time.Unix(0, 0))
		cfg.Clock = clk
		p, err := balancer.NewPool(cfg, set...)
		if err != nil {
			f.Fatal(err)
		}
		for i := range 60 {
			clk.Advance(time.Duration(i) * 20 * time.Microsecond)
			l, err := p.Acquire(balancer.Request{Key: balancer.HashKey(mixed(uint64(i)))})
			if err == nil && i%5 > 0 {
				l.Release(balancer.Outcome(i % 4))
			}
		}
		f.Add(k, p.Save())
	}
	f.Fuzz(func(t *testing.T, kind byte, saved []byte) {
		cfg, set := config(kind)
		cfg.Seed = 0
		clk := clock.NewManual(time.Unix(0, 0))
		cfg.Clock = clk
		p, err := balancer.RestorePool(cfg, saved, set...)
		if err != nil {
			if !errors.Is(err, balancer.ErrState) {
				t.Fatalf("%v", err)
			}
			return
		}
		check := func() {
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
		}
		check()
		before := p.Save()
		q, err := balancer.RestorePool(cfg, before, set...)
		if err != nil {
			t.Fatalf("what a Pool saved does not restore: %v", err)
		}
		if again := q.Save(); string(again) != string(before) {
			t.Fatalf("restored and saved:\n%x\nnot\n%x", again, before)
		}
		for i := range 30 {
			l, err := p.Acquire(balancer.Request{Key: balancer.HashKey(mixed(uint64(i)))})
			if err == nil && i%3 > 0 {
				l.Settle(balancer.Report{Outcome: balancer.Outcome(i % 4)})
			}
			clk.Advance(time.Duration(i*i) * 10 * time.Microsecond)
			p.Poll()
			check()
		}
		for _, l := range p.Leases() {
			if !l.Release(balancer.Success) {
				t.Fatal("a lease that is out cannot be released")
			}
		}
		check()
		if err := p.Update(set[1:]...); err != nil {
			t.Fatal(err)
		}
		check()
		for _, u := range p.Snapshot().Upstreams {
			if u.Inflight != 0 {
				t.Fatalf("%+v after all were released", u)
			}
		}
	})
}
