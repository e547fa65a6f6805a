//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-go/holdfast/internal/reexec"
)

// process is a node as the one that gives orders sees it.
type process struct {
	*reexec.Worker
	name     string
	from, to int // keys that it holds
	unlimit  func()
}

func launch(cfg nodeConfig) (*process, error) {
	w, err := reexec.Start(context.Background(), nodeVariable, cfg, os.Stderr, 0)
	if err != nil {
		return nil, err
	}
	p := &process{Worker: w, name: cfg.Name, unlimit: func() {}}
	if cfg.Cores > 0 {
		remove, err := limit(w.Cmd.Process.Pid, cfg.Cores)
		if err != nil {
			p.end(true)
			return nil, err
		}
		p.unlimit = remove
	}
	return p, nil
}

// launch starts the node with number i, on its host if it has one.
func (t *trial) launch(i int, cfg nodeConfig) (n *process, err error) {
	if t.hosts == nil {
		return launch(cfg)
	}
	err = t.hosts.within(i, func(ip string) (err error) {
		cfg.Gossip, cfg.Peer = ip+":7946", ip+":7947"
		n, err = launch(cfg)
		return err
	})
	return n, err
}

// tell gives an order, and waits until it was followed.
func (p *process) tell(x order) (r report, err error) {
	r, err = followTask.Do(p.Worker, x)
	if err == nil && r.Err != "" {
		err = errors.New(r.Err)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %s: %w", p.name, x.Do, err)
	}
	return r, nil
}

// end ends the process, and waits for it.
func (p *process) end(kill bool) {
	if kill {
		_ = p.Cmd.Process.Kill()
	}
	_ = p.Stop()
	p.unlimit()
}
