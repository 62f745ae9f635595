package ewma_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/ewma"
)

// reader takes numbers from bytes, and zeros when there are no more.
type reader struct{ b []byte }

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// number is small, or scaled, or any that fits.
func (r *reader) number() int64 {
	switch size := r.byte(); {
	case size < 128:
		return int64(size) - 4
	case size < 250:
		return int64(size-127) << (r.byte() % 56)
	}
	var raw [8]byte
	r.b = r.b[copy(raw[:], r.b):]
	return int64(binary.LittleEndian.Uint64(raw[:]))
}

// config is always valid.
func (r *reader) config() ewma.Config {
	unit := time.Duration(max(1, r.number()))
	var cfg ewma.Config
	switch r.byte() % 4 {
	case 1:
		cfg.Tau = unit
	case 2:
		cfg.HalfLife = unit
	case 3:
		cfg.AlphaMilli = 1 + int(uint16(unit)%1000)
	}
	switch r.byte() % 4 {
	case 1:
		cfg.IdleTau = unit
	case 2:
		cfg.IdleHalfLife = unit
	case 3:
		cfg.IdleTau = -unit
	}
	flags := r.byte()
	cfg.Peak = flags&1 != 0
	cfg.Warmup = int(flags >> 1 & 7)
	cfg.Floor = max(0, r.number())
	return cfg
}

// The average does what the sum over its whole history says, whatever the bytes
// are. Steps are kept small enough for the history's times to fit.
func FuzzCoreOps(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{14, 1, 0, 0, 4, 0, 14, 104, 0, 14, 204, 1, 14, 3, 0})
	f.Add([]byte{14, 2, 2, 7, 9, 0, 14, 104, 0, 255, 255, 255, 255, 255, 255, 255, 127, 2, 0, 9, 10, 3, 250, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &reader{b: b}
		x := newSubject(r.config())
		for n := 0; len(r.b) > 0 && n < 100; n++ {
			switch op := r.byte() % 4; op {
			case 0, 1:
				step := r.number() >> 8
				x.observe(step, r.number())
			case 2:
				x.check(t, r.number()>>8)
			case 3:
				state := x.core.AppendState(nil, x.now)
				if _, err := x.core.RestoreState(state, x.now); err != nil {
					t.Fatal(err)
				}
			}
			x.check(t, 0)
		}
	})
}

// The same as TestCoreModel, under the fuzzer's guidance.
func FuzzCoreModel(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(propCore))
}

// No bytes make RestoreState panic, and what it accepts it can write again, to
// the same effect.
func FuzzRestoreState(f *testing.F) {
	f.Add([]byte{1, 0}, int64(0), uint8(0))
	f.Add([]byte{1, 2, 4, 7, 0x80, 0x80, 0x80, 0x80, 0x08}, int64(100), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, now int64, warmup uint8) {
		cfg := ewma.Config{Warmup: int(warmup)}
		c := ewma.NewCore(cfg)
		if _, err := c.RestoreState(b, now); err != nil {
			return
		}
		state := c.AppendState(nil, now)
		again := ewma.NewCore(cfg)
		if _, err := again.RestoreState(state, now); err != nil {
			t.Fatalf("%x became %x: %v", b, state, err)
		}
		if !bytes.Equal(state, again.AppendState(nil, now)) {
			t.Fatalf("%x does not come back", state)
		}
		c.Observe(now, 7)
		c.Value(now)
	})
}
