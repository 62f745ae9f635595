package outlier_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/outlier"
)

func TestValidate(t *testing.T) {
	require.NoError(t, outlier.Config{}.Validate())
	bad := func(change func(*outlier.Config)) string {
		var cfg outlier.Config
		change(&cfg)
		err := cfg.Validate()
		require.ErrorIs(t, err, outlier.ErrConfig)
		var ce *outlier.ConfigError
		require.True(t, errors.As(err, &ce))
		require.Panics(t, func() { outlier.NewCore(cfg, 1) })
		require.Panics(t, func() { outlier.New(cfg, 1) })
		require.Panics(t, func() { outlier.NewCore(outlier.Config{}, 1).Configure(0, cfg) })
		return ce.Field
	}
	require.Equal(t, "outlier: Config.Base is -1s, want >= 0", outlier.Config{Base: -time.Second}.Validate().Error())
	require.Equal(t, "Max", bad(func(c *outlier.Config) { c.Max = time.Second }))
	require.Equal(t, "Max", bad(func(c *outlier.Config) { c.Base, c.Max = 3, 2 }))
	require.Equal(t, "Latency.Factor", bad(func(c *outlier.Config) { c.Latency.Factor = 1000 }))
	require.Equal(t, "RampGrowth", bad(func(c *outlier.Config) { c.RampGrowth = 1099 }))
	require.Equal(t, "Last", bad(func(c *outlier.Config) { c.Last = 3 }))
	require.Equal(t, "Return", bad(func(c *outlier.Config) { c.Return = 3 }))
	require.Equal(t, "Latency.Baseline", bad(func(c *outlier.Config) { c.Latency.Baseline = 3 }))
	require.Equal(t, "Enforce", bad(func(c *outlier.Config) { c.Enforce = 101 }))

	// Every number: what a negative means is documented on these fields, elsewhere
	// it is an error that names the field; the greatest value never gets past.
	negative := map[string]bool{
		"Consecutive": true, "Enforce": true, "Forgive": true,
		"SuccessRate.MinFailures": true, "SuccessRate.Tolerate": true, "SuccessRate.Dead": true,
		"SuccessRate.Enforce": true, "FailurePercentage.Enforce": true, "Latency.Enforce": true,
	}
	var walk func(prefix string, of reflect.Type, index []int)
	walk = func(prefix string, of reflect.Type, index []int) {
		for i := range of.NumField() {
			f := of.Field(i)
			at := append(append([]int(nil), index...), i)
			name := prefix + f.Name
			switch f.Type.Kind() {
			case reflect.Struct:
				walk(name+".", f.Type, at)
			case reflect.Int, reflect.Int64:
				set := func(v int64) func(*outlier.Config) {
					return func(c *outlier.Config) { reflect.ValueOf(c).Elem().FieldByIndex(at).SetInt(v) }
				}
				if negative[name] {
					var cfg outlier.Config
					set(-1)(&cfg)
					require.NoError(t, cfg.Validate(), name)
				} else {
					require.Equal(t, name, bad(set(-1)))
				}
				// An int of 32 bits holds nothing beyond some of the limits.
				if f.Type.Kind() == reflect.Int && strconv.IntSize > 32 {
					require.Equal(t, name, bad(set(math.MaxInt)))
				}
			}
		}
	}
	walk("", reflect.TypeFor[outlier.Config](), nil)
}

func TestConfigIsData(t *testing.T) {
	cfg := goma()
	text, err := json.Marshal(cfg)
	require.NoError(t, err)
	var back outlier.Config
	require.NoError(t, json.Unmarshal(text, &back))
	require.True(t, back == cfg)
}

// TestDefaults: the zero Config is the one that spells every default out.
func TestDefaults(t *testing.T) {
	zero := outlier.Config{
		SuccessRate: outlier.SuccessRate{On: true}, FailurePercentage: outlier.FailurePercentage{On: true},
		Latency: outlier.Latency{On: true},
	}
	spelled := outlier.Config{
		Consecutive: 5, Enforce: 100,
		SuccessRate: outlier.SuccessRate{
			On: true, Factor: 1900, MinHosts: 5, MinRequests: 100, MinFailures: 5, Tolerate: 950, Dead: 100, Enforce: 100,
		},
		FailurePercentage: outlier.FailurePercentage{On: true, Threshold: 85, MinHosts: 5, MinRequests: 50, Enforce: 100},
		Latency: outlier.Latency{
			On: true, Alpha: 250, Factor: 3000, Window: 2 * time.Second, MinSamples: 8, MinHosts: 2, Enforce: 100,
		},
		Interval: 10 * time.Second, Base: 30 * time.Second, Max: 300 * time.Second, Forgive: 10 * time.Second,
		MaxEjectedPercent: 50, RampFrom: 250, RampStep: time.Second, RampGrowth: 2000,
	}
	require.Equal(t, outlier.Settings(spelled), outlier.Settings(zero), "as compiled")
	long := outlier.Config{Base: time.Hour}
	r := newRig(t, sec, 2, long)
	r.mixed(0, 0, 0, 5)
	require.Equal(t, 3600*sec, r.hosts[0].Until())
	// The caller's value is not written to.
	require.Equal(t, outlier.Config{Base: time.Hour}, long)

	// The rules that are off by default.
	r = newRig(t, sec, 10, outlier.Config{})
	for range 300 {
		for i := range 10 {
			r.c.Record(1*sec, r.hosts[i], 1*sec, success, int64(time.Second)*int64(1+i/9*1000))
			if i == 0 {
				r.rec(1, i, transport, transport, transport, transport, success)
			}
		}
	}
	r.sweep(100)
	require.Empty(t, r.drain())
	// A negative turns the consecutive rule off.
	r = newRig(t, sec, 2, outlier.Config{Consecutive: -1})
	r.mixed(0, 0, 0, 1000)
	r.want(0)
}
