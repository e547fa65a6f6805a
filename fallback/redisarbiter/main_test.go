package redisarbiter_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	mutateByEnvironment()
	goleak.VerifyTestMain(m)
}
