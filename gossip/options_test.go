package gossip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/ring"
)

func TestOptionsThatMakeNoSense(t *testing.T) {
	for want, change := range map[string]func(*ring.Options){
		"Name is missing":         func(o *ring.Options) { o.Name = "" },
		"Name \"a b\"":            func(o *ring.Options) { o.Name = "a b" },
		"Name \"xxx":              func(o *ring.Options) { o.Name = strings.Repeat("x", 129) },
		"Session \"\\n\"":         func(o *ring.Options) { o.Session = "\n" },
		"Peer \"xxx":              func(o *ring.Options) { o.Peer = strings.Repeat("x", 256) },
		"0 partitions":            func(o *ring.Options) { o.Partitions = 0 },
		"Label is missing":        func(o *ring.Options) { o.Label = "" },
		"Label has 256 bytes":     func(o *ring.Options) { o.Label = strings.Repeat("x", 256) },
		"Bind \"localhost:1\"":    func(o *ring.Options) { o.Bind = "localhost:1" },
		"Bind \"127.0.0.1\"":      func(o *ring.Options) { o.Bind = "127.0.0.1" },
		"port must be 0":          func(o *ring.Options) { o.Bind = "127.0.0.1:65536" },
		"Bind 192.0.2.1:0":        func(o *ring.Options) { o.Bind = "192.0.2.1:0" },
		"Advertise \"x:1\"":       func(o *ring.Options) { o.Advertise = "x:1" },
		"Advertise \"0.0.0.0:1\"": func(o *ring.Options) { o.Advertise = "0.0.0.0:1" },
		"Advertise \":1\"":        func(o *ring.Options) { o.Advertise = ":1" },
		"address \"a:b:c\"":       func(o *ring.Options) { o.Seeds = []string{"ok", "a:b:c"} },
		"address \"!!!\"":         func(o *ring.Options) { o.Seeds = []string{"a-1.b_c.example.:7946", "!!!"} },
		"address \"a..b:7946\"":   func(o *ring.Options) { o.Seeds = []string{"a..b:7946"} },
		"key 1 has 15 bytes":      func(o *ring.Options) { o.Keys = [][]byte{key(1, 16), key(2, 15)} },
		"shorter than Debounce":   func(o *ring.Options) { o.Debounce, o.MaxDebounce = 2, 1 },
		"Debounce is 2ns":         func(o *ring.Options) { o.Debounce = 2 },
		"RediscoverEvery is 5ns":  func(o *ring.Options) { o.RediscoverEvery = 5 },
		"must not be negative":    func(o *ring.Options) { o.RediscoverEvery = -1 },
	} {
		opts := options("n")
		change(&opts)
		r, err := Start(opts)
		if err == nil {
			r.(*Ring).Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), "ring: ") && !strings.HasPrefix(err.Error(), "gossip: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	s, err := validate(ring.Options{Name: "n", Label: "l", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	if s.Debounce != 2*time.Second || s.MaxDebounce != 10*time.Second || s.RediscoverEvery != 5*time.Second || s.Logger == nil {
		t.Errorf("%+v", s)
	}
	s, err = validate(ring.Options{Name: "n", Label: "l", Partitions: 1, Debounce: time.Minute})
	if err != nil || s.MaxDebounce != time.Minute {
		t.Errorf("%v, %v", s.MaxDebounce, err)
	}
}

func TestAddresses(t *testing.T) {
	for _, x := range []struct{ bind, advertise, wantBind, wantAdvertise, seedPort string }{
		{"", "", "10.1.2.3:0", "10.1.2.3:0", "7946"},
		{":7000", "", "0.0.0.0:7000", "10.1.2.3:0", "7000"},
		{"0.0.0.0:0", "", "0.0.0.0:0", "10.1.2.3:0", "7946"},
		{"[::]:0", "", "[::]:0", "10.1.2.3:0", "7946"},
		{"127.0.0.1:0", "", "127.0.0.1:0", "127.0.0.1:0", "7946"},
		{"[::1]:7", "", "[::1]:7", "[::1]:0", "7"},
		{"", "203.0.113.1:7000", "10.1.2.3:0", "203.0.113.1:7000", "7946"},
		{":7", "203.0.113.1:0", "0.0.0.0:7", "203.0.113.1:0", "7"},
		{"[::ffff:10.0.0.1]:7", "", "10.0.0.1:7", "10.0.0.1:0", "7"},
	} {
		s := settings{Options: ring.Options{Bind: x.bind, Advertise: x.advertise}}
		if err := s.addresses(func() netip.Addr { return netip.MustParseAddr("10.1.2.3") }); err != nil {
			t.Error(err)
		}
		if s.bind.String() != x.wantBind || s.advertise.String() != x.wantAdvertise || fmt.Sprint(s.seedPort) != x.seedPort {
			t.Errorf("%+v: %v, %v, %v", x, s.bind, s.advertise, s.seedPort)
		}
	}
	if a := (&settings{}).localAddr(); !a.IsPrivate() && !a.IsLoopback() {
		t.Errorf("this machine's address is %v", a)
	}
}

