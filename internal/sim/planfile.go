package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// savedRun is a run as it is written down, to be read by people and to be run again. Times are
// since the beginning.
type savedRun struct {
	Failed  string       `json:"failed,omitempty"` // the failure, for readers
	Seed    uint64       `json:"seed"`
	TTL     span         `json:"ttl"`
	Nodes   int          `json:"nodes"`
	Clients int          `json:"clients"`
	Keys    int          `json:"keys"`
	Think   span         `json:"think"`
	Ping    span         `json:"ping"`
	Guarded span         `json:"takeover,omitzero"`
	Length  int          `json:"length"`
	Drift   float64      `json:"drift"`
	Ends    bool         `json:"ends,omitempty"`
	History bool         `json:"history"`
	Mute    bool         `json:"mute,omitempty"`
	Watches bool         `json:"observed,omitempty"`
	Opened  bool         `json:"opened,omitempty"`
	Spread  bool         `json:"spread,omitempty"`
	Usual   bool         `json:"usual,omitempty"`
	Refused bool         `json:"refused,omitempty"`
	Hosts   int          `json:"machines,omitempty"`
	Plan    []savedFault `json:"plan"`
}

type savedFault struct {
	At    span    `json:"at"`
	Kind  kind    `json:"kind"`
	Node  int     `json:"node"`
	Other int     `json:"other"`
	For   span    `json:"for"`
	Late  span    `json:"late,omitempty"`
	Share float64 `json:"share,omitempty"`
	Both  bool    `json:"both,omitempty"`
	Some  []int   `json:"some,omitempty"`
	Reads int     `json:"reads,omitempty"`
	Ahead span    `json:"ahead,omitempty"`
}

// span is a length of time that is written as 1m2.5s.
type span time.Duration

func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

func (s *span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = span(d)
	return err
}

// save writes a run down, one fault a line. If there is no plan, it writes the seed's plan.
func (cfg Config) save(failed string) []byte {
	if cfg.Plan == nil {
		cfg.Plan = cfg.plan()
	}
	r := savedRun{
		Failed: failed, Seed: cfg.Seed, TTL: span(cfg.TTL), Nodes: cfg.Nodes, Clients: cfg.Clients, Keys: cfg.Keys, Think: span(cfg.Think),
		Ping: span(cfg.Ping), Guarded: span(cfg.Takeover), Length: cfg.Length, Drift: cfg.Drift, Ends: cfg.Ends, History: cfg.History, Mute: cfg.Mute, Watches: cfg.Observed, Opened: cfg.Opened, Spread: cfg.Spread,
		Usual: cfg.Usual, Refused: cfg.Refused, Hosts: cfg.Machines, Plan: []savedFault{},
	}
	head, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic(err) // there is nothing in it that JSON cannot say
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(head, []byte("]\n}")))
	for i, f := range cfg.Plan {
		s := savedFault{span(f.At), f.Kind, f.Node, f.Other, span(f.For), span(f.Late), f.Share, f.Both, nil, f.Reads, span(f.Ahead)}
		for i, x := range f.Some {
			if x {
				s.Some = append(s.Some, i)
			}
		}
		line, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n    ")
		b.Write(line)
	}
	b.WriteString("\n  ]\n}\n")
	return b.Bytes()
}

// Bounds of a plan that load accepts: beyond them a run would not end for long, or there is nothing
// like it.
const (
	maxNodes, maxClients, maxKeys, maxLength = 32, 256, 256, 10_000
	minTTL, maxTTL                           = time.Second, time.Hour
	minTakeover, maxTakeover                 = time.Second, 8 * time.Second
	minPing, maxPing                         = 100 * time.Millisecond, 1700 * time.Millisecond // a coordinator's bounds, if T were 10 s
	longest                                  = 10_000 * time.Hour
)

