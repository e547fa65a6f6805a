//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/lan"
	"github.com/holdfast-go/holdfast/internal/netns"
)

// delay makes everything late that some hosts send.
func delay(ctx context.Context, s *storm) error {
	names := s.shuffled(s.r.nodeNames())[:1+s.intN(2)]
	if s.intN(4) == 0 {
		names = s.shuffled(s.dataNames())[:1]
	}
	by := []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond}[s.intN(3)]
	defer s.begin("delay", names, "what they send is late by %v to %v", by/2, by*3/2)()
	var mends []func() error
	var errs []error
	slow := make(map[string]bool) // hosts
	for _, name := range names {
		h := s.r.net.Host(name)
		if slow[h.Namespace()] {
			continue
		}
		slow[h.Namespace()] = true
		mend, err := delayed(h, by)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		mends = append(mends, mend)
	}
	s.wait(ctx, s.some())
	for _, mend := range mends {
		errs = append(errs, mend())
	}
	return errors.Join(errs...)
}

// delayed delays each packet that the host sends to another one, by half of the given time to one
// and a half of it. So packets overtake each other, too. Where the kernel has no netem, the packets
// make a detour through this process.
func delayed(h *lan.Host, by time.Duration) (mend func() error, err error) {
	tc := append(h.Command(), "tc", "qdisc")
	err = netns.Run("", "ip", append(tc, "add", "dev", "eth0", "root", "netem", "delay", by.String(), (by/2).String())...)
	if err == nil {
		return func() error { return netns.Run("", "ip", append(tc, "del", "dev", "eth0", "root")...) }, nil
	}
	return detour(h, func() time.Duration { return by/2 + rand.N(by) })
}

// detourDevice is a network device of a host; this process reads its packets.
const detourDevice = "detour"

// detour leads the host's packets to others through a device that this process reads. This process
// sends them on, late.
func detour(h *lan.Host, late func() time.Duration) (mend func() error, err error) {
	var tun *os.File
	raw := -1
	err = h.Within(func() error {
		if tun, err = openTun(detourDevice); err != nil {
			return err
		}
		raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		return unix.SetsockoptString(raw, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "eth0")
	})
	stop := func() error {
		var errs []error
		if tun != nil {
			errs = append(errs, tun.Close()) // and the device, and its routes
		}
		if raw >= 0 {
			time.Sleep(3 * time.Second / 2) // for packets still on their way, by far
			errs = append(errs, unix.Close(raw))
		}
		return errors.Join(errs...)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("detour of %s: %w", h.Name, err), stop())
	}
	go func() {
		for buf := make([]byte, 1<<16); ; {
			n, err := tun.Read(buf)
			if err != nil {
				return // it was closed
			}
			if n < 20 || buf[0]>>4 != 4 {
				continue
			}
			packet := append([]byte(nil), buf[:n]...)
			to := &unix.SockaddrInet4{Addr: [4]byte(packet[16:20])}
			time.AfterFunc(late(), func() { _ = unix.Sendto(raw, packet, 0, to) })
		}
	}()
	// The addresses of all hosts, and not that of the bridge. Answers come by another device: that
	// must not matter.
	net := h.Addr[:strings.LastIndex(h.Addr, ".")] + ".0/25"
	err = errors.Join(
		netns.Run("", "ip", append(h.Command(), "sh", "-c", "echo 0 | tee /proc/sys/net/ipv4/conf/*/rp_filter")...),
		netns.Run("link set "+detourDevice+" up\nroute add "+net+" dev "+detourDevice+" src "+h.Addr+"\n", "ip", "-n", h.Namespace(), "-batch", "-"))
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// openTun makes a device of the network namespace of this thread.
func openTun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	r, err := unix.NewIfreq(name)
	if err == nil {
		r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}
