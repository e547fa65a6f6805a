package fallback_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
)

func TestMemoryConforms(t *testing.T) {
	shared := fallback.NewMemory()
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return shared },
		NewServer: func(*testing.T) arbitertest.Server {
			m := fallback.NewMemory()
			var saved *fallback.Snapshot
			return arbitertest.Server{
				Arbiter: m,
				Save:    func() { saved = m.Snapshot() },
				Crash:   func() { m.Restore(saved) },
			}
		},
	})
}