func TestAllInterfacesAndIPv6(t *testing.T) {
	for _, bind := range []string{"0.0.0.0:0", "[::]:0", "[::1]:0", ""} {
		opts := options("a")
		opts.Bind = bind
		a, err := start(opts, hooks{tune: quick})
		if err != nil {
			t.Logf("%q: %v", bind, err) // no IPv6 here
			continue
		}
		defer a.Close()
		opts = options("b")
		opts.Bind, opts.Seeds = bind, []string{a.Gossip()}
		b := begin(t, opts, hooks{})
		await(t, a, "b", sees(b.Name()))
		if at, err := netip.ParseAddrPort(a.Gossip()); err != nil || at.Addr().IsUnspecified() || at.Port() == 0 {
			t.Errorf("%q: %v, %v", bind, at, err)
		}
	}
}

func TestParseSeed(t *testing.T) {
	for s, want := range map[string]string{
		"10.0.0.1":              "10.0.0.1:99",
		"10.0.0.1:5":            "10.0.0.1:5",
		"::1":                   "[::1]:99",
		"[::1]":                 "[::1]:99",
		"[::1]:5":               "[::1]:5",
		"2001:DB8::1":           "[2001:db8::1]:99",
		"::ffff:10.0.0.1":       "10.0.0.1:99",
		"name":                  "name 99",
		"name:5":                "name 5",
		"a.b.svc.cluster.local": "a.b.svc.cluster.local 99",
		"":                      "has no host",
		":5":                    "has no host",
		"name:":                 "port must be",
		"name:0":                "port must be",
		"name:65536":            "port must be",
		"name:x":                "port must be",
		"a:b:c":                 "not host, host:port",
		"[::1":                  "not host, host:port",
		"[::1]5":                "not host, host:port",
		"na me":                 "has no host",
		"node/10.0.0.1":         "has no host",
		"[]:5":                  "has no host",
		"fe80::1%eth0":          "without a zone",
		"0.0.0.0:5":             "one host's address",
		"[::]:5":                "one host's address",
		"224.0.0.1":             "one host's address",
	} {
		x, err := parseSeed(s, 99)
		got := fmt.Sprintf("%s %d", x.host, x.port)
		if x.addr.IsValid() {
			got = netip.AddrPortFrom(x.addr, x.port).String()
		}
		if err != nil {
			if got = err.Error(); !strings.Contains(got, want) {
				t.Errorf("%q: %v, want %q", s, got, want)
			}
		} else if got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}

func TestResolve(t *testing.T) {
	find := func(_ context.Context, host string) ([]netip.Addr, error) {
		switch host {
		case "headless":
			return []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("fd00::1")}, nil
		case "nobody":
			return nil, nil
		}
		return nil, errors.New("no such host")
	}
	for _, x := range []struct{ seeds, want, failed string }{
		{"", "", ""},
		{"headless", "10.0.0.1:99 10.0.0.2:99 [fd00::1]:99", ""},
		{"headless:5 10.0.0.1:5 10.0.0.1:5", "10.0.0.1:5 10.0.0.2:5 [fd00::1]:5", ""},
		{"nobody", "", ""},
		{"missing 10.0.0.9 headless", "10.0.0.1:99 10.0.0.2:99 10.0.0.9:99 [fd00::1]:99", "no such host"},
		{"10.0.0.9 a:b:c", "10.0.0.9:99", "not host"},
	} {
		addrs, err := resolve(t.Context(), strings.Fields(x.seeds), 99, find)
		var got []string
		for _, a := range addrs {
			got = append(got, a.String())
		}
		if strings.Join(got, " ") != x.want {
			t.Errorf("%q: %q, want %q", x.seeds, got, x.want)
		}
		if x.failed == "" && err != nil || x.failed != "" && (err == nil || !strings.Contains(err.Error(), x.failed)) {
			t.Errorf("%q: %v", x.seeds, err)
		}
	}
}

// A headless service: a name for all, at one port, with oneself among them.
func TestSeedsByName(t *testing.T) {
	a := begin(t, options("a"), hooks{})
	_, port, _ := strings.Cut(a.Gossip(), ":")
	opts := options("b")
	opts.Seeds = []string{"all.example:" + port}
	asked := ""
	b := begin(t, opts, hooks{find: func(_ context.Context, host string) ([]netip.Addr, error) {
		asked = host
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}})
	await(t, b, "a", sees(a.Name()))
	b.Close()
	if asked != "all.example" {
		t.Errorf("asked for %q", asked)
	}
}
