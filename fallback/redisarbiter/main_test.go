package redisarbiter_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) {
	mutateByEnvironment()
	leak.Main(m)
}
