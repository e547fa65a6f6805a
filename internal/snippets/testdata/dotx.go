package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
)

var errSoldOut = errors.New("sold out")

func sell(ctx context.Context, locks *coord.Coordinator, db *sql.DB, sku string) error {
	//snippet
	return err
}

func main() { _ = sell }
