package redisarbiter

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/fallback"
)

// waits tells a script whether WAIT follows: see Options.Replicas.
func (n *redisSpace) waits() string {
	if n.opts.Replicas > 0 {
		return "1"
	}
	return "0"
}

// Bury implements [fallback.Burier].
func (n *redisSpace) Bury(ctx context.Context, session string, version uint32, voters []string) (fallback.Burial, error) {
	if err := fallback.CheckNames("voters", voters); err != nil {
		return fallback.Burial{}, err
	}
	v, err := n.runWait(ctx, scriptBury, []string{n.sessions()}, session, version, strings.Join(voters, ","), n.waits())
	if err != nil {
		return fallback.Burial{}, err
	}
	r := reader{v: list(v)}
	left := r.ms(1)
	switch r.str(0) {
	case "dead":
		return fallback.Burial{Dead: r.err == nil}, r.err
	case "in grace":
		return fallback.Burial{Grace: left}, r.err
	default:
		if n.observer != nil {
			left = n.observer.left(session, left)
		}
		return fallback.Burial{Left: left, Version: uint32(r.num(2))}, r.err
	}
}
