package periodic

import (
	"context"
	"time"
)

// WithClock makes Run go by another clock.
func WithClock(ctx context.Context, clock func() time.Time) context.Context {
	return context.WithValue(ctx, clockKey{}, clock)
}

// WithMachine makes Run one of another machine.
func WithMachine(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, machineKey{}, machine{"id of " + name, name})
}

// MachineBy is machineBy.
func MachineBy(file string, hostname func() (string, error)) (id, host string) {
	m := machineBy(file, hostname)
	return m.id, m.host
}

// LastTick is lastTick.
var LastTick = lastTick
