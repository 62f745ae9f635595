module github.com/evenkeel-go/evenkeel/balancer/lincheck

go 1.25

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/evenkeel-go/evenkeel v0.0.0
	pgregory.net/rapid v1.3.0
)

replace github.com/evenkeel-go/evenkeel => ../..
