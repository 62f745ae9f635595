package balancer_test

import (
	"testing"

	"github.com/evenkeel-go/evenkeel/balancer"
	"pgregory.net/rapid"
)

// FuzzPolicyOps reads a life of a Pool from bytes - which policy, how many
// hosts, then one operation a byte - and holds it against the policy's model.
func FuzzPolicyOps(f *testing.F) {
	f.Add([]byte{0, 3, 1, 2, 3, 0x00, 0x01, 0x40, 0x00})
	f.Add([]byte{1, 3, 5, 1, 1, 0x07, 0x07, 0x41, 0x07, 0xc3, 0x07})
	f.Add([]byte{2, 33, 1, 2, 3, 4, 5, 0x3f, 0x41, 0x3f, 0x42, 0x42, 0x3f, 0xd0, 0x3f, 0xc5, 0x3f})
	f.Add([]byte{5, 9, 4, 4, 4, 0x02, 0x80, 0x80, 0xe1, 0x3f, 0xff, 0x01})
	for _, kind := range []byte{11, 12, 13, 15, 19, 20, 22, 24} { // those with ramps
		f.Add([]byte{kind, 4, 3, 1, 1, 2, 1, 0x05, 0xa5, 0x05, 0xbe, 0x0f, 0xbe, 0x0f, 0xbf, 0x0f, 0xa7, 0x0f, 0xbf, 0x0f})
	}
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) < 2 || len(ops) > 200 {
			return
		}
		all := allModelled()
		what := all[int(ops[0])%len(all)]
		n := what.min + int(ops[1])%(what.max-what.min+1)
		ops = ops[2:]
		next := func() (b byte) {
			if len(ops) > 0 {
				b, ops = ops[0], ops[1:]
			}
			return b
		}
		var weights []int
		for i := range n {
			// The weights go round in the first five bytes.
			w := i % 5
			if i < 5 {
				weights = append(weights, int(next()%13))
				continue
			}
			weights = append(weights, weights[w])
		}
		m := newMachine(t.Fatalf, what, 7, weights)
		for len(ops) > 0 {
			op := next()
			arg := int(op & 0x3f)
			switch op >> 6 {
			case 0: // picks, the last of them kept
				for range arg & 15 {
					m.acquire(uint64(arg) << 58)
					m.release(len(m.leases) - 1)
				}
				m.acquire(uint64(arg) << 58)
			case 1:
				m.flip(arg)
			case 2:
				switch {
				case what.ramps == 0 || arg < 32:
					m.release(arg)
				case arg < 48:
					m.settle(arg, balancer.TransportFailure)
				default:
					m.pass(int64(arg-47) / 4)
				}
			case 3:
				kept := append([]*modelHost(nil), m.m.hosts...)
				switch {
				case arg < 16:
					m.reweigh(func(i, old int) int {
						if i%16 == arg {
							return int(op+byte(old)) % 11
						}
						return old
					})
				case arg < 32 && len(kept) > what.min:
					i := arg % len(kept)
					m.update(nil, append(kept[:i], kept[i+1:]...))
				case arg < 48 && len(kept) < what.max:
					m.update([]int{arg % 11}, kept)
				case len(kept) > 1:
					i := 1 + arg%(len(kept)-1)
					m.update(nil, append(kept[i:len(kept):len(kept)], kept[:i]...))
				}
			}
			m.check()
		}
	})
}

// FuzzPolicyModel is TestPolicyModels with the fuzzer in place of the seed.
func FuzzPolicyModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(propPolicies)) }
