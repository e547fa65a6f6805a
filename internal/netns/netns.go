//go:build linux

// Package netns makes hosts of network namespaces, joined by switches. It needs root and iproute2.
//
// All names carry the process that made them, so that several networks exist at once. The next
// process removes the networks of a process that was killed.
package netns

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

const (
	nsPrefix     = "hf-" // hf-KIND-ID-HOST
	bridgePrefix = "hfb" // of switches among the machine's own devices
	portPrefix   = "hfv" // of their ports; devices have 15 characters at most
	filesDir     = "/etc/netns"
)

// A Network is hosts and switches. Its methods are not safe for concurrent use.
type Network struct {
	kind  string
	id    string // pid.number, in all names
	ports int
	home  *Host // where the switches are that are not the machine's; nil: none yet
}

var networks atomic.Int64

// Needs returns an error that names a missing tool or right of this machine, or nil.
func Needs(tools ...string) error {
	if os.Geteuid() != 0 {
		return errors.New("netns: needs root")
	}
	for _, tool := range append([]string{"ip"}, tools...) {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("netns: %s is missing: apt install iproute2 iptables redis-server", tool)
		}
	}
	probe := fmt.Sprintf("%sprobe-%d.%d-x", nsPrefix, os.Getpid(), networks.Add(1))
	if err := Run("", "ip", "netns", "add", probe); err != nil {
		return fmt.Errorf("netns: no network namespaces here: %w", err)
	}
	return Run("", "ip", "netns", "del", probe)
}

// New returns a network without hosts, after it has removed those that dead processes left. The
// caller must call Remove, also after an error of another method. kind is one short word.
func New(kind string) (*Network, error) {
	n := &Network{kind: kind, id: fmt.Sprintf("%d.%d", os.Getpid(), networks.Add(1))}
	return n, sweep()
}

// Remove takes away everything that belongs to the network, and kills the processes in it.
func (n *Network) Remove() error { return remove(n.id) }

// A Switch is an Ethernet segment.
type Switch struct {
	n      *Network
	bridge string
	in     *Host // the bridge is a device of it; nil: the machine's
}

// Switch adds a switch. It is out of the machine's reach, as its addresses are: several networks
// may use the same ones.
func (n *Network) Switch() (*Switch, error) {
	if n.home == nil {
		h, err := n.Host("switches")
		if err != nil {
			return nil, err
		}
		n.home = h
	}
	n.ports++
	s := &Switch{n: n, bridge: "br" + strconv.Itoa(n.ports), in: n.home}
	return s, Run("link add "+s.bridge+" type bridge\nlink set "+s.bridge+" up\n", "ip", "-n", n.home.ns, "-batch", "-")
}

// MachineSwitch adds a switch that the machine itself has an address on: IP/bits.
func (n *Network) MachineSwitch(addr string) (*Switch, error) {
	s := &Switch{n: n, bridge: bridgePrefix + n.id}
	return s, Run("link add "+s.bridge+" type bridge\naddr add "+addr+" dev "+s.bridge+"\nlink set "+s.bridge+" up\n", "ip", "-batch", "-")
}

// A Host is a network namespace with a loopback interface of its own.
type Host struct {
	n       *Network
	Name    string
	ns      string
	devices int
}

// Host adds a host. The name is one word.
func (n *Network) Host(name string) (*Host, error) {
	h := &Host{n: n, Name: name, ns: nsPrefix + n.kind + "-" + n.id + "-" + name}
	if err := Run("", "ip", "netns", "add", h.ns); err != nil {
		return h, err
	}
	return h, h.IP("link", "set", "lo", "up")
}

