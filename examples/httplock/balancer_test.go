package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// balance starts a balancer in front of servers that answer with their number and the request.
func balance(t *testing.T, n int) (*balancer, []*httptest.Server) {
	t.Helper()
	var servers []*httptest.Server
	var urls []string
	for i := range n {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(servedBy, fmt.Sprint(i))
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, r.Method, " ", r.URL.RequestURI(), " ", r.Header.Get("X-Forwarded-For"))
		}))
		t.Cleanup(s.Close)
		servers = append(servers, s)
		urls = append(urls, s.URL)
	}
	b, err := startBalancer(urls, 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return b, servers
}

func post(t *testing.T, url string) (status int, by, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Post(url, "", nil)
	if err != nil {
		t.Error(err)
		return 0, "", ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, res.Header.Get(servedBy), string(text)
}

func TestBalancerGoesRound(t *testing.T) {
	b, _ := balance(t, 3)
	for i := range 9 {
		status, by, body := post(t, b.url+"/orders/7/items?x=1")
		if status != http.StatusTeapot || body != "POST /orders/7/items?x=1 127.0.0.1" {
			t.Errorf("%d %q", status, body)
		}
		if want := fmt.Sprint(i % 3); by != want {
			t.Errorf("request %d went to %s", i, by)
		}
	}
}

func TestBalancerSharesConcurrentRequestsEvenly(t *testing.T) {
	b, _ := balance(t, 4)
	var mu sync.Mutex // protects served
	served := make(map[string]int)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 20 {
				_, by, _ := post(t, b.url)
				mu.Lock()
				served[by]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for i := range 4 {
		if n := served[fmt.Sprint(i)]; n != 50 {
			t.Errorf("process %d got %d of 200 requests", i, n)
		}
	}
}

// A process that is away costs its requests, and no others; and no request goes to a second
// process.
func TestBalancerWithoutOneProcess(t *testing.T) {
	b, servers := balance(t, 2)
	servers[1].Close()
	for i := range 6 {
		status, by, body := post(t, b.url)
		if i%2 == 0 && (status != http.StatusTeapot || by != "0") {
			t.Errorf("request %d: %d %q", i, status, body)
		}
		if i%2 == 1 && (status != http.StatusBadGateway || !strings.HasPrefix(body, "balancer: ")) {
			t.Errorf("request %d: %d %q", i, status, body)
		}
	}
}

func TestBalancerWithBadURL(t *testing.T) {
	if _, err := startBalancer([]string{"http://127.0.0.1:1", "http://%"}, 1); err == nil || !strings.HasPrefix(err.Error(), "balancer: ") {
		t.Error(err)
	}
}
