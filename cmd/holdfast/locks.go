package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/coord"
)

func locksCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use: "locks [NODE]", Short: "The locks that callers have, of all nodes or of one", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: s.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, done, err := s.observe(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			var nodes []string
			if len(args) > 0 {
				node, err := nodeCalled(cmd.Context(), c, args[0])
				if err != nil {
					return err
				}
				nodes = append(nodes, node)
			} else {
				for _, n := range c.Nodes() {
					nodes = append(nodes, n.ID)
				}
			}
			var all coord.KeyList
			for _, node := range nodes {
				list, err := c.Held(cmd.Context(), node)
				if err != nil {
					if len(args) > 0 {
						return err
					}
					all.Unanswered = append(all.Unanswered, coord.Unanswered{Process: coord.Process{ID: node}, Reason: err.Error()})
					continue
				}
				all.Keys, all.More = append(all.Keys, list.Keys...), all.More+list.More
			}
			if len(args) == 0 {
				all.Unanswered = append(all.Unanswered, strangers(cmd.Context(), c)...)
			}
			return s.showKeys(&all)
		},
	}
}

// others returns the processes with a session that are no nodes.
func others(all []coord.Process) (rest []coord.Process) {
	for _, p := range all {
		if p.ID == "" {
			rest = append(rest, p)
		}
	}
	return rest
}

// strangers tells of the processes that cannot be asked for their keys, as they are no nodes.
func strangers(ctx context.Context, c *coord.Coordinator) (all []coord.Unanswered) {
	processes, err := c.Processes(ctx)
	if err != nil {
		return []coord.Unanswered{{Process: coord.Process{Name: "processes without a cluster"}, Reason: err.Error()}}
	}
	for _, p := range others(processes) {
		all = append(all, coord.Unanswered{Process: p, Reason: "it is no node of a cluster: what it has is at the arbiter, see holdfast inspect KEY"})
	}
	return all
}

// mostUnanswered is the limit for the names of processes that were not asked.
const mostUnanswered = 10

func (s *settings) showUnanswered(all []coord.Unanswered) {
	for i, u := range all {
		if i == mostUnanswered {
			s.out.line("NOT ASKED: %d more", len(all)-i)
			return
		}
		name := who(&u.Process)
		if host := where(&u.Process); host != "" {
			name += " (" + host + ")"
		}
		s.out.line("NOT ASKED: %s: %s", name, u.Reason)
	}
}
