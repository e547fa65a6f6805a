package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
)

// mistake returns the answer to a request that the client or a limit on this node has ended. It is
// the answer that the owner, too, would give.
func (h *hop) mistake() (p Problem, ok bool) {
	if h.body != nil {
		if err := h.body.err.Load(); err != nil {
			return unreadable(*err), true
		}
	}
	if err := h.Err(); errors.Is(err, context.DeadlineExceeded) {
		return Problem{
			Type: TypeOwner, Title: "The server that is responsible did not answer in time", Status: http.StatusGatewayTimeout, Err: err,
		}, true
	}
	return p, false
}

// unreadable is the answer to a request with a body that could not be read.
func unreadable(err error) Problem {
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		p := tooLarge(err)
		p.Detail = fmt.Sprintf("A request may have a body of %d bytes.", e.Limit)
		return p
	}
	p := Problem{Type: TypeBody, Title: "Request body could not be read", Status: http.StatusBadRequest, Err: err}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.Title, p.Status = "Request body did not come in time", http.StatusRequestTimeout
	}
	return p
}

func tooLarge(err error) Problem {
	return Problem{Type: TypeTooLarge, Title: "Request body too large", Status: http.StatusRequestEntityTooLarge, Err: err}
}
