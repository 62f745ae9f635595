//go:build race

package sim_test

// raceOn tells that the race detector makes everything ten times as slow.
const raceOn = true
