package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/coord"
)

func breakCommand(s *settings) *cobra.Command {
	var fence uint64
	var reason string
	var permits bool
	cmd := &cobra.Command{
		Use: "break KEY --fence TOKEN --reason WHY", Short: "Take a lock away from the caller that has it",
		Long: "Take a lock away from the caller that has it, and from no other: the token is that of \"holdfast inspect KEY\". The lock's context\n" +
			"ends before the next caller gets the key. No code is stopped: what does not heed the context goes on, and only the\n" +
			"resource can refuse its token.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, done, err := s.observe(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			if fence == 0 {
				info, err := inspect(cmd.Context(), c, args[0], permits)
				if err == nil {
					err = s.showKey(&info, permits)
				}
				return errors.Join(errors.New("--fence is missing: nothing was done"), err)
			}
			free := func() error { return c.Break(cmd.Context(), args[0], coord.Fence(fence), reason) }
			if permits {
				free = func() error { return c.Semaphore(args[0], 1).Break(cmd.Context(), coord.Fence(fence), reason) }
			}
			if err := free(); err != nil {
				return err
			}
			if s.out.json {
				return s.out.encode(map[string]any{"key": args[0], "fence": strconv.FormatUint(fence, 10), "broken": true})
			}
			s.out.line("broken: key %s, token %d", strconv.Quote(args[0]), fence)
			return nil
		},
	}
	cmd.Flags().Uint64Var(&fence, "fence", 0, "token of the lock, which inspect tells")
	cmd.Flags().StringVar(&reason, "reason", "", "for the holder, and the logs")
	cmd.Flags().BoolVar(&permits, "permits", false, permitsUsage)
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

// freeing tells how to take a lock away: a command to paste into a shell, where that is possible.
func freeing(key, flag string, fence coord.Fence) string {
	switch text := "--fence " + token(fence) + " --reason WHY"; {
	case printable(key) != key:
		return "to free it: holdfast break with the bytes of the key, which a terminal cannot show, and" + flag + " " + text
	case strings.HasPrefix(key, "-"): // it would be taken for a flag
		return "to free it: holdfast break" + flag + " " + text + " -- " + shellWord(key)
	default:
		return "to free it: holdfast break " + shellWord(key) + flag + " " + text
	}
}

func drainCommand(s *settings) *cobra.Command {
	var reason string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Make a node give its partitions away, and take none",
		Long: "Make a node give its partitions to others, and take none until it is started anew. It goes on to lock. Locks in use stay\n" +
			"in force. NODE is a name or HOST:PID of \"holdfast nodes\", or an ID of \"holdfast partitions\".",
		Args: cobra.ExactArgs(1), ValidArgsFunction: s.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, done, err := s.observe(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			node, err := nodeCalled(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if err := c.DrainNode(cmd.Context(), node, reason); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			r, err := drained(ctx, func() (coord.NodeReport, error) { return c.Report(ctx, node) })
			if err != nil {
				return err
			}
			if s.out.json {
				return s.out.encode(r)
			}
			s.out.line("%s (%s) owns nothing any more", who(&r.Process), where(&r.Process))
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "for the node's log")
	cmd.Flags().DurationVar(&wait, "wait", time.Minute, "for how long to wait until it owns nothing")
	return cmd
}

// drained waits until a node reports that it owns nothing.
func drained(ctx context.Context, report func() (coord.NodeReport, error)) (coord.NodeReport, error) {
	left := "it is not known how many partitions are left"
	for {
		r, err := report()
		switch {
		case err != nil && ctx.Err() == nil:
			return r, err
		case err == nil && r.Owned == 0:
			return r, nil
		case err == nil:
			left = plural(r.Owned, "partition is left", "partitions are left")
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return r, fmt.Errorf("%s, and the node goes on to give them away: %w", left, context.Cause(ctx))
		}
	}
}
