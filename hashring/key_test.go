package hashring_test

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/hashring"
)

// TestMixer pins the mixer and the keyed draw.
func TestMixer(t *testing.T) {
	for x, want := range map[uint64]uint64{
		0:                  0,
		1:                  0x5692161d100b05e5,
		0x9e3779b97f4a7c15: 0xe220a8397b1dcdaf, // the first output of SplitMix64 from 0
		math.MaxUint64:     0xb4d055fcf2cbbd7b,
	} {
		require.Equal(t, want, hashring.Mix(x), "mix(%#x)", x)
	}
	for _, g := range []struct{ seed, stream, n, want uint64 }{
		{0, 0, 0, 0x33fe8bd4f9c57863},
		{7, 1, 42, 0xc862b9ae43767467},
		{1, 2, 3, 0x9952c54fc2eb3288},
		{42, 1, 0, 0x2ac30d73d7a423f8},
		{math.MaxUint64, math.MaxUint64, math.MaxUint64, 0xf8b2085b47e6d3af},
	} {
		require.Equal(t, g.want, hashring.Draw(g.seed, g.stream, g.n), "%+v", g)
	}
}

// TestSipHash holds the hash against the vectors of its authors: key 00..0f,
// message 00, 01, ... of each length.
func TestSipHash(t *testing.T) {
	var key, msg [16]byte
	for i := range key {
		key[i], msg[i] = byte(i), byte(i)
	}
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	for n, want := range map[int]uint64{
		0:  0x726fdb47dd0e0e31,
		1:  0x74f839c593dc67fd,
		7:  0xab0200f58b01d137,
		8:  0x93f5f5799a932462,
		15: 0xa129ca6149be45e5,
	} {
		require.Equal(t, want, hashring.Sip(k0, k1, msg[:n]), "length %d", n)
	}
	require.Equal(t, hashring.SeededKey(3, "abc"), hashring.SeededKeyBytes(3, []byte("abc")))
	require.NotEqual(t, hashring.SeededKey(3, "abc"), hashring.SeededKey(4, "abc"))
	require.NotEqual(t, hashring.SeededKey(3, "abc"), hashring.SeededKey(3, "abc\x00"))
	long := strings.Repeat("x", 300)
	require.Equal(t, hashring.SeededKey(0, long), hashring.SeededKeyBytes(0, []byte(long)))
}

// TestJump holds the integer arithmetic against published values and the
// published floating-point code.
func TestJump(t *testing.T) {
	for _, v := range []struct {
		key     uint64
		buckets int
		want    int
	}{
		{1, 1, 0}, {42, 57, 43}, {0xDEAD10CC, 1, 0}, {0xDEAD10CC, 666, 361}, {256, 1024, 520},
		{7, 0, -1}, {7, -10, -1},
	} {
		require.Equal(t, v.want, hashring.Jump(v.key, v.buckets), "%+v", v)
	}
	seed, _ := seedOf(t, 6)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range opsOf(t, 20000) {
		key, buckets := rnd.Uint64(), 1+rnd.IntN(1<<rnd.IntN(20))
		b, j := int64(-1), int64(0)
		for k := key; j < int64(buckets); {
			b = j
			k = k*2862933555777941757 + 1
			j = int64(float64(b+1) * (float64(int64(1)<<31) / float64((k>>33)+1)))
		}
		require.Equal(t, int(b), hashring.Jump(key, buckets), "key %#x, %d buckets", key, buckets)
		got := hashring.Jump(key, math.MaxInt)
		require.True(t, 0 <= got && got < math.MaxInt)
	}
}

// TestCost holds the fixed-point logarithm against package math and checks that it
// never rises with the hash, which the ranking relies on.
func TestCost(t *testing.T) {
	cost := hashring.Cost()
	require.Zero(t, cost(math.MaxUint64))
	exact := func(h uint64) float64 {
		if h >= 1<<63 {
			return -math.Log1p(-float64(^h) / (1 << 64))
		}
		return -math.Log((float64(h) + 1) / (1 << 64))
	}
	seed, _ := seedOf(t, 7)
	rnd := rand.New(rand.NewPCG(seed, 0))
	near := func(h uint64) {
		got := float64(cost(h)) / (1 << 58)
		require.InDelta(t, exact(h), got, 1e-14*(1+exact(h)), "h = %#x", h)
		for d := uint64(1); d < 1<<20; d = d*3 + 1 {
			if h >= d && cost(h-d) < cost(h) {
				t.Fatalf("cost rises from %#x to %#x", h-d, h)
			}
		}
	}
	near(0)
	for bit := range 64 {
		h := uint64(1) << bit
		near(h - 2)
		near(h - 1)
		near(h)
		near(h + 1)
		near(-h)
		// Each interval of the table has its ends.
		for a := range uint64(256) {
			h := (256 + a) << 55 >> bit
			for d := range min(h, 70) {
				if cost(h-d) < cost(h-d+1) {
					t.Fatalf("cost rises at %#x", h-d)
				}
			}
		}
	}
	for range opsOf(t, 20000) {
		near(rnd.Uint64() >> rnd.IntN(64))
	}
}

