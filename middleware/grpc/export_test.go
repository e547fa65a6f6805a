package holdgrpc

import (
	"testing"
	"time"
)

// BePatient has calls wait for a minute to be told of an owner, until the test ends.
func BePatient(t *testing.T) {
	before := patience
	patience = time.Minute
	t.Cleanup(func() { patience = before })
}
