package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
)

// deaf is a namespace whose messages cannot be heard.
type deaf struct {
	fallback.Namespace
	err error
}

func (n deaf) Listen(context.Context, string, func(fallback.Message)) (func(), error) {
	return nil, n.err
}

// Doctor's advice is for the arbiter that has refused.
func TestDoctor_AdvisesOnMessages(t *testing.T) {
	for text, want := range map[string]string{"NOPERM no permissions to access a channel": "permit SUBSCRIBE", "no message comes back": "mute=true"} {
		d := &doctor{settings: new(settings)}
		if d.messages(t.Context(), deaf{err: errors.New(text)}); len(d.all) != 1 || !strings.Contains(d.all[0].Do, want) {
			t.Errorf("%s: %+v", text, d.all)
		}
	}
}
