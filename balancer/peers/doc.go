// Package peers measures the library beside the libraries that people use in its
// place, in one run on one machine, since only ratios within a run mean
// anything. It is a module of its own, so that nobody who imports evenkeel has
// them among the requirements.
//
//	cd balancer/peers && go test -bench . -count 8 | benchstat -
package peers
