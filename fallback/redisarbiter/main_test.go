package redisarbiter_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) {
	mutateByEnvironment()
	takes.SideBySide(4)
	leak.Main(m)
}
