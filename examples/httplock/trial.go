package main

import (
	"context"
	"errors"
	"io"
	"time"
)

// A trial is one rung's: a store, processes, a load balancer, clients.
type trial struct {
	config
	rung      rung
	namespace string
	redisAddr string
	progress  *progress
	stderr    io.Writer
}

// An outcome is the clients' tally of a trial, and the referee's findings.
type outcome struct {
	rung     rung
	tally    tally
	findings findings
	commands int64
	elapsed  time.Duration
}

// run returns when nothing of the trial is left.
func (t *trial) run(ctx context.Context) (_ outcome, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	store, err := startStore(t.rung.fenced)
	if err != nil {
		return outcome{}, err
	}
	defer store.close()
	fleet, err := startFleet(ctx, order{
		Processes: t.processes,
		Rung:      t.rung.name,
		Redis:     t.redisAddr,
		Namespace: t.namespace,
		Store:     store.url,
		Clients:   t.clients,
	}, t.stderr, cancel)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, fleet.stop()) }()
	balancer, err := startBalancer(fleet.urls(), t.clients)
	if err != nil {
		return outcome{}, err
	}
	defer balancer.close()

	before, err := fleet.commands(ctx)
	if err != nil {
		return outcome{}, err
	}
	l := &load{url: balancer.url, clients: t.clients, resources: t.resources, duration: t.duration}
	o := outcome{rung: t.rung}
	o.tally, o.elapsed = l.run(ctx, func(elapsed time.Duration) {
		t.progress.show(elapsed, l.confirmed.Load(), l.failed.Load(), store.findings())
	})
	t.progress.end()
	if ctx.Err() != nil {
		return outcome{}, context.Cause(ctx)
	}
	after, err := fleet.commands(ctx)
	if err != nil {
		return outcome{}, err
	}
	o.commands = after - before
	o.findings = store.findings()
	return o, nil
}
