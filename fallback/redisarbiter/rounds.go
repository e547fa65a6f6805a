package redisarbiter

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
)

// Graces implements [fallback.Rounder]. The records are read by plain commands: their fields of a
// Grace were written when it began.
func (n *redisSpace) Graces(ctx context.Context, partitions []uint32) []fallback.NamedGrace {
	all := make([]fallback.NamedGrace, len(partitions))
	if len(partitions) == 0 {
		return all
	}
	names := make([]string, len(partitions))
	for i, p := range partitions {
		names[i], all[i] = n.part(p), fallback.NamedGrace{Partition: p, Err: errNotRead}
	}
	var work sync.WaitGroup
	for _, g := range n.sameServer(ctx, names) {
		work.Go(func() { // a server that does not answer holds up no other
			got, err := outlive(ctx, &n.calls, func(ctx context.Context) ([]redis.Cmder, error) {
				got, err := n.conns.work.Pipelined(ctx, func(pipe redis.Pipeliner) error {
					for _, i := range g {
						pipe.HMGet(ctx, names[i], "u", "i", "m", "e")
					}
					return nil
				})
				lookAgain(ctx, n.conns.work, err)
				return got, err
			})
			for k, i := range g {
				switch cmd := nth(got, k); {
				case cmd == nil:
					all[i].Err = refused(errors.Join(err, errNotRead))
				case cmd.Err() != nil:
					all[i].Err = refused(cmd.Err())
				default:
					all[i].Name, all[i].Err = graceName(cmd.Val()), nil
				}
			}
		})
	}
	work.Wait()
	return all
}

var errNotRead = errors.New("fallback: the record was not read")

func nth(all []redis.Cmder, i int) *redis.SliceCmd {
	if i >= len(all) {
		return nil
	}
	cmd, _ := all[i].(*redis.SliceCmd)
	return cmd
}

// graceName is Partition.GraceName of the fields u, i, m and e of a record.
func graceName(fields []any) string {
	if len(fields) != 4 {
		return ""
	}
	process, _ := fields[0].(string)
	server, _ := fields[1].(string)
	record, _ := fields[2].(string)
	changed, _ := fields[3].(string)
	_, rest, _ := strings.Cut(record, " ") // epoch
	_, rest, _ = strings.Cut(rest, " ")    // seq
	grace, _, _ := strings.Cut(rest, " ")
	if server == "" || changed == "" || grace != changed {
		return ""
	}
	return cmp.Or(process, server) + " " + grace
}

// EndGraces implements [fallback.Rounder].
func (n *redisSpace) EndGraces(ctx context.Context, graces []fallback.NamedGrace) []fallback.EndedGrace {
	batch := make([]call, len(graces))
	for i, g := range graces {
		by, grace, _ := strings.Cut(g.Name, " ")
		batch[i] = call{scriptEnd, []string{n.part(g.Partition)}, []any{"", by, grace}}
	}
	all := make([]fallback.EndedGrace, len(graces))
	for i, o := range n.runAll(ctx, batch) {
		all[i] = fallback.EndedGrace{Ended: o.err == nil && o.v == int64(1), Err: o.err}
	}
	return all
}

// TellRound implements [fallback.Rounder].
func (n *redisSpace) TellRound(ctx context.Context) error {
	return n.tellAll(ctx, n.conns.pulse, string(fallback.Changes)+" ")
}
