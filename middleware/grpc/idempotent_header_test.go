package holdgrpc_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// The name of the metadata is in lower case on the wire, however the option and the caller write
// it.
func TestIdempotent_HeaderWithCapitals(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	m := holdgrpc.Idempotent(c, middleware.NewMemoryStore(nil), one, &holdgrpc.IdempotentOptions{Header: "Idempotency-Key"})
	var runs atomic.Int32
	l := listen(t)
	serve(t, l, &service{pay: func(_ context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		runs.Add(1)
		return m, nil
	}}, grpc.UnaryInterceptor(m.Unary))
	conn := dial(t, l)
	for _, name := range []string{"idempotency-key", "Idempotency-Key"} {
		if text, err := call(metadata.AppendToOutgoingContext(t.Context(), name, "k"), conn, "42"); text != "42" || err != nil || runs.Load() != 1 {
			t.Errorf("%s: %q, %v, %d runs", name, text, err, runs.Load())
		}
	}
}

// No call can have the key in metadata that gRPC does not carry.
func TestIdempotent_HeaderThatMetadataCannotHave(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	panics := func(name string) (said string) {
		defer func() { said, _ = recover().(string) }()
		holdgrpc.Idempotent(c, middleware.NewMemoryStore(nil), one, &holdgrpc.IdempotentOptions{Header: name})
		return ""
	}
	for _, name := range []string{"idempotency key", "key:", ":key", "clé", "a/b", "grpc-key", "Grpc-Key", "key\n"} {
		if said := panics(name); !strings.HasPrefix(said, "holdgrpc: IdempotentOptions.Header: ") {
			t.Errorf("%q: panics with %q", name, said)
		}
	}
	for _, name := range []string{"", "X-Key", "a.b_c-1", "key-bin"} {
		if said := panics(name); said != "" {
			t.Errorf("%q: panics with %q", name, said)
		}
	}
}

// A number without a unit is in nanoseconds: nothing would be replayed, and no call would wait.
func TestOptions_TimesThatAreTooShortToBeMeant(t *testing.T) {
	c, store := locks(t, fallback.NewMemory(), nil), middleware.NewMemoryStore(nil)
	idempotent := func(o holdgrpc.IdempotentOptions) func() {
		return func() { holdgrpc.Idempotent(c, store, one, &o) }
	}
	for want, f := range map[string]func(){
		"holdgrpc: IdempotentOptions.TTL is 24ns":         idempotent(holdgrpc.IdempotentOptions{TTL: 24}),
		"holdgrpc: IdempotentOptions.Wait is 10ns":        idempotent(holdgrpc.IdempotentOptions{Wait: 10}),
		"holdgrpc: IdempotentOptions.StoreTimeout is 5ns": idempotent(holdgrpc.IdempotentOptions{StoreTimeout: 5}),
		"holdgrpc: SerializeOptions.Wait is 10ns":         func() { holdgrpc.Serialize(c, one, &holdgrpc.SerializeOptions{Wait: 10}) },
	} {
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.HasPrefix(said, want) {
					t.Errorf("panics with %q, want %q", said, want)
				}
			}()
			f()
		}()
	}
}
