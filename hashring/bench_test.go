package hashring_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/hashring"
)

// sink keeps results alive.
var sink int

// BenchmarkYardstick gives the two figures that the others are compared with.
func BenchmarkYardstick(b *testing.B) {
	b.Run("time.Now", func(b *testing.B) {
		for range b.N {
			sink += int(time.Now().UnixNano())
		}
	})
	b.Run("Mutex", func(b *testing.B) {
		var mu sync.Mutex
		for range b.N {
			mu.Lock()
			sink++
			mu.Unlock()
		}
	})
}

func BenchmarkKey(b *testing.B) {
	const s = "user-0123456789abcde" // 20 bytes
	raw := []byte(s)
	for name, f := range map[string]func() uint64{
		"Key":       func() uint64 { return hashring.Key(s) },
		"KeyBytes":  func() uint64 { return hashring.KeyBytes(raw) },
		"SeededKey": func() uint64 { return hashring.SeededKey(1, s) },
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				sink += int(f())
			}
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		for _, table := range tables(b, numbered(n)) {
			if _, slow := table.(*hashring.Rendezvous); slow && n > 1000 {
				continue
			}
			b.Run(fmt.Sprintf("%T/%d", table, n)[len("*hashring."):], func(b *testing.B) {
				key := uint64(1)
				for range b.N {
					key = key*6364136223846793005 + 1442695040888963407
					sink += table.Lookup(key)
				}
			})
		}
	}
	keys := make([]string, 4096)
	for i := range keys {
		keys[i] = fmt.Sprintf("user-%015d", i)
	}
	for _, table := range tables(b, numbered(1000))[:2] {
		b.Run(fmt.Sprintf("%T/string", table)[len("*hashring."):], func(b *testing.B) {
			for i := range b.N {
				sink += table.Lookup(hashring.Key(keys[i%len(keys)]))
			}
		})
	}
	b.Run("Jump/1000", func(b *testing.B) {
		for i := range b.N {
			sink += hashring.Jump(uint64(i)*0x9e3779b97f4a7c15, 1000)
		}
	})
}

// BenchmarkWalk finds the first usable owner with half of 1000 members down.
func BenchmarkWalk(b *testing.B) {
	down := make([]bool, 1000)
	for i := range down {
		down[i] = hashring.KeyUint64(uint64(i))&1 == 0
	}
	for _, table := range tables(b, numbered(1000))[:2] {
		b.Run(fmt.Sprintf("%T", table)[len("*hashring."):], func(b *testing.B) {
			key := uint64(1)
			for range b.N {
				key = key*6364136223846793005 + 1442695040888963407
				w := table.Walk(key)
				for m, ok := w.Next(); ok; m, ok = w.Next() {
					if !down[m] {
						sink += m
						break
					}
				}
			}
		})
	}
}

func BenchmarkBounded(b *testing.B) {
	table := tables(b, numbered(1000))[0]
	bounded, err := hashring.NewBounded(hashring.BoundedConfig{}, table)
	if err != nil {
		b.Fatal(err)
	}
	loads, total, key := make([]int, 1000), 0, uint64(1)
	b.ResetTimer()
	for range b.N {
		key = key*6364136223846793005 + 1442695040888963407
		w := bounded.Walk(key)
		for m, ok := w.Next(); ok; m, ok = w.Next() {
			if bounded.Fits(m, loads[m], total, 0) {
				loads[m]++
				total++
				break
			}
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		ms := numbered(n)
		b.Run("Ring/"+strconv.Itoa(n), func(b *testing.B) {
			for range b.N {
				_, _ = hashring.NewRing(hashring.RingConfig{}, ms)
			}
		})
	}
	ms := numbered(1000)
	b.Run("Maglev/1000", func(b *testing.B) {
		for range b.N {
			_, _ = hashring.NewMaglev(hashring.MaglevConfig{}, ms)
		}
	})
}
