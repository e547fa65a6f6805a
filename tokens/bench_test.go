package tokens_test

import (
	"context"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/tokens"
)

// BenchmarkToken asks for a token that is in use, as every request to a provider does.
func BenchmarkToken(b *testing.B) {
	locks, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := locks.Close(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	})
	k, err := tokens.New(locks, &oauth2.Config{
		ClientID: "id", Endpoint: oauth2.Endpoint{TokenURL: "http://127.0.0.1:1", AuthStyle: oauth2.AuthStyleInParams}, // no request goes there
	}, tokens.NewMemoryStore(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(k.Close)
	login := &oauth2.Token{AccessToken: "a1", RefreshToken: "r1", Expiry: time.Now().Add(24 * time.Hour)}
	if err := k.Replace(b.Context(), "alice", login); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Token(b.Context(), "alice"); err != nil {
			b.Fatal(err)
		}
	}
}
