//go:build race

package main

// raceOn tells that the race detector makes everything ten times as slow.
const raceOn = true
