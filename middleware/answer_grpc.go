package middleware

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"
)

// grpcKind reports whether a Content-Type is that of gRPC. gRPC-Web has others.
func grpcKind(kind string) bool {
	rest, ok := strings.CutPrefix(kind, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// meant returns the status of HTTP that says how the request has ended. A response of gRPC has 200
// whatever has become of the call: its code tells that.
func (r *recorder) meant() int {
	if code, ok := r.grpcStatus(); ok {
		return meantByGRPC(code)
	}
	return r.status
}

// cut reports whether the response is one of gRPC that lacks its status. A server that gives the
// call up before its handler has returned leaves such a response behind.
func (r *recorder) cut() bool {
	if r.status != http.StatusOK || !grpcKind(r.sent.Get("Content-Type")) {
		return false
	}
	_, ok := r.grpcStatus()
	return !ok
}

// grpcStatus returns the code in the trailers of a response of gRPC or gRPC-Web, or in the header
// if there are no trailers. It is called after the handler has returned.
func (r *recorder) grpcStatus() (code string, ok bool) {
	kind := r.sent.Get("Content-Type")
	if r.status != http.StatusOK || !strings.HasPrefix(kind, "application/grpc") {
		return "", false
	}
	for name, values := range r.trailer() {
		name = strings.TrimPrefix(name, http.TrailerPrefix)
		if strings.EqualFold(name, "Grpc-Status") && len(values) > 0 {
			return values[0], true
		}
	}
	if values := r.sent["Grpc-Status"]; len(values) > 0 {
		return values[0], true
	}
	if !strings.HasPrefix(kind, "application/grpc-web") || !r.kept {
		return "", false
	}
	body := r.body
	if strings.HasPrefix(kind, "application/grpc-web-text") {
		body = decodeWebText(body)
	}
	return statusIn(webTrailer(body))
}

// webTrailer returns the trailers in a body of gRPC-Web: the frame with the highest bit of its
// first byte set. Nil if there is none, or a compressed one.
func webTrailer(body []byte) []byte {
	for len(body) >= 5 {
		kind, size, rest := body[0], binary.BigEndian.Uint32(body[1:]), body[5:]
		if uint64(size) > uint64(len(rest)) {
			return nil
		}
		if kind == 0x80 {
			return rest[:size]
		}
		body = rest[size:]
	}
	return nil
}

// statusIn finds the code in trailers as text.
func statusIn(trailer []byte) (code string, ok bool) {
	for line := range strings.Lines(string(trailer)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(name, "Grpc-Status") {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// decodeWebText decodes a body of gRPC-Web in base64. Each part that a server has flushed may end
// with padding, so each four characters are decoded by themselves.
func decodeWebText(text []byte) []byte {
	body := make([]byte, 0, base64.StdEncoding.DecodedLen(len(text)))
	for ; len(text) >= 4; text = text[4:] {
		var err error
		if body, err = base64.StdEncoding.AppendDecode(body, text[:4]); err != nil {
			return nil
		}
	}
	return body
}

// meantBy are the statuses of HTTP that google/rpc/code.proto has for the codes of gRPC, but for
// Aborted: that is 409 there, as is AlreadyExists, which is final.
var meantBy = [...]int{
	grpcOK:                 http.StatusOK,
	grpcCanceled:           statusClientClosed,
	grpcUnknown:            http.StatusInternalServerError,
	grpcInvalidArgument:    http.StatusBadRequest,
	grpcDeadlineExceeded:   http.StatusGatewayTimeout,
	grpcNotFound:           http.StatusNotFound,
	grpcAlreadyExists:      http.StatusConflict,
	grpcPermissionDenied:   http.StatusForbidden,
	grpcResourceExhausted:  http.StatusTooManyRequests,
	grpcFailedPrecondition: http.StatusBadRequest,
	grpcAborted:            http.StatusLocked,
	grpcOutOfRange:         http.StatusBadRequest,
	grpcUnimplemented:      http.StatusNotImplemented,
	grpcInternal:           http.StatusInternalServerError,
	grpcUnavailable:        http.StatusServiceUnavailable,
	grpcDataLoss:           http.StatusInternalServerError,
	grpcUnauthenticated:    http.StatusUnauthorized,
}

// statusClientClosed is nginx's status for a client that has gone, and Connect's for canceled.
const statusClientClosed = 499

// meantByGRPC returns the status of HTTP for a code. One that is not known means Unknown.
func meantByGRPC(code string) int {
	n, err := strconv.ParseUint(code, 10, 32)
	if err != nil || n >= uint64(len(meantBy)) {
		n = grpcUnknown
	}
	return meantBy[n]
}
