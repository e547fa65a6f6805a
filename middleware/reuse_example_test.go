package middleware_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

func ExampleCoalesce() {
	report := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "the report of %s, which takes its time\n", r.PathValue("month"))
	})
	// While one report of a month is being made, a request for the same one gets it as well.
	once := middleware.Coalesce(nil, middleware.Key("report", middleware.PathValue("month")), nil)
	mux := http.NewServeMux()
	mux.Handle("GET /reports/{month}", once(report))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/reports/may", nil))
	fmt.Print(w.Body)
	// Output: the report of may, which takes its time
}

func ExampleIdempotent() {
	locks, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	payments := 0
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		amount, _ := io.ReadAll(r.Body)
		payments++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d of %s", payments, amount)
	})
	// In production: middleware.NewRedisStore. A key belongs to the user that authentication has
	// found out.
	user := func(r *http.Request) (string, error) {
		name, _, _ := r.BasicAuth()
		return name, nil
	}
	once := middleware.Idempotent(locks, middleware.NewMemoryStore(nil), user, &middleware.IdempotentOptions{Required: true})
	h := once(pay)

	for _, amount := range []string{"10 EUR", "10 EUR", "99 EUR"} {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(amount))
		r.SetBasicAuth("eve", "secret")
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		replayed := w.Header().Get(middleware.ReplayedHeader) == "true"
		if w.Code == http.StatusCreated {
			fmt.Printf("%d %s, replayed: %t\n", w.Code, w.Body, replayed)
		} else {
			fmt.Println(w.Code, http.StatusText(w.Code))
		}
	}
	// Output:
	// 201 payment 1 of 10 EUR, replayed: false
	// 201 payment 1 of 10 EUR, replayed: true
	// 422 Unprocessable Entity
}
