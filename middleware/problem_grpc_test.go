package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/holdfast-go/holdfast/middleware"
)

// A caller by gRPC takes any other answer for code Unknown.
func TestWriteProblem_GRPC(t *testing.T) {
	for _, test := range []struct {
		kind   string
		status int
		code   string
	}{
		{middleware.TypeKey, 400, "3"}, {middleware.TypeLocked, 423, "10"}, {middleware.TypeLocked, 409, "10"},
		{middleware.TypeTooMany, 429, "8"}, {middleware.TypeUnavailable, 503, "14"}, {middleware.TypeOwner, 502, "14"},
		{middleware.TypeMisconfigured, 500, "13"}, {middleware.TypeInProgress, 409, "10"}, {middleware.TypeOutcome, 409, "9"},
		{middleware.TypeTooLarge, 413, "8"}, {middleware.TypeReused, 422, "3"}, {middleware.TypeNotKept, 409, "6"},
		{"", 401, "16"}, {"", 403, "7"}, {"", 429, "8"}, {"", 404, "9"}, {"", 504, "14"}, {"", 501, "13"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/service/Method", nil)
		r.ProtoMajor, r.ProtoMinor = 2, 0
		r.Header.Set("Content-Type", "application/grpc+proto")
		w := httptest.NewRecorder()
		middleware.WriteProblem(w, r, middleware.Problem{Type: test.kind, Title: "Title", Detail: "100 %, dé", Status: test.status})
		h := w.Header()
		if w.Code != http.StatusOK || h.Get("Content-Type") != "application/grpc" || h.Get("Grpc-Status") != test.code ||
			h.Get("Grpc-Message") != "Title: 100 %25, d%C3%A9" || w.Body.Len() > 0 {
			t.Errorf("%s %d: %d %v %s", test.kind, test.status, w.Code, h, w.Body)
		}
	}
}
