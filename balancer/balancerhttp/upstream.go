package balancerhttp

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// Endpoint describes one backend: where it is, and its part in the Pool. It is
// plain data, to be copied freely. The zero Endpoint names no place and is
// refused.
type Endpoint struct {
	// URL is the base of every request: scheme http or https and a host, and
	// optionally a path, which is put before the request's own, and a query, which
	// is put before the request's own. Its text is the backend's identity in the
	// Pool. User information, which would end up in logs, and a fragment are
	// errors. It is copied.
	URL *url.URL

	// Weight is the share of the traffic, up to balancer.MaxWeight. If zero, 1.
	Weight int

	// NoTraffic keeps the backend in the Pool and sends it nothing, whatever its
	// Weight.
	NoTraffic bool

	// Priority is the tier, lower is preferred. If zero, the tier 0.
	Priority int

	// MaxInflight bounds the requests at once. If zero, no bound.
	MaxInflight int
}

// ParseEndpoint is the Endpoint of a URL such as "http://10.0.0.7:8080/api",
// with everything else at its default. The error matches [balancer.ErrConfig].
func ParseEndpoint(s string) (Endpoint, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Endpoint{}, &balancer.ConfigError{Field: "Endpoint.URL", Err: err}
	}
	e := Endpoint{URL: u}
	return e, e.Validate()
}

// Validate reports what keeps the endpoint from being used, as an error that
// matches [balancer.ErrConfig]. Weight, Priority and MaxInflight are checked
// by the Pool, which has their bounds.
func (e Endpoint) Validate() error {
	bad := func(value, want string) error {
		return &balancer.ConfigError{Field: "Endpoint.URL", Value: value, Want: want}
	}
	u := e.URL
	switch {
	case u == nil:
		return bad("nil", "a URL")
	case u.User != nil:
		// Not even the error shows the password.
		return bad(fmt.Sprintf("%q", u.Redacted()), "no user information")
	case u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "":
		return bad(fmt.Sprintf("%q", u), "http://host or https://host")
	case u.Hostname() == "":
		return bad(fmt.Sprintf("%q", u), "a host")
	case u.Fragment != "" || u.RawFragment != "":
		return bad(fmt.Sprintf("%q", u), "no fragment")
	case !utf8.ValidString(u.String()):
		// It is the upstream's id. A path is escaped when written, a query is not.
		return bad(fmt.Sprintf("%q", u), "valid UTF-8, or escaped")
	}
	return nil
}

// Upstream is a backend as a member of the Transport's Pool: an [Endpoint] that
// has been checked and prepared. It does not change and is safe for concurrent
// use. The zero Upstream is not usable.
type Upstream struct {
	id   string
	base url.URL
	// escaped is base's path as it is sent, "" instead of a lone slash, and plain
	// the same text unescaped.
	escaped, plain string

	weight, priority, maxInflight int
}

// NewUpstream prepares an endpoint. The error matches [balancer.ErrConfig].
func NewUpstream(e Endpoint) (*Upstream, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	u := &Upstream{
		id: e.URL.String(), base: *e.URL, escaped: e.URL.EscapedPath(), plain: e.URL.Path,
		weight: e.Weight, priority: e.Priority, maxInflight: e.MaxInflight,
	}
	if u.escaped != "" && u.escaped[0] != '/' {
		u.escaped, u.plain = "/"+u.escaped, "/"+u.plain
	}
	if u.escaped == "/" {
		u.escaped, u.plain = "", ""
	}
	switch {
	case e.NoTraffic:
		u.weight = 0
	case e.Weight == 0:
		u.weight = 1
	}
	return u, nil
}

// upstreams prepares a whole membership.
func upstreams(endpoints []Endpoint) ([]*Upstream, error) {
	out := make([]*Upstream, len(endpoints))
	for i, e := range endpoints {
		u, err := NewUpstream(e)
		if err != nil {
			return nil, err
		}
		out[i] = u
	}
	return out, nil
}

// ID is the text of the endpoint's URL.
func (u *Upstream) ID() string { return u.id }

// String is ID.
func (u *Upstream) String() string { return u.id }

// URL is a copy of the endpoint's URL.
func (u *Upstream) URL() *url.URL {
	c := u.base
	return &c
}

// Weight is the share of the traffic, 0 for an endpoint with NoTraffic.
func (u *Upstream) Weight() int { return u.weight }

// Priority is the endpoint's tier.
func (u *Upstream) Priority() int { return u.priority }

// MaxInflight is the endpoint's bound on requests at once, 0 for none.
func (u *Upstream) MaxInflight() int { return u.maxInflight }

// join writes the URL of a request to this backend into dst: the backend's
// scheme and host, the two paths with exactly one slash between them, and the
// two queries. What was escaped stays escaped the way it was. A path of "*",
// which asks about the server as a whole, stays alone.
func (u *Upstream) join(dst, req *url.URL) {
	*dst = url.URL{
		Scheme: u.base.Scheme, Host: u.base.Host,
		Path: req.Path, RawPath: req.RawPath,
		RawQuery: req.RawQuery, ForceQuery: req.ForceQuery,
	}
	switch {
	case u.base.RawQuery == "":
	case req.RawQuery == "":
		dst.RawQuery = u.base.RawQuery
	default:
		dst.RawQuery = u.base.RawQuery + "&" + req.RawQuery
	}
	if req.Path == "*" && req.RawPath == "" {
		return
	}
	if u.escaped == "" {
		if req.Path != "" && req.Path[0] != '/' {
			// A reference without its slash: no server would understand it.
			dst.Path, dst.RawPath = "/"+req.Path, "/"+req.EscapedPath()
		}
		return
	}
	if req.Path == "" {
		dst.Path, dst.RawPath = u.plain, u.escaped
		return
	}
	// The slash is looked for in the escaped text: in "/a%2F" it is part of a
	// name.
	escaped := req.EscapedPath()
	plain := req.Path
	switch before, after := strings.HasSuffix(u.escaped, "/"), strings.HasPrefix(escaped, "/"); {
	case before && after:
		dst.Path, dst.RawPath = u.plain+plain[1:], u.escaped+escaped[1:]
	case !before && !after:
		dst.Path, dst.RawPath = u.plain+"/"+plain, u.escaped+"/"+escaped
	default:
		dst.Path, dst.RawPath = u.plain+plain, u.escaped+escaped
	}
}
