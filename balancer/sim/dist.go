package sim

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Shape is a family of distributions. The zero Shape is ShapeConstant.
type Shape uint8

const (
	// ShapeConstant is always Mean.
	ShapeConstant Shape = iota
	// ShapeExponential has the mean Mean.
	ShapeExponential
	// ShapeUniform lies between Mean-Spread and Mean+Spread.
	ShapeUniform
	// ShapeNormal has the mean Mean and the standard deviation Spread. What would
	// fall below zero counts as zero.
	ShapeNormal
	// ShapeLogNormal has the median Mean, and its 99th percentile is Spread above
	// that: a distribution with a long tail.
	ShapeLogNormal
	// ShapeSamples draws one of Samples, each as likely as the others.
	ShapeSamples
)

var shapeNames = [...]string{
	ShapeConstant: "constant", ShapeExponential: "exponential", ShapeUniform: "uniform", ShapeNormal: "normal",
	ShapeLogNormal: "lognormal", ShapeSamples: "samples",
}

// String returns the name of the shape.
func (s Shape) String() string {
	if int(s) >= len(shapeNames) {
		return fmt.Sprintf("Shape(%d)", uint8(s))
	}
	return shapeNames[s]
}

// MarshalText returns the name of the shape. It never fails.
func (s Shape) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the inverse of MarshalText. The error lists the names.
func (s *Shape) UnmarshalText(b []byte) error {
	i := slices.Index(shapeNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("want one of %s", strings.Join(shapeNames[:], ", "))
	}
	*s = Shape(i)
	return nil
}

// Dist is a distribution of durations. The zero Dist stands for the default of
// the field that holds it. What is drawn is at least a nanosecond. A Dist is
// plain data and safe for concurrent use while nobody writes to it.
type Dist struct {
	Shape   Shape           // the family
	Mean    time.Duration   // see Shape
	Spread  time.Duration   // see Shape
	Samples []time.Duration // for ShapeSamples
}

// Constant is always d, or a nanosecond if d is zero: the zero Dist is something
// else.
func Constant(d time.Duration) Dist {
	if d == 0 {
		d = 1
	}
	return Dist{Mean: d}
}

// Exponential is the exponential distribution with the given mean.
func Exponential(mean time.Duration) Dist { return Dist{Shape: ShapeExponential, Mean: mean} }

// Uniform is the uniform distribution from low to high.
func Uniform(low, high time.Duration) Dist {
	half := (high - low) / 2
	return Dist{Shape: ShapeUniform, Mean: low + half, Spread: half}
}

// Normal is the normal distribution, cut off at zero.
func Normal(mean, deviation time.Duration) Dist {
	return Dist{Shape: ShapeNormal, Mean: mean, Spread: deviation}
}

// LogNormal is the lognormal distribution with the given median and 99th
// percentile.
func LogNormal(median, p99 time.Duration) Dist {
	return Dist{Shape: ShapeLogNormal, Mean: median, Spread: p99 - median}
}

// Recorded draws from latencies that were measured. See ReadSamples.
func Recorded(samples []time.Duration) Dist { return Dist{Shape: ShapeSamples, Samples: samples} }

// ReadSamples reads durations, one on a line: as time.ParseDuration takes them,
// or as plain numbers of milliseconds. Empty lines and lines that begin with #
// are skipped. The error names the line.
func ReadSamples(r io.Reader) ([]time.Duration, error) {
	var out []time.Duration
	lines := bufio.NewScanner(r)
	n := 1
	for ; lines.Scan(); n++ {
		s := strings.TrimSpace(lines.Text())
		if s == "" || s[0] == '#' {
			continue
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			// A number without a unit is milliseconds, to its last digit.
			if _, bad := strconv.ParseFloat(s, 64); bad == nil {
				d, err = time.ParseDuration(s + "ms")
			}
		}
		if err == nil && d < 0 {
			err = fmt.Errorf("%s is negative", s)
		}
		if err != nil {
			return nil, fmt.Errorf("sim: line %d: %w", n, err)
		}
		out = append(out, d)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("sim: line %d: %w", n, err)
	}
	return out, nil
}

func (d Dist) isZero() bool {
	return d.Shape == ShapeConstant && d.Mean == 0 && d.Spread == 0 && len(d.Samples) == 0
}

func (d Dist) validate(field string) error {
	for i, s := range d.Samples {
		if s < 0 || s > maxTime {
			return bad(fmt.Sprintf("%s.Samples[%d]", field, i), s, "0 to 48h")
		}
	}
	switch {
	case d.Shape > ShapeSamples:
		return bad(field+".Shape", d.Shape, "one of the Shape constants")
	case d.Mean < 0 || d.Mean > maxTime:
		return bad(field+".Mean", d.Mean, "0 to 48h")
	case d.Spread < 0 || d.Spread > maxTime:
		return bad(field+".Spread", d.Spread, "0 to 48h")
	case d.Shape == ShapeUniform && d.Spread > d.Mean:
		return bad(field+".Spread", d.Spread, "at most Mean, or it reaches below zero")
	case d.Shape == ShapeLogNormal && d.Mean == 0:
		return bad(field+".Mean", d.Mean, "> 0 for a lognormal distribution")
	case d.Shape == ShapeSamples && len(d.Samples) == 0:
		return bad(field+".Samples", "empty", "at least one")
	}
	return nil
}

// sampler is a Dist ready to be drawn from.
type sampler struct {
	t *tables
	Dist
	sigma int64 // of log2, in q32
}

func newSampler(d, zero Dist) sampler {
	if d.isZero() {
		d = zero
	}
	s := sampler{t: mathTables(), Dist: d}
	if d.Shape == ShapeLogNormal {
		ratio := s.t.log2Of(uint64(d.Mean+d.Spread)) - s.t.log2Of(uint64(d.Mean))
		s.sigma = shiftSat(ratio, perP99, 32)
	}
	return s
}

// sample makes a duration in nanoseconds, at least 1, of 64 uniform bits.
func (s *sampler) sample(key uint64) int64 {
	var d int64
	switch s.Shape {
	case ShapeConstant:
		d = int64(s.Mean)
	case ShapeExponential:
		d = shiftSat(uint64(s.Mean), s.t.exponential(key), 32)
	case ShapeUniform:
		d = int64(s.Mean-s.Spread) + int64(below(key, 2*uint64(s.Spread)+1))
	case ShapeNormal:
		z := s.t.normal(key)
		if z < 0 {
			d = int64(s.Mean) - shiftSat(uint64(s.Spread), uint64(-z), 32)
		} else {
			d = int64(s.Mean) + shiftSat(uint64(s.Spread), uint64(z), 32)
		}
	case ShapeLogNormal:
		// z and sigma are below 2^4 and 2^6 with 32 places: halve the places of
		// both to keep the product.
		d = s.t.scaleExp2(uint64(s.Mean), (s.t.normal(key)>>16)*(s.sigma>>16))
	case ShapeSamples:
		d = int64(s.Samples[below(key, uint64(len(s.Samples)))])
	}
	return max(1, d)
}
