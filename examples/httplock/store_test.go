package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// openStore starts a store for the test, and a client of it.
func openStore(t *testing.T, fenced bool) (*storeServer, *store) {
	t.Helper()
	server, err := startStore(fenced)
	if err != nil {
		t.Fatal(err)
	}
	client := newStore(server.url, 16)
	t.Cleanup(func() {
		client.close()
		server.close()
	})
	return server, client
}

func TestStoreKeepsOrdersApart(t *testing.T) {
	server, client := openStore(t, false)
	for i, id := range []string{"7", "8", "7", "a/b c"} {
		section := fmt.Sprint(i)
		found, err := client.read(t.Context(), id, section)
		if err != nil {
			t.Fatal(err)
		}
		found.Items++
		if err := client.write(t.Context(), id, section, found, 0); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]int64{"7": 2, "8": 1, "a/b c": 1, "9": 0} {
		found, err := client.read(t.Context(), id, "later")
		if err != nil || found.Items != want {
			t.Errorf("order %s: %+v, %v", id, found, err)
		}
	}
	if got, want := server.findings(), (findings{writes: 4, items: 4}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The referee sees a lost update: all read before any of them writes.
func TestStoreSeesLostUpdates(t *testing.T) {
	server, client := openStore(t, false)
	const n = 16
	var wg, allRead sync.WaitGroup
	allRead.Add(n)
	for i := range n {
		wg.Go(func() {
			section := fmt.Sprint(i)
			found, err := client.read(t.Context(), "7", section)
			allRead.Done()
			allRead.Wait()
			if err == nil {
				err = client.write(t.Context(), "7", section, record{Items: found.Items + 1}, 0)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := server.findings()
	if want := (findings{writes: n, items: 1, broken: n - 1, overlaps: n - 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.lost() != n-1 {
		t.Errorf("%d lost", got.lost())
	}
}

func TestStoreComparesTokens(t *testing.T) {
	server, client := openStore(t, true)
	for i, fence := range []uint64{1 << 62, 1<<62 + 1, 1<<62 + 1, 0, 5, 1<<63 - 1} {
		section := fmt.Sprint(i)
		found, err := client.read(t.Context(), "7", section)
		if err != nil {
			t.Fatal(err)
		}
		found.Items++
		err = client.write(t.Context(), "7", section, found, fence)
		refused := i >= 2 && i <= 4
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), errFence.Error()) {
			t.Errorf("token %d: %v", fence, err)
		}
	}
	if got, want := server.findings(), (findings{writes: 3, items: 3, late: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestStoreRefusesBadRequests(t *testing.T) {
	server, client := openStore(t, true)
	section := http.Header{sectionHeader: {"a"}}
	for _, test := range []struct {
		method, body string
		header       http.Header
		want         string
	}{
		{http.MethodGet, "", http.Header{}, "400 Bad Request: no Section header"},
		{http.MethodPut, `{"items":1}`, section, "409 Conflict: no such section"},
		{http.MethodPut, `{"items":`, section, "400 Bad Request: body: "},
		{http.MethodPut, `{"items":1}`, http.Header{sectionHeader: {"a"}, fenceHeader: {"-1"}}, "400 Bad Request: Fence: "},
		{http.MethodPost, "", section, "405 Method Not Allowed"},
	} {
		_, err := client.call(t.Context(), test.method, "7", test.header, []byte(test.body))
		if err == nil || !strings.HasPrefix(err.Error(), "store: "+test.want) {
			t.Errorf("%s %s: %v, want %s", test.method, test.body, err, test.want)
		}
	}
	if got := server.findings(); got != (findings{}) {
		t.Errorf("%+v", got)
	}
}

func TestStoreIsAway(t *testing.T) {
	server, client := openStore(t, false)
	server.close()
	if _, err := client.read(t.Context(), "7", "a"); err == nil || !strings.HasPrefix(err.Error(), "store: ") {
		t.Error(err)
	}
}
