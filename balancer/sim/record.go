package sim

import (
	"io"
	"strconv"

	"github.com/evenkeel-go/evenkeel/balancer/incident"
)

// recordEvery is how many inputs and events of the Pool come between two flushes
// of a recording, and recordSize how much it can hold.
const (
	recordEvery = 1 << 11
	recordSize  = 4 * recordEvery
)

// recording writes down what one client's Pool does.
type recording struct {
	log    *incident.Log
	client uint32
	inputs int
}

// input notes that the Pool has an input or an event, which comes or has come.
func (r *recording) input() {
	if r.inputs++; r.inputs == recordEvery {
		r.inputs = 0
		_ = r.log.Flush() // an error sticks until Close
	}
}

// Record is Run, and writes what happened to one client's Pool as a file of
// package incident: its inputs, from the first request on, and what it decided.
// client counts from 0 in the order of the scenario. incident.Verify replays the
// file, incident.Timeline draws it, and File.Inputs makes a test of it. The error
// is a *ConfigError or that of out. It takes two to three times as long as Run, and
// memory for the requests under way. Safe for concurrent use.
func Record(s Scenario, client int, out io.Writer) (Result, error) {
	m, err := newMachine(s)
	if err != nil {
		return Result{}, err
	}
	if client < 0 || client >= len(m.clients) {
		return Result{}, bad("client", client, "0 to "+strconv.Itoa(len(m.clients)-1))
	}
	log, err := incident.NewLog(out, m.clients[client].pool, recordSize, incident.Options{})
	if err != nil {
		return Result{}, err
	}
	m.rec = &recording{log: log, client: uint32(client)}
	for m.step() {
	}
	err = log.Close()
	return m.result(), err
}
