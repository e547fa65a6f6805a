package fence_test

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
)

// bucket is an object store with conditional writes.
type bucket struct {
	mu      sync.Mutex // protects objects
	objects map[string]object
	before  func() // called before each Put
}

type object struct {
	data    []byte
	token   coord.Fence
	version int
}

func (b *bucket) Get(_ context.Context, name string) ([]byte, coord.Fence, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.objects[name]
	if o.version == 0 {
		return nil, 0, "", nil
	}
	return o.data, o.token, strconv.Itoa(o.version), nil
}

func (b *bucket) Put(_ context.Context, name string, data []byte, token coord.Fence, version string) error {
	if b.before != nil {
		b.before()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.objects[name].version
	if is := strconv.Itoa(n); n == 0 && version != "" || n != 0 && version != is {
		return fence.ErrChanged
	}
	b.objects[name] = object{data, token, n + 1}
	return nil
}

// serve makes a store of HTTP of the bucket: its ETag is a hash of the content, as that of S3.
func (b *bucket) serve(t *testing.T) fence.Bucket {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path
		if r.Method == http.MethodGet {
			content, _, version, _ := b.Get(r.Context(), name)
			if version == "" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("ETag", etag(content))
			w.Write(content)
			return
		}
		content, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if b.before != nil {
			b.before()
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		is := b.objects[name]
		if match := r.Header.Get("If-Match"); match != "" && match != etag(is.data) || is.version != 0 && r.Header.Get("If-None-Match") == "*" {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		b.objects[name] = object{data: content, version: is.version + 1}
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return fence.Bucket{URL: server.URL + "/", Client: client}
}

func etag(content []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(content)) }

// A holder that stops before its write is refused, or seen by the next one.
func TestUpdate(t *testing.T) {
	increase := func(old []byte) ([]byte, error) {
		n, _ := strconv.Atoi(string(old))
		return []byte(strconv.Itoa(n + 1)), nil
	}
	for kind, open := range map[string]func(b *bucket) fence.Objects{
		"Objects": func(b *bucket) fence.Objects { return b },
		"Bucket":  func(b *bucket) fence.Objects { return b.serve(t) },
	} {
		for name, first := range map[string]coord.Fence{"late": 1, "next": 2} {
			b := &bucket{objects: make(map[string]object)}
			store := open(b)
			second := 3 - first
			stopped := false
			b.before = func() {
				if !stopped {
					stopped = true
					if err := fence.Update(t.Context(), store, "n", second, increase); err != nil {
						t.Errorf("%s, %s: the other one: %v", kind, name, err)
					}
				}
			}
			err := fence.Update(t.Context(), store, "n", first, increase)
			want, left := "2", error(nil)
			if first < second {
				want, left = "1", fence.ErrStale
			}
			got, token, _, failed := store.Get(t.Context(), "n")
			if !errors.Is(err, left) || string(got) != want || token != 2 || failed != nil {
				t.Errorf("%s, %s: %v, the object is %s, not %s, with token %d, %v", kind, name, err, got, want, token, failed)
			}
		}
	}
}

// A client that repeats a write whose answer is lost is told that the object has changed, by that
// write. fn does not see its own result: it would count twice.
func TestUpdate_AClientThatRepeats(t *testing.T) {
	for name, tt := range map[string]struct {
		fn   func(old []byte) ([]byte, error)
		want string
		err  error
	}{
		"counts": {func(old []byte) ([]byte, error) { return append(old, '+'), nil }, "+", fence.ErrUnknown},
		"claims": {func(old []byte) ([]byte, error) {
			if len(old) > 0 {
				return nil, errors.New("another one has it")
			}
			return []byte("mine"), nil
		}, "mine", fence.ErrUnknown},
		"sets": {func([]byte) ([]byte, error) { return []byte("set"), nil }, "set", nil},
	} {
		b := &bucket{objects: make(map[string]object)}
		repeats := b.serve(t)
		inner, lost := repeats.Client.Transport, false
		repeats.Client.Transport = tripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut && !lost {
				lost = true
				first := r.Clone(r.Context())
				first.Body, _ = r.GetBody()
				answer, err := inner.RoundTrip(first)
				if err != nil {
					return nil, err
				}
				answer.Body.Close()
			}
			return inner.RoundTrip(r)
		})
		err := fence.Update(t.Context(), repeats, "n", 1, tt.fn)
		got, _, _, failed := repeats.Get(t.Context(), "n")
		if !errors.Is(err, tt.err) || string(got) != tt.want || failed != nil {
			t.Errorf("%s: %v, the object is %q, %v", name, err, got, failed)
		}
	}
}

