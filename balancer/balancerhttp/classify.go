package balancerhttp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// Classify is the default verdict on an attempt.
//
// Of a response: 5xx is a Failure, except 501 and 505, which say what the server
// does not do rather than that it is unwell; 4xx is Ignored, 429 included, since
// it is about the client; anything else is Success.
//
// Of an error: if the request's context was cancelled, Ignored. A deadline that
// passed, an AttemptTimeout, and what means that no answer came - refused,
// reset, broken off, no TLS session, not HTTP - is a TransportFailure. Any other
// error is Ignored, since it may be the request's own fault: a header that may
// not be sent is no reason to eject a backend. balancer.WithOutcome overrides.
func Classify(req *http.Request, resp *http.Response, err error) balancer.Outcome {
	if err != nil {
		ctx := req.Context()
		o := balancer.ClassifyError(ctx, err)
		if o != balancer.Ignored || ctx.Err() == nil && !unanswered(err) {
			return o
		}
		// io.EOF alone would be a TransportFailure: if it is not next to err, then
		// the request was cancelled or err is marked.
		return balancer.ClassifyError(ctx, errors.Join(err, io.EOF))
	}
	switch s := resp.StatusCode; {
	case s == http.StatusNotImplemented, s == http.StatusHTTPVersionNotSupported, s/100 == 4:
		return balancer.Ignored
	case s/100 == 5:
		return balancer.Failure
	}
	return balancer.Success
}

// unanswered tells whether an error that the balancer does not know means that
// the server gave no answer.
func unanswered(err error) bool {
	var marked interface{ Timeout() bool }
	if errors.As(err, &marked) && marked.Timeout() || handshake(err) {
		return true
	}
	var dns *net.DNSError
	var alert tls.AlertError
	if errors.As(err, &dns) || errors.As(err, &alert) {
		return true
	}
	// Package net/http has no types for these.
	text := err.Error()
	for _, part := range [...]string{
		"transport connection broken", "malformed HTTP", "server closed idle connection",
		"server sent GOAWAY", "client connection lost", "stream error: stream ID", "connection error: ",
	} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// handshake tells whether err says that no TLS session came about.
func handshake(err error) bool {
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &verification) || errors.As(err, &record) || errors.As(err, &authority) ||
		errors.As(err, &host) || errors.As(err, &invalid) ||
		strings.Contains(err.Error(), "TLS handshake timeout")
}

// neverSent tells whether err proves that the server saw nothing of the
// request, so that any request may be sent again: there was no connection, or
// no TLS session on it.
func neverSent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") {
		return true
	}
	var dns *net.DNSError
	return errors.As(err, &dns) || handshake(err)
}
