package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/coord"
)

func rotateCommand(s *settings) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "rotate-secret", Short: "Make a new secret, which encrypts the nodes' gossip, where the old one may have been read",
		Long: "Make a new secret of the namespace, and wait until all nodes encrypt their gossip with it. No process needs a restart, and no lock\n" +
			"is lost. Do it where a copy of the arbiter's data is read, or runs, or was put back. Once that is over a process with the old\n" +
			"secret hears nothing of the nodes.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, done, err := s.observe(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			n, err := rotated(ctx, func() []nodeView { return nodes(ctx, c) }, func() error { return c.RotateSecret(cmd.Context()) })
			switch {
			case err != nil:
				return err
			case s.out.json:
				return s.out.encode(map[string]any{"rotated": true, "nodes": n})
			case n == 0:
				s.out.line("the arbiter has a new secret; no process is a node of a cluster now: those that start take it")
			default:
				s.out.line("%d nodes encrypt with the new secret; a SessionTTL later (10 s) they understand nothing that was encrypted with the one before", n)
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", time.Minute, "for how long to wait until all nodes use it")
	return cmd
}

// rotated rotates the secret, and waits until all nodes use the new one. It returns how many these
// are.
func rotated(ctx context.Context, look func() []nodeView, rotate func() error) (nodes int, err error) {
	all := look()
	users := secretUsers(all)
	if own := users[coord.OwnGossipKeys]; len(own) > 0 {
		return 0, fmt.Errorf("nothing was done: node %s encrypts with Options.Cluster.GossipKeys, and not with the secret: change those, by three deployments "+
			"(docs/security.md, Shared keys of your own)", own[0])
	}
	if len(users) > 1 {
		return 0, fmt.Errorf("nothing was done: %s: a rotation is under way; one more could cut nodes off", differ(users))
	}
	if err := rotate(); err != nil || len(all) == 0 {
		return 0, err
	}
	if len(users) == 0 {
		return 0, errors.New("the arbiter has a new secret, and nodes take it; none of them tells, as none answers, or all are of releases before: see holdfast nodes")
	}
	left := "it is not known which"
	for {
		if all = look(); ctx.Err() == nil { // else they were not asked for long enough
			left = behind(all, users)
		}
		if left == "" {
			return len(all), nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return 0, fmt.Errorf("the arbiter has a new secret, and nodes take it when they renew; some do not use it yet: %s: %w", left, context.Cause(ctx))
		}
	}
}

// behind names the nodes that use a key that one used before, or do not answer.
func behind(all []nodeView, before map[string][]string) string {
	var names []string
	for _, n := range all {
		if n.Report == nil {
			names = append(names, n.Name+" (no answer)")
		} else if before[n.Report.Gossip] != nil {
			names = append(names, n.Name)
		}
	}
	return strings.Join(names, ", ")
}

// secretUsers are the names of nodes, by the key that encrypts their gossip, as far as they tell.
func secretUsers(all []nodeView) map[string][]string {
	users := make(map[string][]string)
	for _, n := range all {
		if n.Report != nil && n.Report.Gossip != "" {
			users[n.Report.Gossip] = append(users[n.Report.Gossip], n.Name)
		}
	}
	return users
}

// differ tells that nodes encrypt differently, and which of them are fewest.
func differ(users map[string][]string) string {
	few := slices.MinFunc(slices.Sorted(maps.Keys(users)), func(a, b string) int { return len(users[a]) - len(users[b]) })
	return fmt.Sprintf("%s encrypts its gossip with another key than others", strings.Join(users[few], ", "))
}

// secrets looks whether all nodes encrypt with one key.
func (d *doctor) secrets(all []nodeView) {
	users := secretUsers(all)
	if len(users) < 2 {
		return
	}
	do := "wait: after a rotation of the secret all use the new one within 6 s (2 RenewEvery and a CallTimeout); if it lasts, look why that node does not renew"
	if users[coord.OwnGossipKeys] != nil {
		do = "give all nodes the same Cluster.GossipKeys, or none: finish the deployment"
	}
	d.warn("gossip", do, "%s", differ(users))
}
