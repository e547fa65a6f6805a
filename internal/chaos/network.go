//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// A network is hosts, each a network namespace, joined by a bridge. This process reaches all of them by the bridge's own
// address, which no cut affects.
type network struct {
	id    string // of this process, in all names
	base  string // of the addresses: 10.x.y.
	hosts []*host

	mu    sync.Mutex // protects what follows
	cuts  map[int]cut
	next  int
	lines map[string]string // rules in force, by host
}

// A host is a namespace.
type host struct {
	name string
	ns   string
	ip   string
	veth string // its end at the bridge
}

const (
	nsPrefix     = "chaos-"
	bridgePrefix = "chbr"
	vethPrefix   = "cv"
)

// needs says what is missing on this machine, or nil.
func needs() error {
	if os.Geteuid() != 0 {
		return errors.New("chaos: needs root, for network namespaces")
	}
	for _, tool := range []string{"ip", "iptables-restore", "redis-server"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("chaos: %s is missing: apt install iproute2 iptables redis-server", tool)
		}
	}
	probe := nsPrefix + strconv.Itoa(os.Getpid()) + "-probe"
	if err := run("", "ip", "netns", "add", probe); err != nil {
		return fmt.Errorf("chaos: no network namespaces here: %w", err)
	}
	return run("", "ip", "netns", "del", probe)
}

// newNetwork makes the hosts. remove must be called, also after an error.
func newNetwork(names ...string) (*network, error) {
	n := &network{id: strconv.Itoa(os.Getpid()), cuts: make(map[int]cut), lines: make(map[string]string)}
	if err := sweep(); err != nil {
		return n, err
	}
	used, err := ip("-o", "-4", "addr")
	if err != nil {
		return n, err
	}
	for i := range 250 {
		n.base = fmt.Sprintf("10.199.%d.", (os.Getpid()+i)%250+1)
		if !strings.Contains(used, " "+n.base) {
			break
		}
	}
	bridge := bridgePrefix + n.id
	batch := []string{"link add " + bridge + " type bridge", "addr add " + n.base + "254/24 dev " + bridge, "link set " + bridge + " up"}
	for i, name := range names {
		h := &host{name: name, ns: nsPrefix + n.id + "-" + name, ip: n.base + strconv.Itoa(i+1), veth: fmt.Sprint(vethPrefix, n.id, ".", i+1)}
		n.hosts = append(n.hosts, h)
		batch = append(batch, "netns add "+h.ns,
			"link add "+h.veth+" type veth peer name eth0 netns "+h.ns,
			"link set "+h.veth+" master "+bridge+" up")
	}
	if err := run(strings.Join(batch, "\n")+"\n", "ip", "-batch", "-"); err != nil {
		return n, err
	}
	for _, h := range n.hosts {
		if err := run("link set lo up\naddr add "+h.ip+"/24 dev eth0\nlink set eth0 up\n", "ip", "-n", h.ns, "-batch", "-"); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (n *network) host(name string) *host {
	for _, h := range n.hosts {
		if h.name == name {
			return h
		}
	}
	panic("no host " + name)
}

// in is what to put in front of a command for it to run there. It becomes the command, so that signals reach that.
func (h *host) in() []string { return append([]string{"ip"}, h.command()...) }

// command is the same as arguments of ip.
func (h *host) command() []string { return []string{"netns", "exec", h.ns} }

// remove takes everything away that newNetwork made. The processes in it have to have ended.
func (n *network) remove() error { return removeAll(n.id) }

// sweep removes what processes left that were killed.
func sweep() error {
	var errs []error
	for _, id := range owners() {
		pid, err := strconv.Atoi(id)
		if err != nil || pid == os.Getpid() || syscall.Kill(pid, 0) == nil {
			continue
		}
		errs = append(errs, removeAll(id))
	}
	return errors.Join(errs...)
}

// owners returns the pids in the names of namespaces and bridges that are there.
func owners() []string {
	var all []string
	list, _ := ip("netns", "list")
	for line := range strings.Lines(list) {
		if rest, ok := strings.CutPrefix(line, nsPrefix); ok {
			id, _, _ := strings.Cut(rest, "-")
			all = append(all, id)
		}
	}
	list, _ = ip("-o", "link", "show", "type", "bridge")
	for _, word := range strings.Fields(list) {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(word, ":"), bridgePrefix); ok {
			all = append(all, rest)
		}
	}
	return all
}

func removeAll(id string) error {
	var errs []error
	// With its end here each goes at once; with its namespace, some time later.
	veths, _ := filepath.Glob("/sys/class/net/" + vethPrefix + id + ".*")
	for _, path := range veths {
		errs = append(errs, run("", "ip", "link", "del", filepath.Base(path)))
	}
	list, err := ip("netns", "list")
	errs = append(errs, err)
	for line := range strings.Lines(list) {
		ns := strings.Fields(line)[0]
		if !strings.HasPrefix(ns, nsPrefix+id+"-") {
			continue
		}
		pids, _ := ip("netns", "pids", ns) // that outlived who started them there
		for _, text := range strings.Fields(pids) {
			if pid, err := strconv.Atoi(text); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		errs = append(errs, run("", "ip", "netns", "del", ns))
	}
	bridge := bridgePrefix + id
	if _, err := os.Stat("/sys/class/net/" + bridge); err == nil {
		errs = append(errs, run("", "ip", "link", "del", bridge))
	}
	return errors.Join(errs...)
}

// run runs a command with the text as its standard input.
func run(stdin string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s%s", name, strings.Join(args, " "), err, stdin, bytes.TrimSpace(out))
	}
	return nil
}

// ip returns what a command of iproute2 says.
func ip(args ...string) (string, error) {
	var errs bytes.Buffer
	cmd := exec.Command("ip", args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return string(out), err
}
