package middleware

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

func (r *recorder) Flush() { _ = r.FlushError() }

func (r *recorder) FlushError() error {
	switch {
	case r.hijack:
		return http.ErrHijacked
	case r.ended:
		return errEnded
	case r.status == 0:
		r.WriteHeader(http.StatusOK)
	}
	if r.dropped != nil {
		r.drop()
	}
	r.pass()
	err := http.NewResponseController(r.w).Flush()
	if r.kept && !errors.Is(err, http.ErrNotSupported) {
		return nil // as in Write
	}
	return err
}

func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if r.dropped == nil {
		return nil, nil, fmt.Errorf("middleware: a connection that was taken over has no answer to keep: %w", http.ErrNotSupported)
	}
	if r.ended {
		return nil, nil, errEnded
	}
	r.drop()
	conn, rw, err := http.NewResponseController(r.w).Hijack()
	if err == nil {
		r.hijack = true
	}
	return conn, rw, err
}

// The others of http.ResponseController's methods are about the connection of the one client that
// is there. There is no Unwrap: bytes written past the recorder would be missing in the answer.

func (r *recorder) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(r.w).SetReadDeadline(t)
}

func (r *recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(r.w).SetWriteDeadline(t)
}

func (r *recorder) EnableFullDuplex() error {
	return http.NewResponseController(r.w).EnableFullDuplex()
}
