package balancerhttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
)

func TestClassifyStatus(t *testing.T) {
	for code := 100; code < 700; code++ {
		want := balancer.Success
		switch {
		case code == 501 || code == 505, code >= 400 && code < 500:
			want = balancer.Ignored
		case code >= 500 && code < 600:
			want = balancer.Failure
		}
		resp := &http.Response{StatusCode: code}
		require.Equal(t, want, balancerhttp.Classify(request(t, "GET", nil), resp, nil), code)
	}
}

type timeout struct{}

func (timeout) Error() string { return "too late" }
func (timeout) Timeout() bool { return true }

func TestClassifyError(t *testing.T) {
	none := context.Background()
	cancelled, cancel := context.WithCancel(none)
	cancel()
	late, cancelLate := context.WithDeadlineCause(none, time.Now().Add(-time.Second), errors.New("own cause"))
	defer cancelLate()
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want balancer.Outcome
	}{
		{none, refused, balancer.TransportFailure},
		{none, &net.OpError{Op: "read", Err: syscall.ECONNRESET}, balancer.TransportFailure},
		{none, io.EOF, balancer.TransportFailure},
		{none, io.ErrUnexpectedEOF, balancer.TransportFailure},
		{none, timeout{}, balancer.TransportFailure},
		{none, &net.DNSError{Err: "no such host", IsNotFound: true}, balancer.TransportFailure},
		{none, &tls.CertificateVerificationError{Err: errors.New("x")}, balancer.TransportFailure},
		{none, x509.UnknownAuthorityError{}, balancer.TransportFailure},
		{none, x509.HostnameError{Certificate: &x509.Certificate{}}, balancer.TransportFailure},
		{none, x509.CertificateInvalidError{Cert: &x509.Certificate{}}, balancer.TransportFailure},
		{none, tls.RecordHeaderError{Msg: "x"}, balancer.TransportFailure},
		{none, tls.AlertError(40), balancer.TransportFailure},
		{none, errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "x"`), balancer.TransportFailure},
		{none, errors.New("http: server closed idle connection"), balancer.TransportFailure},
		{none, errors.New("stream error: stream ID 3; INTERNAL_ERROR"), balancer.TransportFailure},
		{none, errors.New("http2: server sent GOAWAY and closed the connection"), balancer.TransportFailure},
		{none, errors.New("http2: client connection lost"), balancer.TransportFailure},
		{none, errors.New("anything else"), balancer.Ignored},
		{none, errors.New("net/http: invalid header field name"), balancer.Ignored},
		{none, context.Canceled, balancer.Ignored},
		{none, context.DeadlineExceeded, balancer.TransportFailure},
		{cancelled, refused, balancer.Ignored},
		{cancelled, errors.New("net/http: HTTP/1.x transport connection broken"), balancer.Ignored},
		{late, context.DeadlineExceeded, balancer.TransportFailure},
		{late, errors.New("own cause"), balancer.TransportFailure},
		{none, balancer.WithOutcome(refused, balancer.Ignored), balancer.Ignored},
		{none, balancer.WithOutcome(timeout{}, balancer.Ignored), balancer.Ignored},
		{late, balancer.WithOutcome(timeout{}, balancer.Ignored), balancer.Ignored},
		{none, balancer.WithOutcome(errors.New("x"), balancer.Failure), balancer.Failure},
	} {
		req := requestIn(t, c.ctx, "GET", nil)
		require.Equal(t, c.want, balancerhttp.Classify(req, nil, c.err), "%v", c.err)
		require.Equal(t, c.want, balancerhttp.Classify(req, nil, &url.Error{Op: "Get", URL: "x", Err: c.err}), "%v", c.err)
	}
}

// What package net/http really returns.
func TestClassifyReal(t *testing.T) {
	hijack := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, text)
				_ = conn.Close()
			}
		}
	}
	secure := httptest.NewUnstartedServer(hijack(""))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	open := server(t, hijack("not HTTP at all\r\n\r\n"))
	for _, c := range []struct {
		what, url string
		sent      bool
		edit      func(*http.Request)
		want      balancer.Outcome
	}{
		{"refused", refusing(t), false, nil, balancer.TransportFailure},
		{"not HTTP", open, true, nil, balancer.TransportFailure},
		{"closed", server(t, hijack("")), true, nil, balancer.TransportFailure},
		{"unknown authority", secure.URL, false, nil, balancer.TransportFailure},
		{"no TLS", "https" + open[len("http"):], false, nil, balancer.TransportFailure},
		{"bad header", open, true, func(r *http.Request) { r.Header["X"] = []string{"\n"} }, balancer.Ignored},
		{"nil header", open, true, func(r *http.Request) { r.Header = nil }, balancer.Ignored},
	} {
		var got []balancer.Outcome
		rt := real(t, balancerhttp.Config{Classify: func(req *http.Request, resp *http.Response, err error) balancer.Outcome {
			require.Error(t, err, c.what)
			got = append(got, balancerhttp.Classify(req, resp, err))
			return got[len(got)-1]
		}}, c.url, refusing(t))
		req := request(t, "POST", nil)
		if c.edit != nil {
			c.edit(req)
		}
		_, err := rt.RoundTrip(req)
		require.Error(t, err)
		require.Equal(t, c.want, got[0], "%s: %v", c.what, err)
		if c.sent {
			require.Len(t, got, 1, "%s: a POST that may have arrived is not sent again", c.what)
		} else {
			require.Len(t, got, 2, "%s: a POST that was never sent is", c.what)
		}
	}
}
