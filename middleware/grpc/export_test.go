package holdgrpc

import (
	"context"
	"testing"
	"time"
)

// BePatient has calls wait for a minute to be told of an owner, until the test ends.
func BePatient(t *testing.T) {
	before := patience
	patience = time.Minute
	t.Cleanup(func() { patience = before })
}

// Lives sets the lives of nodes, by their IDs.
func (r *Resolver) Lives(f func(id string) context.Context) { r.life = f }

// LifeOf returns the life of a node.
func (r *Resolver) LifeOf(id string) context.Context { return r.life(id) }
