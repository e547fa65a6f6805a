package hostaddr

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name    string
		addrs   string
		routes  map[string]string // source, by target; "": the Internet
		targets string
		want    string
	}{
		{name: "one", addrs: "127.0.0.1 ::1 10.0.0.1 fe80::1", want: "10.0.0.1"},
		{name: "one, and the arbiter is here", addrs: "127.0.0.1 10.0.0.1", targets: "127.0.0.1:6379", want: "10.0.0.1"},
		{name: "route to the arbiter", addrs: "127.0.0.1 172.17.0.1 10.0.0.1 10.2.0.1", targets: "10.2.0.9:6379",
			routes: map[string]string{"": "10.0.0.1", "10.2.0.9": "10.2.0.1"}, want: "10.2.0.1"},
		{name: "the first with a route", addrs: "10.0.0.1 10.2.0.1", targets: "10.9.0.9 [fd00::9]:1 10.2.0.9",
			routes: map[string]string{"10.2.0.9": "10.2.0.1"}, want: "10.2.0.1"},
		{name: "names", addrs: "10.0.0.1 10.2.0.1", targets: "redis:6379",
			routes: map[string]string{"10.2.0.9": "10.2.0.1"}, want: "10.2.0.1"},
		{name: "a sidecar", addrs: "127.0.0.1 172.17.0.1 10.0.0.1", targets: "localhost:6379",
			routes: map[string]string{"127.0.0.1": "127.0.0.1", "": "10.0.0.1"}, want: "10.0.0.1"},
		{name: "default route", addrs: "172.17.0.1 10.0.0.1", routes: map[string]string{"": "10.0.0.1"}, want: "10.0.0.1"},
		{name: "no route", addrs: "127.0.0.1 fd00::1 172.17.0.1 10.0.0.1", want: "172.17.0.1"},
		{name: "IPv6", addrs: "::1 fe80::1 fd00::1 fd00::2", want: "fd00::1"},
		{name: "IPv6 arbiter", addrs: "10.0.0.1 fd00::1", targets: "[fd00::9]:6379",
			routes: map[string]string{"fd00::9": "fd00::1", "": "10.0.0.1"}, want: "fd00::1"},
		{name: "pods", addrs: "127.0.0.1 100.64.3.7", want: "100.64.3.7"},
		{name: "public", addrs: "127.0.0.1 203.0.113.5", want: "203.0.113.5"},
		{name: "public, and a bridge for containers", addrs: "172.17.0.1 203.0.113.5", targets: "203.0.113.9:6379",
			routes: map[string]string{"203.0.113.9": "203.0.113.5"}, want: "203.0.113.5"},
		{name: "public and private", addrs: "203.0.113.5 10.0.0.1", routes: map[string]string{"": "203.0.113.5"}, want: "10.0.0.1"},
		{name: "on a cable", addrs: "127.0.0.1 169.254.3.7", want: "169.254.3.7"},
		{name: "alone", addrs: "127.0.0.1 ::1", want: "127.0.0.1"},
		{name: "alone with IPv6", addrs: "::1 fe80::1", want: "::1"},
		{name: "nothing", want: "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machine{
				addrs: func() (all []netip.Addr) {
					for _, text := range strings.Fields(c.addrs) {
						all = append(all, netip.MustParseAddr(text))
					}
					return all
				},
				source: func(to netip.Addr) (netip.Addr, bool) {
					name := to.String()
					if slices.Contains(internet, to) {
						name = ""
					}
					from, err := netip.ParseAddr(c.routes[name])
					return from, err == nil
				},
				lookup: func(_ context.Context, _, host string) ([]netip.Addr, error) {
					switch host {
					case "redis":
						return []netip.Addr{netip.MustParseAddr("fd00::9"), netip.MustParseAddr("::ffff:10.2.0.9")}, nil
					case "localhost":
						return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
					}
					return nil, errors.New("no such host")
				},
			}
			got := choose(t.Context(), strings.Fields(c.targets), m)
			text := got.Addr.String()
			if text != c.want || got.Reason == "" {
				t.Errorf("%+v, not %s", got, c.want)
			}
		})
	}
}

// A name is not looked up where it would change nothing, or where there is no time.
func TestChooseLooksUpNoMoreThanItMust(t *testing.T) {
	m := machine{
		addrs:  func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.0.0.1")} },
		source: func(netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false },
		lookup: func(context.Context, string, string) ([]netip.Addr, error) {
			t.Error("looked up")
			return nil, nil
		},
	}
	choose(t.Context(), []string{"redis:6379"}, m)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	m.addrs = func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.2.0.1")}
	}
	choose(ended, []string{"redis:6379"}, m)
}

// On this machine, too, the choice is an address that can be bound.
func TestChooseHere(t *testing.T) {
	c := Choose(t.Context(), []string{"127.0.0.1:6379"})
	l, err := net.Listen("tcp", netip.AddrPortFrom(c.Addr, 0).String())
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	l.Close()
}
