package main

import (
	"context"
	"errors"
	"log"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/idempotent"
)

type message struct {
	ID   string
	does func() error
	was  *string // its outcome
}

func (m message) say(what string) error { *m.was = what; return nil }

func (m message) Ack() error           { return m.say("acknowledged") }
func (m message) Nack() error          { return m.say("to come again") }
func (m message) PutAside(error) error { return m.say("put aside") }

func pay(_ context.Context, m message) error { return m.does() }

func handle(ctx context.Context, locks *coord.Coordinator, store idempotent.Store, m message) error {
	//snippet
}

// Nothing is delivered again that would come to the same end for ever.
func main() {
	ctx := context.Background()
	locks, err := coord.New(ctx, fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	store := idempotent.NewMemoryStore(nil)
	fails := errors.New("no such account")
	for _, x := range []struct {
		id   string
		err  error
		want string
	}{
		{"paid", nil, "acknowledged"}, {"paid", nil, "acknowledged"},
		{"never", idempotent.Final(fails), "put aside"}, {"never", idempotent.Final(fails), "put aside"},
		{"unknown", idempotent.ErrUnknown, "put aside"}, {"", nil, "put aside"}, {"later", fails, "to come again"},
	} {
		var was string
		if err := handle(ctx, locks, store, message{x.id, func() error { return x.err }, &was}); err != nil || was != x.want {
			log.Fatalf("%q, with %v: %s, %v; want %s", x.id, x.err, was, err, x.want)
		}
	}
	if err := locks.Close(ctx); err != nil {
		log.Fatal(err)
	}
}
