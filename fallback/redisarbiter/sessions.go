package redisarbiter

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/fallback"
)

func (n *redisSpace) Open(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	return n.renew(ctx, id, r, "open")
}

func (n *redisSpace) Renew(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	return n.renew(ctx, id, r, "renew")
}

func (n *redisSpace) renew(ctx context.Context, id string, reg fallback.Registration, how string) (fallback.Renewal, error) {
	if err := reg.Guardians.Check(); err != nil {
		return fallback.Renewal{}, err
	}
	if err := n.fit(); err != nil {
		return fallback.Renewal{}, err
	}
	for lost := false; ; {
		primary := n.conns.chase.begin(ctx, &n.calls)
		t, done := n.lengths.state()
		beat, seen := n.observer.renews(id, reg.Seen)
		sent := n.observer.now()
		v, missed, err := n.runRenew(ctx, id, how, id, reg.TTL.Milliseconds(), how, reg.Info, reg.Guardians.Encode(), seen, t.Uses, t.Needs,
			beat, sightingsAtOnce, reg.Round.Spoke, reg.Round.Begin, reg.Round.After, flag(reg.Round.Ask), flag(n.variant == onAll))
		alone := done()
		if deposed := primary(); err == nil {
			err = deposed
		}
		if err != nil {
			return fallback.Renewal{}, err
		}
		r := reader{v: list(v)}
		if r.str(0) == "lost" {
			// This process knows that the namespace was formatted: its server restarted empty.
			if lost {
				return fallback.Renewal{}, errLostTwice
			}
			lost = true
			if err := n.formatAs(ctx, "full"); err != nil {
				return fallback.Renewal{}, err
			}
			continue
		}
		if r.str(0) == "other" {
			return fallback.Renewal{}, n.madeAnew()
		}
		a := fallback.Renewal{Alive: r.str(0) == "alive", Grace: r.ms(2), Sessions: int(r.num(3)), Version: uint32(r.num(6)), Length: r.num(7)}
		if n.guarded {
			a.Server = r.str(1)
		}
		if a.Alive {
			a.Missed = missed && how == "renew"
			a.Round = fallback.Round{Name: r.str(8), Complete: r.num(9) == 1}
			a.Expiry = r.num(5) + reg.TTL.Milliseconds()
			if n.observer != nil {
				a.Expiry = sent + reg.TTL.Milliseconds()
				n.observer.renewed(id, lease{beat, a.Expiry})
			}
		}
		wait := r.str(0) == "wait"
		if n.observer != nil && (a.Alive || wait) {
			n.watch(ctx, r.v[min(renewLen, len(r.v)):], a)
		}
		if s := r.str(4); s != "" {
			n.secrets.Store(&s)
			if a.Secrets, err = fallback.DecodeSecrets(s, r.num(5)); err != nil {
				return fallback.Renewal{}, err
			}
		}
		if r.err == nil {
			n.agree(ctx, a, t, alone)
		}
		if wait {
			return fallback.Renewal{}, fallback.ErrWait
		}
		return a, r.err
	}
}

// runRenew runs the script of Open and Renew. Where a session counts once all replicas have it,
// that is awaited if it is opened, and if the server did not know it. missed reports whether the
// server did not know it.
func (n *redisSpace) runRenew(ctx context.Context, id, how string, args ...any) (v any, missed bool, err error) {
	keys := []string{n.sessions()}
	misses := func(v any) any { // what the answer says of that
		if all := list(v); len(all) >= renewLen {
			return all[renewLen-1]
		}
		return int64(0)
	}
	if n.variant != onAll {
		v, err = n.runWait(ctx, scriptRenew, keys, args...)
		return v, misses(v) == int64(1), err
	}
	if known := n.known.Load(); how == "renew" && known != nil && *known == id {
		v, err = n.runWait(ctx, scriptRenew, keys, args...)
		missed = misses(v) == int64(1)
		if err != nil || misses(v) == int64(0) {
			return v, missed, err
		}
		n.known.CompareAndSwap(known, nil)
	}
	v, err = n.enter(ctx, call{scriptRenew, keys, args})
	missed = missed || misses(v) == int64(1)
	switch all := list(v); {
	case err == nil && len(all) > 0 && all[0] == "alive":
		n.known.Store(&id)
	case err != nil && how == "open":
		_ = n.CloseSession(ctx, id) // or it is waited for after a failover, until it has expired
	}
	return v, missed, err
}

var errLostTwice = errors.New("fallback: the table of sessions was lost twice")

func (n *redisSpace) Dead(ctx context.Context, id string, by fallback.Stamp) (fallback.Liveness, error) {
	_, seen := n.observer.renews(by.Session, by.Seen)
	keys, args := []string{n.sessions()}, []any{id, by.Session, seen, n.observer.overdue(id)}
	v, err := n.run(ctx, scriptDead, keys, args...)
	r := reader{v: list(v)}
	if err == nil && n.opts.Replicas > 0 && r.str(0) == "dead" { // a deposed server may not have heard of its renewals
		v, err = n.runWait(ctx, scriptDead, keys, append(args, n.waits())...)
		r = reader{v: list(v)}
	}
	if err != nil {
		return fallback.Liveness{}, err
	}
	switch left := r.ms(1); r.str(0) {
	case "dead":
		return fallback.Liveness{Dead: r.err == nil}, r.err
	case "in grace":
		return fallback.Liveness{Grace: left}, r.err
	default:
		if n.observer != nil {
			left = n.observer.alive(id, r.num(1), r.num(2))
		}
		return fallback.Liveness{Left: left}, r.err
	}
}

func (n *redisSpace) Rotate(ctx context.Context) error {
	key := fallback.NewSecret()
	lost, err := n.secret(ctx, key, "rotate")
	if lost {
		if err = n.formatAs(ctx, "full"); err == nil {
			lost, err = n.secret(ctx, key, "rotate")
		}
	}
	if err == nil && lost {
		err = errLostTwice
	}
	return err
}

func (n *redisSpace) CloseSession(ctx context.Context, id string) error {
	_, err := n.run(ctx, scriptClose, []string{n.sessions()}, id)
	return err
}

func (n *redisSpace) List(ctx context.Context) (fallback.Listing, error) {
	v, err := n.run(ctx, scriptList, []string{n.sessions()})
	if err != nil {
		return fallback.Listing{}, err
	}
	r := reader{v: list(v)}
	l := fallback.Listing{Grace: r.ms(1)}
	if n.observer != nil {
		l.Sessions = n.observer.list(&r)
	} else {
		l.Sessions = make(map[string]string, len(r.v)/2)
		for i := listLen; i+1 < len(r.v); i += 2 {
			l.Sessions[r.str(i)] = r.str(i + 1)
		}
	}
	if r.err != nil {
		return fallback.Listing{}, r.err
	}
	return l, nil
}
