//go:build linux

package netns

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Two networks with the same addresses exist at once; their hosts reach each other, and no others.
func TestNetworks(t *testing.T) {
	if err := Needs(); err != nil {
		t.Skip(err)
	}
	for _, echo := range []string{"one", "two"} {
		n, err := New("test")
		t.Cleanup(func() {
			if err := n.Remove(); err != nil {
				t.Error(err)
			}
			if found()[n.id] {
				t.Errorf("%s is left", n.id)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		s, err := n.Switch()
		if err != nil {
			t.Fatal(err)
		}
		var hosts []*Host
		for _, addr := range []string{"10.0.0.1/24", "10.0.0.2/24"} {
			h, err := n.Host("h" + string(addr[7]))
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Plug(s, addr, "fd00::"+string(addr[7])+"/64"); err != nil {
				t.Fatal(err)
			}
			hosts = append(hosts, h)
		}
		for _, addr := range []string{"10.0.0.1:7", "[fd00::1]:7"} {
			var l net.Listener
			err = hosts[0].Within(func() (err error) { l, err = net.Listen("tcp", addr); return err })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				if c, err := l.Accept(); err == nil {
					_, _ = c.Write([]byte(echo))
					c.Close()
				}
			}()
			c, err := hosts[1].Dial(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			buf := make([]byte, 3)
			if _, err := c.Read(buf); err != nil || string(buf) != echo {
				t.Errorf("%q from %s, %v", buf, addr, err)
			}
			c.Close()
		}
		if err := hosts[0].Resolve(map[string]string{"localhost": "10.0.0.2"}); err != nil {
			t.Fatal(err)
		}
		in := hosts[0].In()
		out, err := exec.Command(in[0], append(in[1:], "cat", "/etc/hosts")...).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "10.0.0.2 localhost" {
			t.Errorf("%q, %v", out, err)
		}
	}
}

// The networks of a process that was killed are removed by the next one.
func TestSweep(t *testing.T) {
	if err := Needs(); err != nil {
		t.Skip(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	n := &Network{kind: "test", id: strconv.Itoa(gone.Process.Pid) + ".1"}
	h, err := n.Host("left")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Resolve(nil); err != nil {
		t.Fatal(err)
	}
	sleep := exec.Command("ip", append(h.Command(), "sh", "-c", "echo; exec sleep 1000")...)
	out, err := sleep.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it is in the namespace
		t.Fatal(err)
	}
	next, err := New("test")
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Remove(); err != nil {
		t.Error(err)
	}
	if err := sleep.Wait(); err == nil {
		t.Error("the process was not killed")
	}
	if _, err := os.Stat(filesDir + "/" + h.ns); found()[n.id] || err == nil {
		t.Error("not all was removed")
	}
}
