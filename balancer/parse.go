package balancer

import "fmt"

// ParsePolicy returns the built-in policy with the given name, with its default
// settings: the Name of a policy, or one of the other names that configuration
// files use for it.
//
//	round_robin           round-robin, rr
//	weighted_round_robin  weighted, wrr
//	least_conn            least-conn, lc
//	random
//	two_random
//	p2c_ewma              peak_ewma
//	hash                  consistent_hash, sticky
//
// Any other name is a *ConfigError. Safe for concurrent use.
func ParsePolicy(name string) (Policy, error) {
	switch name {
	case "round_robin", "round-robin", "rr":
		return RoundRobin{}, nil
	case "weighted_round_robin", "weighted", "wrr":
		return WeightedRoundRobin{}, nil
	case "least_conn", "least-conn", "lc":
		return LeastConn{}, nil
	case "random":
		return Random{}, nil
	case "two_random":
		return TwoRandom{}, nil
	case "p2c_ewma", "peak_ewma":
		return PeakEWMA{}, nil
	case "hash", "consistent_hash", "sticky":
		return Hash{}, nil
	}
	return nil, &ConfigError{
		Field: "policy",
		Value: fmt.Sprintf("%q", name),
		Want:  "round_robin, weighted_round_robin, least_conn, random, two_random, p2c_ewma or hash",
	}
}