// A later holder writes on top of a write before the client repeats it: that it came too late does
// not say that nothing was written. Without a PUT that was refused, it does.
func TestUpdate_ALaterHolderBeforeTheRepeat(t *testing.T) {
	b := &bucket{objects: make(map[string]object)}
	store := b.serve(t)
	add := func(old []byte) ([]byte, error) { return append(old, '+'), nil }
	repeats := store
	inner := store.Client.Transport
	repeats.Client = &http.Client{Transport: tripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut {
			first := r.Clone(r.Context())
			first.Body, _ = r.GetBody()
			answer, err := inner.RoundTrip(first)
			if err != nil {
				return nil, err
			}
			answer.Body.Close()
			if err := fence.Update(t.Context(), store, "n", 2, add); err != nil {
				t.Error(err)
			}
		}
		return inner.RoundTrip(r)
	})}
	var stale *fence.StaleError
	err := fence.Update(t.Context(), repeats, "n", 1, add)
	if !errors.Is(err, fence.ErrUnknown) || !errors.Is(err, fence.ErrStale) || !errors.As(err, &stale) || stale.Seen != 2 {
		t.Errorf("its write was there: %v", err)
	}
	if got, _, _, err := store.Get(t.Context(), "n"); string(got) != "++" {
		t.Errorf("the object is %q, %v", got, err)
	}
	if err := fence.Update(t.Context(), store, "n", 1, add); !errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrUnknown) {
		t.Errorf("it has put nothing: %v", err)
	}
}

// Calls with the same token, one after another or beside each other, are told apart by their bytes.
func TestUpdate_CallsOfOneHolder(t *testing.T) {
	b := &bucket{objects: make(map[string]object)}
	add := func(text string) error {
		return fence.Update(t.Context(), b, "n", 1, func(old []byte) ([]byte, error) { return []byte(string(old) + text), nil })
	}
	first := true
	b.before = func() {
		if first {
			first = false
			if err := add("b"); err != nil {
				t.Error(err)
			}
		}
	}
	if err := add("a"); err != nil || string(b.objects["n"].data) != "ba" {
		t.Errorf("%v, the object is %q", err, b.objects["n"].data)
	}
}

