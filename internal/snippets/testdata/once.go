package main

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/idempotent"
)

type message struct{ ID string }

func (message) Ack() error           { return nil }
func (message) Nack() error          { return nil }
func (message) PutAside(error) error { return nil }

func pay(context.Context, message) error { return nil }

func handle(ctx context.Context, locks *coord.Coordinator, store idempotent.Store, m message) error {
	//snippet
}

func main() { _ = handle }