// load reads a plan that save has written, or an edited one.
func load(text []byte) (cfg Config, err error) {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	var r savedRun
	if err := in.Decode(&r); err != nil {
		return cfg, fmt.Errorf("sim: a plan: %w", err)
	}
	cfg = Config{
		Seed: r.Seed, TTL: time.Duration(r.TTL), Nodes: r.Nodes, Clients: r.Clients, Keys: r.Keys, Think: time.Duration(r.Think),
		Ping: time.Duration(r.Ping), Takeover: time.Duration(r.Guarded), Length: r.Length, Drift: r.Drift, Ends: r.Ends, History: r.History, Mute: r.Mute, Observed: r.Watches, Opened: r.Opened, Spread: r.Spread,
		Usual: r.Usual, Refused: r.Refused, Machines: r.Hosts, Plan: []Fault{},
	}
	within := func(n, least, most int) bool { return least <= n && n <= most }
	switch {
	case !within(cfg.Nodes, 1, maxNodes) || !within(cfg.Clients, 0, maxClients) || !within(cfg.Keys, 1, maxKeys) || !within(cfg.Length, 1, maxLength):
		return cfg, fmt.Errorf("sim: a plan for %d nodes, %d clients, %d keys, length %d", cfg.Nodes, cfg.Clients, cfg.Keys, cfg.Length)
	case !within(cfg.Machines, 0, maxNodes):
		return cfg, fmt.Errorf("sim: a plan with %d machines", cfg.Machines)
	case cfg.Ping != 0 && (cfg.Ping < minPing || cfg.Ping > maxPing):
		return cfg, fmt.Errorf("sim: a plan with ping %v", cfg.Ping)
	case cfg.Takeover != 0 && (cfg.Takeover < minTakeover || cfg.Takeover > maxTakeover):
		return cfg, fmt.Errorf("sim: a plan with takeover %v", cfg.Takeover)
	case cfg.TTL < minTTL || cfg.TTL > maxTTL || cfg.Think < time.Millisecond || cfg.Think > longest || !(cfg.Drift >= 0 && cfg.Drift <= maxDrift):
		return cfg, fmt.Errorf("sim: a plan with ttl %v, think %v, drift %v", cfg.TTL, cfg.Think, cfg.Drift)
	}
	for i, s := range r.Plan {
		f := Fault{
			At: time.Duration(s.At), Kind: s.Kind, Node: s.Node, Other: s.Other, For: time.Duration(s.For), Late: time.Duration(s.Late),
			Share: s.Share, Both: s.Both, Reads: s.Reads, Ahead: time.Duration(s.Ahead),
		}
		for _, n := range s.Some {
			if !within(n, 0, len(f.Some)-1) {
				return cfg, fmt.Errorf("sim: fault %d is about partition or node %d", i, n)
			}
			f.Some[n] = true
		}
		if err := f.check(cfg.Nodes); err != nil {
			return cfg, fmt.Errorf("sim: fault %d: %w", i, err)
		}
		cfg.Plan = append(cfg.Plan, f)
	}
	return cfg, nil
}

func (k kind) known() bool {
	return k == rewind || k == tick || slices.Contains(kinds, k) || slices.ContainsFunc(extra, func(x addition) bool { return slices.Contains(x.kinds, k) })
}

// check returns an error if the fault cannot be injected among so many nodes.
func (f Fault) check(nodes int) error {
	short := func(d time.Duration) bool { return 0 <= d && d <= longest }
	switch {
	case !f.Kind.known():
		return fmt.Errorf("there is no kind %q", f.Kind)
	case f.Node < 0 || f.Node >= nodes || f.Other < 0 || f.Other >= nodes:
		return fmt.Errorf("node %d or %d of %d", f.Node, f.Other, nodes)
	case !short(f.At) || !short(f.For) || !short(f.Late) || f.Reads < 0 || !(f.Share >= 0 && f.Share <= 1):
		return fmt.Errorf("%+v", f)
	case f.Ahead < -anyTime || f.Ahead > anyTime || f.Ahead%time.Millisecond != 0:
		return fmt.Errorf("%s by %v", f.Kind, f.Ahead)
	case f.Late == 0 && (f.Kind == lossy || f.Kind == slow || f.Kind == failover || f.Kind == late):
		return fmt.Errorf("%s without late", f.Kind)
	}
	return nil
}
