module github.com/evenkeel-go/evenkeel/balancer/peers

go 1.25

require (
	github.com/evenkeel-go/evenkeel v0.0.0
	github.com/sony/gobreaker/v2 v2.4.0
)

replace github.com/evenkeel-go/evenkeel => ../..
