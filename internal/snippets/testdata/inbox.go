package main

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
)

type message struct {
	ID, Account string
	Amount      int64
}

func handle(ctx context.Context, locks *coord.Coordinator, db *sql.DB, m message) error {
	//snippet
	return err
}

func main() { _ = handle }
