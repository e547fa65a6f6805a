package subjects

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestContentOfRedis(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	h := heldRun{admin: client, prefix: "{ns:", parts: 3}
	for _, cmd := range []*redis.IntCmd{
		client.HSet(t.Context(), "{ns:s}", "f", 1, "i", 2, "s:a", 3, "s:b", 4),
		client.HSet(t.Context(), "{ns:p0}", "i", 1, "m", 2),
		client.HSet(t.Context(), "{ns:p1}", "i", 1, "m", 2, "r:x", 3, "r:y", 4),
		client.HSet(t.Context(), "{ns:p3}", "i", 1, "m", 2), // one too many
		client.ZAdd(t.Context(), "{ns:p0}:w:key", redis.Z{Score: 1, Member: "m"}),
		client.HSet(t.Context(), "{other:p0}", "i", 1),
	} {
		if cmd.Err() != nil {
			t.Fatal(cmd.Err())
		}
	}
	got, err := h.content(t.Context())
	if want := (content{Rows: 2, Bare: 1, InUse: 1, Strays: 2, Sessions: 2}); got != want || err != nil {
		t.Errorf("%+v, want %+v; %v", got, want, err)
	}
}
