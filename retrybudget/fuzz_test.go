package retrybudget_test

import (
	"encoding/binary"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// FuzzBudgetModel lets the fuzzer drive the property of TestModel.
func FuzzBudgetModel(f *testing.F) {
	seed := make([]byte, 0, 1024)
	for i := range uint64(128) {
		seed = binary.LittleEndian.AppendUint64(seed, i*0x9e3779b97f4a7c15)
	}
	f.Add(seed)
	f.Add(make([]byte, 1024))
	f.Fuzz(rapid.MakeFuzz(modelProp))
}

// FuzzBudgetOps decodes a configuration and inputs from bytes, and holds the
// core to the history after each.
func FuzzBudgetOps(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0x04, 0x14, 0x24})
	f.Add([]byte{1, 2, 3, 4, 0x00, 0x34, 0x44, 0x54, 0x64, 0x74})
	f.Add([]byte{6, 1, 7, 2, 0x00, 0x04, 0x05, 0x12, 0x34, 0x06})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 4 || len(data) > 120 {
			return
		}
		ready := []retrybudget.Config{
			{}, retrybudget.Finagle(), retrybudget.GRPC(), retrybudget.AWS(), retrybudget.Envoy(),
			retrybudget.Ferron(), retrybudget.FerronStrict(), retrybudget.Echofront(),
		}
		cfg := ready[data[0]%8]
		if n := data[1]; n&1 != 0 {
			cfg.TTL = time.Duration(n) * 100 * time.Millisecond
		}
		if n := data[2]; n&1 != 0 && cfg.Capacity >= 0 {
			cfg.Capacity = 1 + float64(n)/7
		}
		if n := data[3]; n&1 != 0 {
			cfg.Share = retrybudget.Share{
				Rate: float64(n) / 300, Burst: float64(n&2) / 2, Of: retrybudget.Base(n>>2) % 3,
				Window: time.Duration(n) * 100 * time.Millisecond,
			}
		}
		if cfg.Validate() != nil {
			return
		}
		c := retrybudget.NewCore(cfg)
		h := &history{cfg: cfg}
		now := int64(0)
		for _, b := range data[4:] {
			switch b >> 4 {
			case 0, 1, 2, 3:
			case 4, 5:
				if at, ok := c.NextGrant(now); ok {
					now = at - int64(b>>4&1)
				}
			default:
				now += int64(b>>4-5) * int64(b>>4-5) * 37 * ms
			}
			o := op{opKind(b&15) % opKinds, now}
			h.log = append(h.log, o)
			got, want := o.apply(&c), h.judge(now)
			balance := float64(new(big.Int).Quo(want.balance, nano).Int64()) / 1e9
			if got != want.grants[len(want.grants)-1] || c.CanWithdraw(now) != want.allowed || c.Balance(now) != balance {
				t.Fatalf("%v: got %v, %v, %v; want %v\nconfig %+v\nlog %v", o, got, c.CanWithdraw(now), c.Balance(now), want, cfg, h.log)
			}
		}
		saved := c.AppendState(nil, now)
		again := retrybudget.NewCore(cfg)
		if rest, err := again.RestoreState(saved, now); err != nil || len(rest) > 0 {
			t.Fatalf("restore: %v, %d left", err, len(rest))
		}
	})
}

// FuzzRestore feeds bytes that nobody saved: an error, or a budget that works
// and saves what was restored.
func FuzzRestore(f *testing.F) {
	windowed := retrybudget.Config{TTL: time.Second, Share: retrybudget.Share{Rate: 0.5}}
	for _, cfg := range []retrybudget.Config{{}, windowed} {
		c := retrybudget.NewCore(cfg)
		for i := range int64(30) {
			c.Request(i * 50 * ms)
			c.Success(i * 50 * ms)
			c.Withdraw(i * 50 * ms)
		}
		f.Add(c.AppendState(nil, 2*sec), cfg.TTL > 0)
	}
	f.Fuzz(func(t *testing.T, b []byte, ring bool) {
		cfg := retrybudget.Config{}
		if ring {
			cfg = windowed
		}
		c := retrybudget.NewCore(cfg)
		rest, err := c.RestoreState(b, sec)
		if err != nil {
			return
		}
		saved := c.AppendState(nil, sec)
		again := retrybudget.NewCore(cfg)
		if _, err := again.RestoreState(saved, sec); err != nil {
			t.Fatalf("saving %x (%d left) gave %x: %v", b, len(rest), saved, err)
		}
		for i := range int64(40) {
			now := sec + i*40*ms
			c.Request(now)
			c.Withdraw(now)
			c.Refund(now)
			c.Success(now)
			c.NextGrant(now)
			if got := c.Balance(now); got < 0 || got > 10 {
				t.Fatalf("balance %v", got)
			}
		}
	})
}
