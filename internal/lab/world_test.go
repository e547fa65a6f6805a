//go:build linux

package lab

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/netns"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/repo"
	"github.com/holdfast-go/holdfast/internal/snippets"
)

var full = flag.Bool("lab.full", false, "run every case")

// A world is the network of all cases, which come one after another: 10.0.0.0/24 and fd00::/64,
// with Redis, and 10.1.0.0/24, behind a router.
type world struct {
	net      *netns.Network
	outside  *netns.Switch
	inside   *netns.Switch
	server   *netns.Host
	redis    *redistest.Server
	client   *redis.Client
	program  string // README's, word for word
	variable string // with options of the cluster from the environment
	stock    string // SQLite's file, as its driver wants it
	started  int    // programs; each sells a unit of 1,000
	err      error
}

const redis4, redis6 = "10.0.0.100", "fd00::100"

// the is made by the first case that asks for it.
var the *world

func TestMain(m *testing.M) {
	flag.Parse()
	code := 1
	defer func() { os.Exit(code) }()
	dir, err := os.MkdirTemp("", "holdfast-lab-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	workDir = dir
	code = m.Run()
	if the != nil {
		if err := the.remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	_ = os.RemoveAll(dir)
	if code == 0 {
		if err := leak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
}

var workDir string

// begin returns the world, without data of earlier cases.
func begin(t *testing.T, long bool) *world {
	t.Helper()
	if long && !*full {
		t.Skip("part of make lab")
	}
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	if err := netns.Needs("iptables", "redis-server"); err != nil {
		t.Skip(err)
	}
	if the == nil {
		the = &world{}
		the.err = the.make(t)
	}
	if the.err != nil {
		t.Fatal(the.err)
	}
	// A server that has been up for Q has no Grace for a new namespace.
	await.Until(t, "the server has been up for 13 s", func() bool {
		up, err := the.client.InfoMap(t.Context(), "server").Result()
		if err != nil {
			t.Fatal(err)
		}
		var seconds int
		if _, err := fmt.Sscan(up["Server"]["uptime_in_seconds"], &seconds); err != nil {
			t.Fatal(err)
		}
		return seconds > 12
	})
	the.flush(t)
	return the
}

// flush makes README's namespace a new one.
func (w *world) flush(t *testing.T) {
	t.Helper()
	if err := w.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func (w *world) make(t *testing.T) (err error) {
	if w.net, err = netns.New("lab"); err != nil {
		return err
	}
	if w.outside, err = w.net.Switch(); err != nil {
		return err
	}
	if w.inside, err = w.net.Switch(); err != nil {
		return err
	}
	if w.server, err = w.net.Host("redis"); err != nil {
		return err
	}
	if err := w.server.Plug(w.outside, redis4+"/24", redis6+"/64"); err != nil {
		return err
	}
	place := redistest.Place{Addr: redis4 + ":6379", Command: w.server.In(), Dial: w.server.Dial}
	if w.redis, err = redistest.NewAt(place, workDir, "--bind", redis4, redis6); err != nil {
		return err
	}
	w.client = redis.NewClient(&redis.Options{Addr: w.redis.Addr, Dialer: w.server.Dial})
	w.stock = "file:" + filepath.Join(workDir, "stock.db") + "?_pragma=busy_timeout(10000)"
	root, err := repo.Root()
	if err != nil {
		return err
	}
	block, err := snippets.Find(root, "README.md", "lock")
	if err != nil {
		return err
	}
	frame, err := os.ReadFile(filepath.Join("testdata", "node.go"))
	if err != nil {
		return err
	}
	w.program = filepath.Join(workDir, "readme")
	text, err := block.Program(root, string(frame))
	if err != nil {
		return err
	}
	if err := snippets.Build(t.Context(), root, text, w.program); err != nil {
		return err
	}
	const zero = `Logger: slog.Default()}`
	if strings.Count(block.Text, zero) != 1 {
		return fmt.Errorf("README's program has not one %s", zero)
	}
	block.Text = strings.Replace(block.Text, zero, `Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Redis: agent.Redis(), More: agent.Options()}`, 1)
	w.variable = filepath.Join(workDir, "variable")
	if text, err = block.Program(root, string(frame)); err != nil {
		return err
	}
	return snippets.Build(t.Context(), root, text, w.variable)
}

func (w *world) remove() error {
	if w.client != nil {
		w.client.Close()
	}
	if w.redis != nil {
		w.redis.Kill()
	}
	if w.net != nil {
		return w.net.Remove()
	}
	return nil
}

var hosts int

// bare adds a host without a network. For it localhost:6379, as README has it, is Redis.
func (w *world) bare(t *testing.T, server string) *netns.Host {
	t.Helper()
	hosts++
	h, err := w.net.Host(fmt.Sprint("h", hosts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Remove(); err != nil {
			t.Error(err)
		}
	})
	if err := h.Resolve(map[string]string{"localhost": server}); err != nil {
		t.Fatal(err)
	}
	return h
}

// plug connects a host to a switch.
func plug(t *testing.T, h *netns.Host, s *netns.Switch, addrs ...string) {
	t.Helper()
	for i, text := range addrs {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		addrs[i] += map[bool]string{true: "/24", false: "/64"}[addr.Is4()]
	}
	if err := h.Plug(s, addrs...); err != nil {
		t.Fatal(err)
	}
}

// host adds a host with an address in the network with Redis.
func (w *world) host(t *testing.T, addr string) *netns.Host {
	t.Helper()
	h := w.bare(t, map[bool]string{true: redis6, false: redis4}[strings.Contains(addr, ":")])
	plug(t, h, w.outside, addr)
	return h
}

// island returns a switch that only its host is on, as a bridge for containers is.
func (w *world) island(t *testing.T) *netns.Switch {
	t.Helper()
	s, err := w.net.Switch()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a command in a host.
func run(t *testing.T, h *netns.Host, args ...string) {
	t.Helper()
	if err := h.Run(args...); err != nil {
		t.Fatal(err)
	}
}

// proxy makes Redis be reached at localhost:6379 of a host.
func (w *world) proxy(t *testing.T, h *netns.Host) {
	t.Helper()
	var l net.Listener
	if err := h.Within(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:6379"); return err }); err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := w.server.Dial(t.Context(), "tcp", w.redis.Addr)
			if err != nil {
				c.Close()
				continue
			}
			for _, x := range [][2]net.Conn{{c, up}, {up, c}} {
				work.Go(func() {
					_, _ = io.Copy(x[0], x[1])
					x[0].Close()
					x[1].Close()
				})
			}
		}
	})
}
