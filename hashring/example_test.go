package hashring_test

import (
	"fmt"

	"github.com/evenkeel-go/evenkeel/hashring"
)

var fleet = []hashring.Member{{ID: "amber", Weight: 1}, {ID: "birch", Weight: 1}, {ID: "cedar", Weight: 2}}

// A key keeps its member until the member is out, and comes back with it.
func Example() {
	ring, err := hashring.NewRing(hashring.RingConfig{}, fleet)
	if err != nil {
		fmt.Println(err)
		return
	}
	down := map[string]bool{}
	route := func(session string) string {
		owners := ring.Walk(hashring.Key(session))
		for m, ok := owners.Next(); ok; m, ok = owners.Next() {
			if id := ring.ID(m); !down[id] {
				return id
			}
		}
		return "nobody"
	}
	fmt.Println(route("user-7"), route("user-8"))
	down["birch"] = true
	fmt.Println(route("user-7"), route("user-8"))
	down["birch"] = false
	fmt.Println(route("user-7"), route("user-8"))
	// Output:
	// birch amber
	// cedar amber
	// birch amber
}

// The first two owners hold the copies of an object.
func ExampleRing_Owners() {
	ring, _ := hashring.NewRing(hashring.RingConfig{}, fleet)
	for _, m := range ring.Owners(hashring.Key("object-1"), 2) {
		fmt.Println(ring.ID(m))
	}
	// Output:
	// birch
	// amber
}

// Keys that clients choose are hashed under a secret.
func ExampleSeededKey() {
	const secret = 0x5eed
	table, _ := hashring.NewMaglev(hashring.MaglevConfig{Seed: secret}, fleet)
	fmt.Println(table.ID(table.Lookup(hashring.SeededKey(secret, "X-Tenant: 12"))))
	// Output:
	// amber
}

// Shares follow the weights.
func ExampleRendezvous() {
	r, _ := hashring.NewRendezvous(hashring.RendezvousConfig{}, fleet)
	counts := make([]int, r.Len())
	for i := range uint64(10000) {
		counts[r.Lookup(hashring.KeyUint64(i))]++
	}
	for m, n := range counts {
		fmt.Println(r.ID(m), n)
	}
	// Output:
	// amber 2459
	// birch 2579
	// cedar 4962
}

// The growth from 4 to 5 numbered shards moves keys to the new one only.
func ExampleJump() {
	for _, name := range []string{"a", "g", "h", "i", "j", "k", "l"} {
		key := hashring.Key(name)
		fmt.Print(hashring.Jump(key, 4), "->", hashring.Jump(key, 5), " ")
	}
	// Output:
	// 1->1 3->4 1->1 1->1 0->0 2->2 2->4
}

// One hot key overflows to others instead of overloading its owner.
func ExampleBounded() {
	ring, _ := hashring.NewRing(hashring.RingConfig{}, fleet)
	bounded, err := hashring.NewBounded(hashring.BoundedConfig{Factor: 150}, ring)
	if err != nil {
		fmt.Println(err)
		return
	}
	loads := make([]int, ring.Len())
	for range 20 {
		loads[bounded.Pick(hashring.Key("hot"), loads)]++
	}
	fmt.Println("owner:", ring.ID(ring.Lookup(hashring.Key("hot"))))
	fmt.Println("loads:", loads)
	// Output:
	// owner: cedar
	// loads: [0 5 15]
}
