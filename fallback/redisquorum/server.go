package redisquorum

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var lua embed.FS

func script(names ...string) *redis.Script {
	text := ""
	for _, name := range names {
		part, err := lua.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // the files are embedded: a wrong name cannot get past any test
		}
		text += string(part)
	}
	return redis.NewScript(text)
}

var (
	helloScript   = script("hello")
	markScript    = script("mark")
	tellScript    = script("member", "names")
	readScript    = script("member", "read")
	prepareScript = script("member", "prepare")
	acceptScript  = script("member", "accept")
)

// maxRecords is how many records one message is about.
const maxRecords = 64

var (
	errAnother   = errors.New("it is no member: it is new, or was emptied")
	errForgotten = errors.New("it is no member: it has started again")
)

// generation is the servers as members of one generation.
type generation struct {
	*store
	name string
}

func (g *generation) count() int { return len(g.clients) }

func (g *generation) namesKey() string { return g.prefix + g.name + ":names" }

func (g *generation) keys(names []string) (keys []string) {
	for _, name := range names {
		keys = append(keys, g.prefix+g.name+":r:"+name)
	}
	return keys
}

func (g *generation) tell(ctx context.Context, server int, epoch string) (reply, error) {
	_, r, rest, err := g.send(ctx, tellScript, server, []string{g.namesKey()}, epoch)
	r.names = rest
	return r, err
}

func (g *generation) read(ctx context.Context, server int, names []string) (reply, error) {
	return g.cells(g.send(ctx, readScript, server, g.keys(names), ""))
}

func (g *generation) prepare(ctx context.Context, server int, ballot string, names []string) (reply, error) {
	return g.cells(g.send(ctx, prepareScript, server, g.keys(names), ballot))
}

func (g *generation) accept(ctx context.Context, server int, ballot string, names []string, cells []cell) (reply, error) {
	var args []any
	for i, name := range names {
		args = append(args, name, cells[i].version, cells[i].value)
	}
	return g.cells(g.send(ctx, acceptScript, server, append([]string{g.namesKey()}, g.keys(names)...), ballot, args...))
}

// send sends a message to a member, and returns the rest of its answer, after the epoch.
func (g *generation) send(ctx context.Context, s *redis.Script, server int, keys []string, ballot string, args ...any) (int, reply, []string, error) {
	answer, err := s.Run(ctx, g.clients[server], append([]string{g.markKey()}, keys...), append([]any{g.name, ballot}, args...)...).StringSlice()
	if err == nil && len(answer) < 2 {
		err = errors.New("the answer is none of the script's")
	}
	if err != nil {
		return server, reply{}, nil, g.explain(server, err)
	}
	switch answer[0] {
	case "another":
		g.missing(g, server)
		return server, reply{}, nil, g.explain(server, errAnother)
	case "forgotten":
		g.missing(g, server)
		return server, reply{}, nil, g.explain(server, errForgotten)
	}
	epoch, err := strconv.ParseUint(answer[1], 16, 32)
	if err != nil {
		return server, reply{}, nil, g.explain(server, fmt.Errorf("its mark %q: %w", g.markKey(), err))
	}
	if answer[0] == "earlier" {
		return server, reply{}, nil, g.explain(server, earlierError{uint32(epoch)})
	}
	return server, reply{epoch: uint32(epoch)}, answer[2:], nil
}

// cells reads cells.
func (g *generation) cells(server int, r reply, rest []string, err error) (reply, error) {
	if err == nil && len(rest)%4 != 0 {
		err = g.explain(server, errors.New("the answer is none of the script's"))
	}
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(rest); i += 4 {
		r.cells = append(r.cells, cell{rest[i], rest[i+1], rest[i+2], rest[i+3]})
	}
	return r, nil
}

// A mark is a server's answer about itself.
type mark struct {
	run, mode, policy       string
	generation, epoch, made string // "" for none; made: the server's process at the time
}

// member reports whether the server is one.
func (m mark) member() bool { return m.generation != "" && m.made == m.run }

func (s *store) hello(ctx context.Context, server int) (m mark, err error) {
	a, err := helloScript.Run(ctx, s.clients[server], []string{s.markKey()}).StringSlice()
	if err == nil && len(a) != 6 {
		err = errors.New("the answer is none of the script's")
	}
	if err != nil {
		return mark{}, s.explain(server, err)
	}
	return mark{a[0], a[1], a[2], a[3], a[4], a[5]}, nil
}

// makeMember makes a server a member of a generation, if its mark is still the same.
func (s *store) makeMember(ctx context.Context, server int, was mark, generation string, epoch uint32) error {
	err := markScript.Run(ctx, s.clients[server], []string{s.markKey()}, was.run, was.generation, was.epoch, was.made,
		generation, epochText(epoch)).Err()
	return s.explain(server, err)
}

// explain names the server of an error.
func (s *store) explain(server int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("server %d (%s): %w", server+1, s.clients[server].Options().Addr, err)
}
