package middleware

import (
	"fmt"
	"net/http"
	"strings"
)

// isGRPC reports whether the request is a call by gRPC. gRPC-Web is none: it has its status in the
// body.
func isGRPC(r *http.Request) bool {
	if r == nil || r.ProtoMajor < 2 || len(r.Header["Content-Type"]) == 0 {
		return false
	}
	return grpcKind(r.Header["Content-Type"][0])
}

// The codes of gRPC.
const (
	grpcOK                 = 0
	grpcCanceled           = 1
	grpcUnknown            = 2
	grpcInvalidArgument    = 3
	grpcDeadlineExceeded   = 4
	grpcNotFound           = 5
	grpcAlreadyExists      = 6
	grpcPermissionDenied   = 7
	grpcResourceExhausted  = 8
	grpcFailedPrecondition = 9
	grpcAborted            = 10
	grpcOutOfRange         = 11
	grpcUnimplemented      = 12
	grpcInternal           = 13
	grpcUnavailable        = 14
	grpcDataLoss           = 15
	grpcUnauthenticated    = 16
)

// writeGRPC answers a call with p: a response without a message, with the status in the head.
func writeGRPC(w http.ResponseWriter, p Problem) {
	text := p.Title
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", fmt.Sprint(grpcCode(p)))
	h.Set("Grpc-Message", grpcText(text))
	w.WriteHeader(http.StatusOK)
}

func grpcCode(p Problem) int {
	switch p.Type {
	case TypeKey, TypeIdempotencyKey, TypeReused:
		return grpcInvalidArgument
	case TypeLocked, TypeInProgress:
		return grpcAborted
	case TypeTooMany, TypeTooLarge:
		return grpcResourceExhausted
	case TypeUnavailable, TypeOwner:
		return grpcUnavailable
	case TypeNotKept:
		return grpcAlreadyExists
	case TypeOutcome:
		return grpcFailedPrecondition
	}
	switch {
	case p.Status == http.StatusUnauthorized:
		return grpcUnauthenticated
	case p.Status == http.StatusForbidden:
		return grpcPermissionDenied
	case p.Status == http.StatusTooManyRequests, p.Status == http.StatusRequestEntityTooLarge:
		return grpcResourceExhausted
	case p.Status == http.StatusBadGateway, p.Status == http.StatusServiceUnavailable, p.Status == http.StatusGatewayTimeout:
		return grpcUnavailable
	case p.Status < http.StatusInternalServerError:
		return grpcFailedPrecondition
	}
	return grpcInternal
}

// grpcText escapes a message as gRPC wants it: "%", and all bytes but printable ASCII.
func grpcText(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
