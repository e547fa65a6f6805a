package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

func TestClasses(t *testing.T) {
	c := telemetry.NewClasses(nil)
	for key, want := range map[string]string{"order/1": "order", "order/1/2": "order", "order": "", "/x": "", "\xff/1": "?"} {
		if got := c.Of(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

// A function that makes a class of each key does not make a label of each.
func TestClassesAreFew(t *testing.T) {
	c := telemetry.NewClasses(func(key string) string { return key })
	for i := range telemetry.MaxClasses {
		if got := c.Of(fmt.Sprint(i)); got != fmt.Sprint(i) {
			t.Fatal(got)
		}
	}
	if got := c.Of("one more"); got != "other" {
		t.Error(got)
	}
	if got := c.Of("7"); got != "7" {
		t.Error(got)
	}
}

func TestErrorType(t *testing.T) {
	for want, err := range map[string]error{
		"": nil, "locked": &coord.WaitError{Key: "k", Reason: coord.ErrLocked}, "unavailable": fmt.Errorf("x: %w", coord.ErrUnavailable),
		"timeout": context.DeadlineExceeded, "canceled": context.Canceled, "other": errors.New("x"), "lost": &coord.LossError{},
	} {
		if got := telemetry.ErrorType(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
