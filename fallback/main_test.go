package fallback_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) {
	takes.SideBySide(8)
	goleak.VerifyTestMain(m)
}
