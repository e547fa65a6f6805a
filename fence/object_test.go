package fence_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

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

// A holder that stops before its write is refused, or seen by the next one.
func TestUpdate(t *testing.T) {
	increase := func(old []byte) ([]byte, error) {
		n, _ := strconv.Atoi(string(old))
		return []byte(strconv.Itoa(n + 1)), nil
	}
	for name, first := range map[string]coord.Fence{"late": 1, "next": 2} {
		b := &bucket{objects: make(map[string]object)}
		second := 3 - first
		stopped := false
		b.before = func() {
			if !stopped {
				stopped = true
				if err := fence.Update(t.Context(), b, "n", second, increase); err != nil {
					t.Errorf("%s: the other one: %v", name, err)
				}
			}
		}
		err := fence.Update(t.Context(), b, "n", first, increase)
		want, left := "2", error(nil)
		if first < second {
			want, left = "1", fence.ErrStale
		}
		if got := string(b.objects["n"].data); !errors.Is(err, left) || got != want {
			t.Errorf("%s: %v, the object is %s, not %s", name, err, got, want)
		}
	}
}