// Plug connects the host to a switch, and gives the new device addresses, each IP/bits. Devices
// are eth0, eth1 and so on.
func (h *Host) Plug(s *Switch, addrs ...string) error {
	h.n.ports++
	port := portPrefix + h.n.id + "." + strconv.Itoa(h.n.ports)
	at := ""
	if s.in != nil {
		at = "-n " + s.in.ns + " "
	}
	device := "eth" + strconv.Itoa(h.devices)
	h.devices++
	lines := []string{
		at + "link add " + port + " type veth peer name " + device + " netns " + h.ns,
		at + "link set " + port + " master " + s.bridge + " up",
	}
	for _, a := range addrs {
		// nodad: an IPv6 address is usable at once.
		lines = append(lines, "-n "+h.ns+" addr add "+a+" dev "+device+map[bool]string{true: " nodad"}[strings.Contains(a, ":")])
	}
	lines = append(lines, "-n "+h.ns+" link set "+device+" up")
	for _, line := range lines {
		if err := Run("", "ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// Remove takes the host away. The processes in it have to have ended.
func (h *Host) Remove() error {
	return errors.Join(Run("", "ip", "netns", "del", h.ns), os.RemoveAll(filepath.Join(filesDir, h.ns)))
}

// IP runs a command of iproute2 in the host.
func (h *Host) IP(args ...string) error {
	return Run("", "ip", append([]string{"-n", h.ns}, args...)...)
}

// Run runs a command in the host, and waits for it.
func (h *Host) Run(args ...string) error { return Run("", "ip", append(h.Command(), args...)...) }

// In returns the words in front of a command that make it run in the host. Their process becomes
// the command, so that signals reach that.
func (h *Host) In() []string { return append([]string{"ip"}, h.Command()...) }

// Command is the same as arguments of ip.
func (h *Host) Command() []string { return []string{"netns", "exec", h.ns} }

// Namespace returns the name of the namespace, for ip -n.
func (h *Host) Namespace() string { return h.ns }

// Resolve makes names stand for addresses in the programs that are started in the host from now
// on: its own /etc/hosts.
func (h *Host) Resolve(names map[string]string) error {
	dir := filepath.Join(filesDir, h.ns)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var text strings.Builder
	for name, addr := range names {
		fmt.Fprintln(&text, addr, name)
	}
	return os.WriteFile(filepath.Join(dir, "hosts"), []byte(text.String()), 0o644)
}

// Run runs a command with the text as its standard input.
func Run(stdin string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s%s", name, strings.Join(args, " "), err, stdin, bytes.TrimSpace(out))
	}
	return nil
}

// Output returns the output of a command of iproute2 of the machine.
func Output(args ...string) (string, error) {
	var errs bytes.Buffer
	cmd := exec.Command("ip", args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return string(out), err
}

// sweep removes the networks of processes that are no more.
func sweep() error {
	var errs []error
	for id := range found() {
		text, _, _ := strings.Cut(id, ".")
		pid, err := strconv.Atoi(text)
		if err != nil || pid == os.Getpid() || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		if err := remove(id); err != nil && found()[id] { // another process may have been at it, too
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// found returns the IDs in the names of namespaces, bridges and files.
func found() map[string]bool {
	all := make(map[string]bool)
	list, _ := Output("netns", "list")
	files, _ := filepath.Glob(filepath.Join(filesDir, nsPrefix+"*"))
	for _, path := range files {
		list += filepath.Base(path) + "\n"
	}
	for line := range strings.Lines(list) {
		if parts := strings.SplitN(line, "-", 4); len(parts) == 4 && parts[0]+"-" == nsPrefix {
			all[parts[2]] = true
		}
	}
	list, _ = Output("-o", "link", "show", "type", "bridge")
	for _, word := range strings.Fields(list) {
		if id, ok := strings.CutPrefix(strings.TrimSuffix(word, ":"), bridgePrefix); ok {
			all[id] = true
		}
	}
	return all
}

func remove(id string) error {
	var errs []error
	// With its end here each goes at once; with its namespace, some time later.
	ports, _ := filepath.Glob("/sys/class/net/" + portPrefix + id + ".*")
	for _, path := range ports {
		errs = append(errs, Run("", "ip", "link", "del", filepath.Base(path)))
	}
	list, err := Output("netns", "list")
	errs = append(errs, err)
	for line := range strings.Lines(list) {
		ns := strings.Fields(line)[0]
		if parts := strings.SplitN(ns, "-", 4); len(parts) != 4 || parts[0]+"-" != nsPrefix || parts[2] != id {
			continue
		}
		pids, _ := Output("netns", "pids", ns) // that outlived the process that started them there
		for _, text := range strings.Fields(pids) {
			if pid, err := strconv.Atoi(text); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		errs = append(errs, Run("", "ip", "netns", "del", ns))
	}
	files, _ := filepath.Glob(filepath.Join(filesDir, nsPrefix+"*-"+id+"-*"))
	for _, path := range files {
		errs = append(errs, os.RemoveAll(path))
	}
	_ = os.Remove(filesDir) // if it is empty
	bridge := bridgePrefix + id
	if _, err := os.Stat("/sys/class/net/" + bridge); err == nil {
		errs = append(errs, Run("", "ip", "link", "del", bridge))
	}
	return errors.Join(errs...)
}
