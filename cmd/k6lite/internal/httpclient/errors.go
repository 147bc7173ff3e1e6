package httpclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// Errors the client makes itself.
var (
	ErrTimeout = errors.New("request timeout")
	ErrCut     = errors.New("the iteration was interrupted")
	ErrURL     = errors.New("invalid URL")
)

// Code returns the documented k6 error code of a failed request, 0 for nil.
func Code(err error) int {
	var (
		dns      *net.DNSError
		op       *net.OpError
		errno    syscall.Errno
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		record   tls.RecordHeaderError
		alert    tls.AlertError
		verify   *tls.CertificateVerificationError
	)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrTimeout):
		return 1050
	case errors.Is(err, ErrURL):
		return 1020
	case errors.Is(err, ErrDecode):
		return 1701
	case errors.As(err, &dns) && dns.IsNotFound:
		return 1101
	case errors.As(err, &dns):
		return 1100
	case errors.As(err, &unknown):
		return 1310
	case errors.As(err, &hostname):
		return 1311
	case errors.As(err, &record), errors.As(err, &alert), errors.As(err, &verify):
		return 1300
	case errors.Is(err, syscall.ECONNREFUSED):
		return 1212
	case errors.As(err, &op) && op.Op == "dial":
		return dialCode(op)
	case errors.Is(err, syscall.ECONNRESET):
		return 1220
	case errors.Is(err, syscall.EPIPE):
		return 1201
	case errors.As(err, &errno):
		return 1202
	case errors.As(err, &op):
		return 1200
	default:
		return 1000
	}
}

func dialCode(op *net.OpError) int {
	var errno syscall.Errno
	switch {
	case op.Timeout():
		return 1211
	case errors.As(op, &errno):
		return 1213
	default:
		return 1210
	}
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// closedByServer says whether err is what a write or read on a connection gives that the other end has closed.
func closedByServer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