// TestQuotas checks the division of slots at its edges.
func TestQuotas(t *testing.T) {
	require.Equal(t, []uint64{4, 3, 3}, hashring.Quotas([]uint64{1, 1, 1}, 10))
	require.Equal(t, []uint64{1, 1, 1}, hashring.Quotas([]uint64{9, 1, 1}, 3))
	require.Equal(t, []uint64{1, 8, 1}, hashring.Quotas([]uint64{1, 1 << 61, 1}, 10))
	require.Equal(t, []uint64{5, 1, 5}, hashring.Quotas([]uint64{1000, 1, 1000}, 11))
	// A largest remainder goes before an earlier member.
	require.Equal(t, []uint64{2, 5}, hashring.Quotas([]uint64{3, 7}, 7))
	seed, _ := seedOf(t, 8)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		weights := make([]uint64, 1+rnd.IntN(20))
		for i := range weights {
			weights[i] = 1 + rnd.Uint64N(1<<rnd.IntN(50))
		}
		n := uint64(len(weights) + rnd.IntN(100))
		q := hashring.Quotas(weights, n)
		sum := uint64(0)
		for i := range q {
			sum += q[i]
			require.Positive(t, q[i])
			for j := range q {
				require.False(t, weights[i] > weights[j] && q[i] < q[j], "%v of %v", q, weights)
			}
		}
		require.Equal(t, n, sum)
		turns := hashring.TurnOrder(q, n)
		for k := range q {
			count := 0
			for _, turn := range turns {
				if int(turn) == k {
					count++
				}
			}
			require.EqualValues(t, q[k], count)
			require.Contains(t, turns[:len(q)], int32(k), "all have one in the first round")
		}
	}
	require.Equal(t, []int32{0, 1, 2, 1, 1, 2, 1}, hashring.TurnOrder([]uint64{1, 4, 2}, 7))
}

func TestShiftRight(t *testing.T) {
	seed, _ := seedOf(t, 9)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		hi, lo := rnd.Uint64()>>rnd.IntN(64), rnd.Uint64()
		if rnd.IntN(2) == 0 {
			hi = 0
		}
		n := uint(rnd.IntN(140))
		want := new(big.Int).Lsh(new(big.Int).SetUint64(hi), 64)
		want.Or(want, new(big.Int).SetUint64(lo)).Rsh(want, n)
		if !want.IsUint64() {
			want.SetUint64(math.MaxUint64)
		}
		require.Equal(t, want.Uint64(), hashring.ShiftRight(hi, lo, n))
	}
}

// TestSeed checks that a seed tears neighbours apart and that tables of
// different seeds place independently.
func TestSeed(t *testing.T) {
	ms := numbered(10)
	plain := ring(t, hashring.RingConfig{}, ms)
	for seed := uint64(1); seed < 4; seed++ {
		seeded := []hashring.Table{
			ring(t, hashring.RingConfig{Seed: seed}, ms),
			maglev(t, hashring.MaglevConfig{Seed: seed}, ms),
			rendezvous(t, hashring.RendezvousConfig{Seed: seed}, ms),
		}
		for _, table := range seeded {
			counts, same := make([]int, 10), 0
			for key := range uint64(10000) {
				counts[table.Lookup(key)]++
				if plain.Lookup(hashring.KeyUint64(key)) == table.Lookup(hashring.KeyUint64(key)) {
					same++
				}
			}
			require.Greater(t, slices.Min(counts), 600, "%T", table)
			require.InDelta(t, 1000, same, 300, "%T", table)
		}
	}
	require.Equal(t, 10000, func() (n int) {
		for key := range uint64(10000) {
			if plain.Lookup(key) == plain.Lookup(0) {
				n++
			}
		}
		return n
	}(), "unseeded, neighbours share a member")
}
