package main

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
)

var errLate = errors.New("late")

func section(ctx context.Context, locks *coord.Coordinator, line string) error {
	//snippet
	return err
}

func main() { _ = section }
