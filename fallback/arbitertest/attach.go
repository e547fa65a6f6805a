package arbitertest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

var attachTests = []test{
	{"settings that cannot be served are refused", badSettings},
	{"settings that differ from the namespace's are named", mismatches},
	{"a new namespace is Shared and not in Grace", newNamespace},
	{"processes that attach see the same namespace", secondAttach},
	{"namespaces do not see each other", apart},
	{"many may attach to a new namespace at once", attachAtOnce},
	{"a context that has ended ends every operation", endedContext},
	{"Close gives nothing back", closing},
	{"Describe tells the settings in force, and makes no namespace", describing},
}

// describing is skipped for an Arbiter that is no Describer.
func describing(s *space) {
	d, ok := s.arbiter.(fallback.Describer)
	if !ok {
		s.t.Skip("the arbiter is not a fallback.Describer")
	}
	got, err := d.Describe(s.ctx, s.settings.Namespace)
	if err != nil || got.Namespace != s.settings.Namespace || got.Partitions != s.settings.Partitions || got.Grace != s.settings.Grace || got.Lease != 0 {
		s.t.Errorf("Describe: %+v, %v, want %+v", got, err, s.settings)
	}
	if n, err := s.arbiter.Attach(s.ctx, got); err != nil {
		s.t.Errorf("Attach with what Describe tells: %v", err)
	} else if err := n.Close(); err != nil {
		s.t.Error(err)
	}
	for range 2 {
		if _, err := d.Describe(s.ctx, s.settings.Namespace+"-none"); !errors.Is(err, fallback.ErrNoNamespace) {
			s.t.Errorf("Describe of no namespace: %v", err)
		}
	}
}

func badSettings(s *space) {
	good := s.settings
	for name, spoil := range map[string]func(*fallback.Settings){
		"no namespace":           func(x *fallback.Settings) { x.Namespace = "" },
		"a namespace too long":   func(x *fallback.Settings) { x.Namespace = strings.Repeat("n", 129) },
		"a brace":                func(x *fallback.Settings) { x.Namespace = good.Namespace + "{" },
		"another brace":          func(x *fallback.Settings) { x.Namespace = good.Namespace + "}" },
		"a space":                func(x *fallback.Settings) { x.Namespace = good.Namespace + " x" },
		"a control character":    func(x *fallback.Settings) { x.Namespace = good.Namespace + "\x00" },
		"a delete character":     func(x *fallback.Settings) { x.Namespace = good.Namespace + "\x7f" },
		"no partitions":          func(x *fallback.Settings) { x.Partitions = 0 },
		"fewer than none":        func(x *fallback.Settings) { x.Partitions = -1 },
		"partitions too many":    func(x *fallback.Settings) { x.Partitions = 65537 },
		"no Grace":               func(x *fallback.Settings) { x.Grace = 0 },
		"a Grace before its day": func(x *fallback.Settings) { x.Grace = -time.Second },
	} {
		bad := good
		spoil(&bad)
		if n, err := s.arbiter.Attach(s.ctx, bad); !errors.Is(err, fallback.ErrRefused) || n != nil {
			s.t.Errorf("Attach with %s: got %v, %v, want ErrRefused", name, n, err)
		}
	}
}

func mismatches(s *space) {
	for _, tt := range []struct {
		change      func(*fallback.Settings)
		was, is     string // the text must name both
		description string
	}{
		{func(x *fallback.Settings) { x.Partitions = 11 }, "4", "11", "Partitions"},
		{func(x *fallback.Settings) { x.Grace = 73 * time.Minute }, "1h0m0s", "1h13m0s", "Grace"},
	} {
		other := s.settings
		tt.change(&other)
		n, err := s.arbiter.Attach(s.ctx, other)
		if !errors.Is(err, fallback.ErrMismatch) || n != nil {
			s.t.Fatalf("Attach with other %s: got %v, %v, want ErrMismatch", tt.description, n, err)
		}
		if text := err.Error(); !strings.Contains(text, tt.was) || !strings.Contains(text, tt.is) {
			s.t.Errorf("Attach with other %s: %q does not name %s and %s", tt.description, text, tt.was, tt.is)
		}
	}
	s.attach() // the right settings are still right
}

func newNamespace(s *space) {
	for p := range uint32(s.settings.Partitions) {
		if r := must(s.Load(s.ctx, p))(s); r.Owner != "" || r.Grace != 0 || r.Revoked || r.Epoch == 0 {
			s.t.Errorf("partition %d: got %+v, want Shared at some epoch", p, r)
		}
	}
	want(s, "rows", s.rows("k"), []fallback.Row{{}})
}

