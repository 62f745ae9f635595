package balancerhttp_test

import (
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
)

// FuzzJoin compares the URL of an attempt with the texts that it was made of.
func FuzzJoin(f *testing.F) {
	for _, s := range [][2]string{
		{"/api", "/x?q=1"}, {"", ""}, {"/", "/"}, {"/a%2F", "%2Fx"}, {"/api/?k=1", "//x?"}, {"/%c3%a4", "/a b"}, {"?k", "?"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, base, request string) {
		b, err := url.Parse("http://a" + base)
		if err != nil || b.Host != "a" || (balancerhttp.Endpoint{URL: b}).Validate() != nil {
			t.Skip()
		}
		r, err := url.Parse("http://svc" + request)
		if err != nil || r.Host != "svc" {
			t.Skip()
		}
		// One slash between the two texts, and none after the first if the second
		// is empty.
		path := b.EscapedPath()
		if second := r.EscapedPath(); second != "" {
			path = strings.TrimSuffix(path, "/") + "/" + strings.TrimPrefix(second, "/")
		} else if path == "/" {
			path = ""
		}
		query := b.RawQuery
		if query != "" && r.RawQuery != "" {
			query += "&"
		}
		query += r.RawQuery

		got := sentTo(t, b.String(), r)
		if got.EscapedPath() != path || got.RawQuery != query || got.Scheme != "http" || got.Host != "a" || got.User != nil || got.Fragment != "" {
			t.Fatalf("%q + %q = %q, want path %q and query %q", b, r, got, path, query)
		}
		if plain, err := url.PathUnescape(path); err != nil || plain != got.Path {
			t.Fatalf("%q + %q: path %q does not mean %q", b, r, got.Path, path)
		}
		again, err := url.Parse(got.String())
		if err != nil || again.EscapedPath() != path || again.RawQuery != query {
			t.Fatalf("%q reads as %q, %v", got, again, err)
		}
	})
}

// FuzzTransportOps plays a sequence of scenes, each of six bytes, on one
// Transport, whose number of retries is the first byte of all.
func FuzzTransportOps(f *testing.F) {
	f.Add([]byte{2, 0, 0, 2, 2, 0, 0})
	f.Add([]byte{3, 1, 1, 4, 4, 5, 0, 2, 3, 3, 3, 0, 1})
	f.Add([]byte("the quick brown fox jumps over the lazy dog"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) == 0 {
			return
		}
		max := int(ops[0]) % 4
		fk := &fake{}
		rt := stage(fk, max)
		for ops = ops[1:]; len(ops) >= 6; ops = ops[6:] {
			pick := func(i, n int) int { return int(ops[i]) % n }
			play(t, rt, fk, scene{
				method: methods[pick(0, len(methods))], key: ops[0] >= 128, body: pick(1, bodyKinds),
				fates: [3]int{pick(2, len(fates)), pick(3, len(fates)), pick(4, len(fates))},
				use:   pick(5, 3), max: max,
			})
		}
	})
}

// FuzzTransportModel is the property of TestModel, driven by coverage.
func FuzzTransportModel(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(rt *rapid.T) {
		s := drawScene(rt)
		fk := &fake{}
		play(rt, stage(fk, s.max), fk, s)
	}))
}
