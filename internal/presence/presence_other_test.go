//go:build !linux

package presence_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/internal/presence"
)

func TestElsewhere(t *testing.T) {
	_, shown := presence.Show("a")
	_, seen := presence.Watch("a")
	if !errors.Is(shown, errors.ErrUnsupported) || !errors.Is(seen, errors.ErrUnsupported) || presence.Place() != "" {
		t.Error(shown, seen, presence.Place())
	}
}
