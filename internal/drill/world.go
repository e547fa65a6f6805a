//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/lan"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/reexec"
	"github.com/holdfast-go/holdfast/internal/repo"
)

// A world is the hosts, the Redis server, the nodes, and an operator's tool: the command holdfast,
// on a machine that reaches all hosts.
type world struct {
	*options
	dir     string
	net     *lan.Network
	server  *redistest.Server
	client  *redis.Client
	keys    [][]byte // Cluster.PeerKeys of the cluster
	command string   // the program holdfast
	nodes   []*node
	web     *http.Client

	prometheus *monitor // nil in the short form
}

// endTime is the time in which a process has to end in order.
const endTime = 20 * time.Second

// A node is a process on a host.
type node struct {
	w    *world
	name string
	host *lan.Host
	url  string // of its HTTP server
	log  string
	*reexec.Process
}

// names are those of the hosts, and of the nodes on them.
var names = []string{"anna", "berta", "clara", "dora", "emma"}

const serverHost, prometheusHost = "redis", "prometheus"

// begin makes the world. The caller must call end, also after an error.
func begin(ctx context.Context, o *options) (*world, error) {
	w := &world{options: o, web: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	var err error
	if w.dir, err = os.MkdirTemp("", "holdfast-drill-"); err != nil {
		return w, err
	}
	built := make(chan error, 1)
	go func() { built <- w.build(ctx) }()
	err = w.start(ctx)
	return w, errors.Join(err, <-built)
}

// build makes the command, once for all scenes.
func (w *world) build(ctx context.Context) error {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	w.command = filepath.Join(w.dir, "holdfast")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", w.command, "./cmd/holdfast")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(root, "go.work"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./cmd/holdfast: %w\n%s", err, out)
	}
	return nil
}

func (w *world) start(ctx context.Context) (err error) {
	if w.net, err = lan.New("drill", append(slices.Clone(names), serverHost, prometheusHost)...); err != nil {
		return err
	}
	h := w.net.Host(serverHost)
	place := redistest.Place{Addr: h.Addr + ":6379", Command: h.In()}
	if w.server, err = redistest.NewAt(place, w.dir, "--maxmemory-policy", "noeviction", "--enable-debug-command", "yes"); err != nil {
		return err
	}
	w.client = redis.NewClient(&redis.Options{Addr: w.server.Addr})
	w.keys = [][]byte{newKey()}
	text := base64.StdEncoding.EncodeToString(w.keys[0]) + "\n"
	if err := os.WriteFile(filepath.Join(w.dir, "peer-keys"), []byte(text), 0o600); err != nil {
		return err
	}
	for _, name := range names {
		n, err := w.launch(name, w.keys)
		if err != nil {
			return err
		}
		w.nodes = append(w.nodes, n)
	}
	if !w.short {
		if err := w.startPrometheus(); err != nil {
			return err
		}
	}
	return w.settled(ctx)
}

func newKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return key
}

// launch starts a node on the host of its name.
func (w *world) launch(name string, keys [][]byte) (*node, error) {
	n := &node{w: w, name: name, host: w.net.Host(name), log: filepath.Join(w.dir, name+".log")}
	n.url = "http://" + n.host.Addr + ":8080"
	text, err := json.Marshal(&order{Name: name, Redis: w.server.Addr, HTTP: n.host.Addr + ":8080", PeerKeys: keys, LongWait: w.longWait()})
	if err != nil {
		return nil, err
	}
	n.Process, err = reexec.Again(n.log, n.host.In(), nodeVariable, string(text))
	return n, err
}

// replace starts a node again that has left.
func (w *world) replace(i int, keys [][]byte) error {
	n, err := w.launch(w.nodes[i].name, keys)
	if err == nil {
		w.nodes[i] = n
	}
	return err
}

// leave ends a node as a deployment does: it gives its partitions to others first.
func (n *node) leave() error {
	if n.Process == nil {
		return nil
	}
	if err := n.End(endTime); err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	return nil
}

// settled waits until each node answers, sees all, and has streams to all, and each partition has
// an owner.
func (w *world) settled(ctx context.Context) error {
	return w.until(ctx, 60*time.Second, func() error {
		o, err := w.nodes[0].overview(ctx)
		if err != nil {
			return err
		}
		if len(o.Nodes) != len(w.nodes) || o.Unowned > 0 {
			return fmt.Errorf("%d nodes, %d partitions without owner, %q", len(o.Nodes), o.Unowned, o.Problems)
		}
		for _, n := range o.Nodes {
			if n.Report == nil || !n.Report.Settled {
				return fmt.Errorf("%s has not settled", n.Name)
			}
		}
		return nil
	})
}

// until returns nil as soon as f does, else the last error of f within the limit.
func (w *world) until(ctx context.Context, limit time.Duration, f func() error) error {
	end := time.Now().Add(limit)
	for {
		err := f()
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// tell makes a node do something.
func (n *node) tell(ctx context.Context, t task) error {
	body, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return n.post(ctx, "/task", body)
}

// stop ends all that the node was told to do.
func (n *node) stop(ctx context.Context) error { return n.post(ctx, "/stop", nil) }

func (n *node) post(ctx context.Context, path string, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	_, err = n.w.read(r)
	return err
}

func (w *world) read(r *http.Request) (string, error) {
	res, err := w.web.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", r.URL, res.Status, bytes.TrimSpace(text))
	}
	return string(text), err
}

// end takes everything away.
func (w *world) end() error {
	var errs []error
	var mu sync.Mutex
	var work sync.WaitGroup
	for _, n := range w.nodes {
		work.Go(func() {
			err := n.leave()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	work.Wait()
	if w.prometheus != nil {
		errs = append(errs, w.prometheus.end())
	}
	if w.client != nil {
		errs = append(errs, w.client.Close())
	}
	if w.server != nil {
		w.server.Kill()
	}
	if w.net != nil {
		errs = append(errs, w.net.Remove())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// logs returns the logs of the nodes, for a drill that fails.
func (w *world) logs() string {
	var b bytes.Buffer
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(w.dir, name+".log"))
		if err == nil {
			fmt.Fprintf(&b, "log of %s:\n%s\n", name, text)
		}
	}
	return b.String()
}
