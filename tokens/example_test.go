package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"time"

	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/tokens"
)

func ExampleKeeper() {
	provider := httptest.NewServer(newProvider()) // in real life: accounting.example.com
	defer provider.Close()
	ctx := context.Background()

	locks, err := coord.New(context.Background(), fallback.NewMemory(), nil) // in real life: redisarbiter.New
	if err != nil {
		log.Print(err)
		return
	}
	defer locks.Close(ctx)
	keeper, err := tokens.New(locks, &oauth2.Config{
		ClientID: "id", ClientSecret: "secret",
		Endpoint: oauth2.Endpoint{TokenURL: provider.URL, AuthStyle: oauth2.AuthStyleInParams},
	}, tokens.NewMemoryStore(), &tokens.Options{HTTPClient: provider.Client()}) // in real life: NewRedisStore, or a table of your own
	if err != nil {
		log.Print(err)
		return
	}
	defer keeper.Close()

	// After the customer has logged in: the token from oauth2.Config.Exchange.
	login := &oauth2.Token{AccessToken: "a1", RefreshToken: "r1", Expiry: time.Now()}
	if err := keeper.Replace(ctx, "customer/17", login); err != nil {
		log.Print(err)
		return
	}

	// For requests: keeper.Transport("customer/17", nil, "accounting.example.com"), which copes
	// with 401 as well.
	t, err := keeper.TokenSource(ctx, "customer/17").Token()
	if errors.Is(err, tokens.ErrInDoubt) || errors.Is(err, tokens.ErrRejected) {
		log.Print("the customer has to log in again")
		return
	}
	fmt.Println(t.AccessToken, t.Type(), err)
	// Output: a2 Bearer <nil>
}
