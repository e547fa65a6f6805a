//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// process is a node as the one that gives orders sees it.
type process struct {
	name     string
	cmd      *exec.Cmd
	in       io.Closer
	orders   *json.Encoder
	reports  *json.Decoder
	from, to int // keys that it holds
}

func launch(cfg nodeConfig) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), nodeVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p := &process{name: cfg.Name, cmd: cmd, in: in, orders: json.NewEncoder(in), reports: json.NewDecoder(out)}
	return p, cmd.Start()
}

// tell gives an order, and waits until it was followed.
func (p *process) tell(x order) (r report, err error) {
	if err = p.orders.Encode(x); err == nil {
		err = p.reports.Decode(&r)
	}
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
		_ = p.cmd.Process.Kill()
	}
	_ = p.in.Close()
	_ = p.cmd.Wait()
}