// Two holders that write the same content are told apart: the ETag has the token in it.
func TestBucket_TheSameContent(t *testing.T) {
	b := &bucket{objects: make(map[string]object)}
	store := b.serve(t)
	same := func([]byte) ([]byte, error) { return []byte("same"), nil }
	if err := fence.Update(t.Context(), store, "n", 1, same); err != nil {
		t.Fatal(err)
	}
	_, _, first, err := store.Get(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if err := fence.Update(t.Context(), store, "n", 2, same); err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), "n", []byte("late"), 1, first); !errors.Is(err, fence.ErrChanged) {
		t.Errorf("the late write: %v", err)
	}
	b.objects["/n"] = object{data: []byte("of another program"), version: 9}
	for want, b := range map[string]fence.Bucket{"token": store, "URL": {}} {
		if _, _, _, err := b.Get(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Update ends where each request is answered with 404, as a bucket that is not there does.
func TestBucket_ThatDoesNotExist(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 20 {
			cancel() // of an Update that goes on
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	store := fence.Bucket{URL: strings.Replace(server.URL, "//", "//user:secret@", 1) + "/none/", Client: client}
	err := fence.Update(ctx, store, "n", 1, func([]byte) ([]byte, error) { return nil, nil })
	if err == nil || !strings.Contains(err.Error(), "/none/n: 404") || strings.Contains(err.Error(), "secret") {
		t.Errorf("after %d requests: %v", requests.Load(), err)
	}
	if err := store.Put(t.Context(), "n", nil, 1, `"version"`); !errors.Is(err, fence.ErrChanged) {
		t.Errorf("an object that was deleted: %v", err)
	}
}

// A store that answers 404 is named without the client's signature of the request. A client may
// answer by itself.
func TestBucket_IsNamedWithoutSecrets(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	for name, by := range map[string]tripper{
		"signed": func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.URL.RawQuery = "sig=secret"
			return base.RoundTrip(r)
		},
		"recorded": func(*http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			w.WriteHeader(http.StatusNotFound)
			return w.Result(), nil
		},
	} {
		store := fence.Bucket{URL: strings.Replace(server.URL, "//", "//user:secret@", 1) + "/none/", Client: &http.Client{Transport: by}}
		err := store.Put(t.Context(), "n?key=secret", nil, 1, "")
		if err == nil || !strings.Contains(err.Error(), server.URL+"/none/n: 404") || strings.Contains(err.Error(), "user") ||
			strings.Contains(strings.ReplaceAll(err.Error(), `"n?key=secret"`, ""), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The error of an answer that redirects, as for a bucket of another region or a server that wants
// https, names the field to set. A PUT that it makes a GET of is not taken for done.
func TestBucket_IsElsewhere(t *testing.T) {
	there := &bucket{objects: make(map[string]object)}
	store := there.serve(t)
	if err := store.Put(t.Context(), "n", nil, 1, ""); err != nil {
		t.Fatal(err)
	}
	for want, header := range map[string][2]string{
		`in the region "eu-west-1": set Bucket.URL`:                     {"X-Amz-Bucket-Region", "eu-west-1"},
		"at " + strings.TrimSuffix(store.URL, "/") + ": set Bucket.URL": {"Location", store.URL + "n?sig=secret"},
		"elsewhere: set Bucket.URL":                                     {},
	} {
		for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect} {
			if status == http.StatusTemporaryRedirect && header[0] == "Location" {
				continue // that of a PUT is a PUT
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if header[0] != "" {
					w.Header().Set(header[0], header[1])
				}
				w.WriteHeader(status)
			}))
			b := fence.Bucket{URL: server.URL + "/", Client: store.Client}
			err := b.Put(t.Context(), "n", []byte("new"), 2, "")
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%d, %s: %v", status, want, err)
			}
			server.Close()
		}
	}
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, store.URL+r.URL.Path[1:], status)
		}))
		b := fence.Bucket{URL: server.URL + "/", Client: store.Client}
		if err := b.Put(t.Context(), fmt.Sprint(status), []byte("new"), 2, ""); err != nil {
			t.Errorf("%d: %v", status, err)
		}
		if data, token, _, err := store.Get(t.Context(), fmt.Sprint(status)); err != nil || string(data) != "new" || token != 2 {
			t.Errorf("%d: %q, %v, %v", status, data, token, err)
		}
		server.Close()
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// everChanged is a store whose objects change before each Put.
type everChanged struct{ puts int }

func (s *everChanged) Get(context.Context, string) ([]byte, coord.Fence, string, error) {
	return nil, 1, "version", nil
}

func (s *everChanged) Put(context.Context, string, []byte, coord.Fence, string) error {
	if s.puts++; s.puts > 10_000 {
		return errors.New("there is no pause")
	}
	return fence.ErrChanged
}

// Update pauses before it reads again, and ends in the middle of a pause if ctx does.
func TestUpdate_Pauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, ended := time.Now(), errors.New("ended")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, ended)
		defer cancel()
		var s everChanged
		err := fence.Update(ctx, &s, "n", 1, func([]byte) ([]byte, error) { return []byte("new"), nil })
		if !errors.Is(err, ended) || s.puts < 100 || time.Since(began) != 10*time.Second {
			t.Errorf("%v, after %d tries in %v", err, s.puts, time.Since(began))
		}
	})
}
