package fallback

import (
	"context"
	"strings"
)

// Bury implements [Burier].
func (n *redisSpace) Bury(ctx context.Context, session string, version uint32, voters []string) (Burial, error) {
	if err := checkNames("voters", voters); err != nil {
		return Burial{}, err
	}
	v, err := n.run(ctx, scriptBury, []string{n.sessions()}, session, version, strings.Join(voters, ","))
	if err != nil {
		return Burial{}, err
	}
	r := reader{v: list(v)}
	switch left := r.ms(1); r.str(0) {
	case "dead":
		return Burial{Dead: r.err == nil}, r.err
	case "in grace":
		return Burial{Grace: left}, r.err
	default:
		return Burial{Left: left, Version: uint32(r.num(2))}, r.err
	}
}