func secondAttach(s *space) {
	other := s.attach()
	row := s.take(id("alice", 1), "k")
	s.open("alice", time.Hour)

	a := must(other.Lock(s.ctx, fallback.LockRequest{Key: "k", Me: id("bob", 1), Block: 1}))(s)
	want(s, "verdict", a.Verdict, fallback.Held)
	want(s, "holder", a.Holder, row)
	want(s, "dead", must(other.Dead(s.ctx, "alice", fallback.Stamp{}))(s).Dead, false)
	want(s, "Guarded", other.Guarded(), s.Guarded())
}

func apart(s *space) {
	other := newSpace(s.t, s.arbiter, s.settings.Grace)
	s.take(id("alice", 1), "k")
	s.open("alice", time.Hour)
	in := other.listen("alice")

	other.take(id("bob", 1), "k")
	want(s, "dead in the other one", other.dead("alice").Dead, true)
	s.wait(id("carol", 1), "k") // asks alice here
	want(s, "messages there", in.messages(), nil)
}

func attachAtOnce(s *space) {
	fresh := *s
	fresh.settings.Namespace += "-raced"
	fresh.settings.Partitions = 300
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			n, err := s.arbiter.Attach(s.ctx, fresh.settings)
			if err != nil {
				s.t.Errorf("process %d: %v", i, err)
				return
			}
			defer n.Close()
			r, err := n.Load(s.ctx, 299)
			if err != nil || r.Grace != 0 || r.Owner != "" {
				s.t.Errorf("process %d finds %+v, %v", i, r, err)
			}
		})
	}
	wg.Wait()
}

func endedContext(s *space) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	row := fallback.Row{Identity: id("alice", 1), Token: fallback.MakeToken(1, 1)}
	for name, call := range map[string]func() error{
		"Open":           func() error { _, err := s.Open(ctx, "alice", fallback.Registration{TTL: time.Hour}); return err },
		"Renew":          func() error { _, err := s.Renew(ctx, "alice", fallback.Registration{TTL: time.Hour}); return err },
		"Dead":           func() error { _, err := s.Dead(ctx, "alice", fallback.Stamp{}); return err },
		"CloseSession":   func() error { return s.CloseSession(ctx, "alice") },
		"Load":           func() error { _, err := s.Load(ctx, 0); return err },
		"Acquire":        func() error { _, err := s.Acquire(ctx, 0, "alice", fallback.Expect{}); return err },
		"Demote":         func() error { _, err := s.Demote(ctx, 0, "alice", 1, nil); return err },
		"DemoteUnserved": func() error { _, err := s.DemoteUnserved(ctx, 0, "alice", 1); return err },
		"Revoke":         func() error { return s.Revoke(ctx, 0, 1, "alice") },
		"Witness":        func() error { _, err := s.Witness(ctx, 0, 1); return err },
		"Lock": func() error {
			_, err := s.Lock(ctx, fallback.LockRequest{Key: "k", Me: id("alice", 1), Block: 1})
			return err
		},
		"Unlock": func() error {
			return errors.Join(s.Unlock(ctx, []fallback.Release{{Key: "k", Identity: id("alice", 1)}})...)
		},
		"Restore": func() error {
			return s.Restore(ctx, []fallback.Claims{{Holds: []fallback.Claim{{Key: "k", Row: row}}}})[0].Err
		},
		"ReclaimOwners": func() error { return s.ReclaimOwners(ctx, "alice", []fallback.Ownership{{Epoch: 1}})[0].Err },
		"Verify":        func() error { _, err := verify(ctx, s, []fallback.Read{{Keys: []string{"k"}}}); return err },
		"Listen":        func() error { _, err := s.Listen(ctx, "alice", func(fallback.Message) {}); return err },
		"Bury": func() error {
			b, ok := s.Namespace.(fallback.Burier)
			if !ok {
				return context.Canceled
			}
			_, err := b.Bury(ctx, "alice", 1, nil)
			return err
		},
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			s.t.Errorf("%s: got %v, want context.Canceled", name, err)
		}
	}
}

func closing(s *space) {
	n := must(s.arbiter.Attach(s.ctx, s.settings))(s)
	row := s.take(id("alice", 1), "k")
	s.open("alice", time.Hour)
	for range 2 {
		if err := n.Close(); err != nil {
			s.t.Errorf("Close: %v", err)
		}
	}
	want(s, "row", s.rows("k")[0], row)
	want(s, "dead", s.dead("alice").Dead, false)
}
