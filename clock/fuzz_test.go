package clock_test

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// ops reads what to do from bytes: the first gives the kind, the next the timer
// and the size of a number, and up to eight the number.
type ops struct{ b []byte }

func (o *ops) byte() byte {
	if len(o.b) == 0 {
		return 0
	}
	v := o.b[0]
	o.b = o.b[1:]
	return v
}

// number is small, or any that fits.
func (o *ops) number() int64 {
	size := o.byte()
	if size < 250 {
		return int64(size%16) - 1
	}
	var raw [8]byte
	o.b = o.b[copy(raw[:], o.b):]
	return int64(binary.LittleEndian.Uint64(raw[:]))
}

func (o *ops) deed() deed {
	kind, timer := int(o.byte()), int(o.byte()%16)
	return deed{kind: kind % deedKinds, timer: timer, d: o.number()}
}

// The Manual does what the model does, whatever the bytes say.
func FuzzManualOps(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 5, 1, 3, 0, 2, 3, 0, 9, 5, 0, 0})
	f.Add([]byte{0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 127, 0, 3, 0, 255, 255, 255, 255, 255, 255, 255, 255, 127, 5, 0, 0})
	f.Add([]byte{0, 0, 3, 2, 6, 0, 1, 3, 0, 4, 0, 0, 8, 0, 3, 0, 15, 6, 0, 250, 0, 0, 0, 0, 0, 0, 0, 128, 3, 0, 12})
	f.Fuzz(func(t *testing.T, b []byte) {
		o := &ops{b: b}
		p := newPair(t, 0)
		for n := 0; len(o.b) > 0 && n < 200; n++ {
			a := o.deed()
			if a.kind == deedArm || len(p.timers) == 0 {
				script := make([]deed, o.byte()%3)
				for i := range script {
					script[i] = o.deed()
					if script[i].kind == deedArm {
						script[i].kind = deedReset
					}
				}
				p.create(a.d, script)
			} else {
				p.do(a)
			}
			p.check()
		}
	})
}

// The same as TestManualModel, under the fuzzer's guidance.
func FuzzManualModel(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(propManual))
}
