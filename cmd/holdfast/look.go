package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/debug"
)

func topCommand(s *settings) *cobra.Command {
	var n int
	var by string
	var every time.Duration
	cmd := &cobra.Command{
		Use: "top", Short: "The keys that are held or waited for most, of all nodes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			order, ok := coord.ParseBy(by)
			if !ok {
				return fmt.Errorf("--by %q is none of held, wait, waiters, taken, wanted", by)
			}
			c, done, err := s.observe(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			for {
				list, err := c.Top(cmd.Context(), n, order)
				if err != nil {
					return err
				}
				list.Unanswered = append(list.Unanswered, strangers(cmd.Context(), c)...)
				if err := s.showKeys(&list); err != nil {
					return err
				}
				if !s.out.json {
					s.showProblems(cmd.Context(), c)
				}
				if every == 0 {
					return nil
				}
				select {
				case <-time.After(every):
				case <-cmd.Context().Done():
					return nil
				}
				s.out.line("")
			}
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 20, "how many")
	cmd.Flags().StringVar(&by, "by", "held", "order: held or wait (longest), waiters (most), taken (most locks in one process), wanted (held for longest, of those that others want)")
	cmd.Flags().DurationVar(&every, "every", 0, "again after so long, until interrupted")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"held", "wait", "waiters", "taken", "wanted"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// showProblems prints the problems of the nodes and the arbiter.
func (s *settings) showProblems(ctx context.Context, c *coord.Coordinator) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	o := debug.Look(ctx, c)
	for _, problem := range o.Problems {
		s.out.line("! %s", problem)
	}
	if o.More > 0 {
		s.out.line("%s not asked whether all is well: holdfast doctor asks all", plural(o.More, "more node was", "more nodes were"))
	}
}

// showKeys prints a list of keys.
func (s *settings) showKeys(list *coord.KeyList) error {
	if s.out.json {
		if list.Keys == nil {
			list.Keys = []coord.KeySummary{}
		}
		return s.out.encode(list)
	}
	rows := [][]string{{"KEY", "HELD", "HOLDER", "HOST:PID", "TOKEN", "TURNS", "LABEL", "WAITERS", "LONGEST WAIT", "MODE"}}
	for _, k := range list.Keys {
		rows = append(rows, []string{
			k.Key, since(k.Since), who(k.Holder), where(k.Holder), token(k.Fence), number(k.Turns), k.Label, number(k.Waiters), waited(&k), k.Mode,
		})
	}
	if !slices.ContainsFunc(list.Keys, func(k coord.KeySummary) bool { return k.Mode != "" }) {
		for i := range rows {
			rows[i] = rows[i][:len(rows[i])-1]
		}
	}
	err := s.out.table(rows)
	if list.More > 0 {
		s.out.line("and %d more", list.More)
	}
	s.showUnanswered(list.Unanswered)
	return err
}

// waited returns the wait of the first waiter.
func waited(k *coord.KeySummary) string {
	if k.Expected && !k.Waiting.IsZero() {
		return since(k.Waiting) + " (expected)"
	}
	return since(k.Waiting)
}

func inspectCommand(s *settings) *cobra.Command {
	var permits bool
	cmd := &cobra.Command{
		Use: "inspect KEY", Short: "Which process has a key, since when, and which wait for it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, done, err := s.observe(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			info, err := inspect(cmd.Context(), c, args[0], permits)
			if err != nil {
				return err
			}
			return s.showKey(&info, permits)
		},
	}
	cmd.Flags().BoolVar(&permits, "permits", false, permitsUsage)
	return cmd
}

const permitsUsage = "of the semaphore with that key, and not of the lock"

// inspect asks about a lock, or a semaphore.
func inspect(ctx context.Context, c *coord.Coordinator, key string, permits bool) (coord.KeyInfo, error) {
	if permits {
		return c.Semaphore(key, 1).Inspect(ctx) // how many it has is in the answer
	}
	return c.Inspect(ctx, key)
}

func (s *settings) showKey(info *coord.KeyInfo, permits bool) error {
	if s.out.json {
		return s.out.encode(info)
	}
	owner := "the arbiter"
	if info.Owner != nil {
		owner = "node " + who(info.Owner) + " (" + where(info.Owner) + ")"
	}
	s.out.line("key %s of partition %d, granted by %s in epoch %d", strconv.Quote(info.Key), info.Partition, owner, info.Epoch)
	h := info.Holder
	switch {
	case h == nil && len(info.Shared) > 0: // the table says so
	case info.NotServing:
		s.out.line("not known whether it is held: its owner does not serve the key's partition, which it gives away or is about to take: look again in a moment; " +
			"if that lasts, see what holdfast doctor says of that node")
	case info.Unknown:
		s.out.line("not known whether it is held: its owner does not answer")
	case h == nil:
		s.out.line("free")
	case !h.Locked && h.Since.IsZero() && !slices.ContainsFunc(info.Unanswered, func(u coord.Unanswered) bool { return u.Session == h.Session }) && h.Fence == 0:
		s.out.line("free: kept by %s (%s) for its next caller", who(&h.Process), where(&h.Process))
	default:
		text := fmt.Sprintf("held by %s (%s), token %s", who(&h.Process), where(&h.Process), token(h.Fence))
		if !h.Since.IsZero() {
			text += fmt.Sprintf(", for %s, since %s", since(h.Since), h.Since.Local().Format(time.DateTime))
		}
		if h.Turns > 1 {
			text += fmt.Sprintf(", %d turns", h.Turns)
		}
		if h.Label != "" {
			text += fmt.Sprintf(", label %q", h.Label)
		}
		s.out.line("%s", text)
	}
	if len(info.Shared) > 0 {
		rows := [][]string{{"HAS", "HOST:PID", "MODE", "FREE", "CALLERS", "HELD", "TOKEN", "LABELS"}}
		for _, h := range info.Shared {
			labels, free := cmp.Or(strings.Join(h.Labels, ", "), h.Label), ""
			if h.Locked || h.Free > 0 { // else the process could not be asked
				free = strconv.Itoa(h.Free)
			}
			rows = append(rows, []string{
				who(&h.Process), where(&h.Process), h.Mode, free, number(h.Readers), since(h.Since), token(h.Fence), labels,
			})
		}
		if !permits {
			for i := range rows {
				rows[i] = slices.Delete(rows[i], 3, 4)
			}
		}
		if err := s.out.table(rows); err != nil {
			return err
		}
	}
	if len(info.Waiters) > 0 {
		rows := [][]string{{"WAITS", "HOST:PID", "MODE", "CALLERS", "LONGEST", "LABELS"}}
		for _, w := range info.Waiters {
			mode := cmp.Or(w.Mode, "lock")
			rows = append(rows, []string{who(&w.Process), where(&w.Process), mode, number(w.Callers), since(w.Since), strings.Join(w.Labels, ", ")})
		}
		if err := s.out.table(rows); err != nil {
			return err
		}
	}
	s.showUnanswered(info.Unanswered)
	flag := ""
	if permits {
		flag = " --permits"
	}
	for _, x := range append(slices.Clone(info.Shared), holders(h)...) {
		if x.Locked {
			s.out.line("%s", freeing(info.Key, flag, x.Fence))
		}
	}
	return nil
}

func holders(h *coord.KeyHolder) []coord.KeyHolder {
	if h == nil {
		return nil
	}
	return []coord.KeyHolder{*h}
}

// nodeView is a node as the arbiter lists it, and as it tells of itself.
type nodeView struct {
	coord.NodeInfo
	Report *coord.NodeReport `json:"report,omitempty"`
	Error  string            `json:"error,omitempty"` // why there is none
	err    error             // the same
}

// nodes asks all nodes.
func nodes(ctx context.Context, c *coord.Coordinator) []nodeView {
	listed := c.Nodes()
	all := make([]nodeView, len(listed))
	for i, n := range listed {
		all[i].NodeInfo = n
	}
	askThese(ctx, c, all, func(*nodeView) bool { return true })
	return all
}

// askThese asks some nodes at the same time, and reports whether there are any.
func askThese(ctx context.Context, c *coord.Coordinator, all []nodeView, these func(*nodeView) bool) (some bool) {
	var work sync.WaitGroup
	for i := range all {
		if n := &all[i]; these(n) {
			some = true
			work.Go(func() { n.ask(ctx, c) })
		}
	}
	work.Wait()
	return some
}

// ask asks the node.
func (n *nodeView) ask(ctx context.Context, c *coord.Coordinator) {
	n.Report, n.Error, n.err = nil, "", nil
	r, err := c.Report(ctx, n.ID)
	if err != nil {
		n.Error, n.err = err.Error(), err
		return
	}
	n.Report = &r
}

func nodesCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use: "nodes", Short: "The processes of the namespace, and what they do", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, done, err := s.observe(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			all := nodes(cmd.Context(), c)
			processes, err := c.Processes(cmd.Context())
			if err != nil {
				return err
			}
			rest := others(processes)
			if s.out.json {
				return s.out.encode(struct {
					Nodes  []nodeView      `json:"nodes"`
					Others []coord.Process `json:"others,omitempty"` // that lock at the arbiter
				}{all, rest})
			}
			rows := [][]string{{"NODE", "HOST:PID", "STATE", "UP", "OWNS", "LOCKED", "WAITING", "LOST", "SESSIONS", "VERSION", "TROUBLE"}}
			for _, n := range all {
				r := n.Report
				if r == nil {
					at := n.Peer // it may have ended meanwhile
					if i := slices.IndexFunc(processes, func(p coord.Process) bool { return p.ID == n.ID }); i >= 0 {
						at = cmp.Or(where(&processes[i]), at)
					}
					rows = append(rows, []string{n.Name, at, n.State, "", "", "", "", "", "", "", n.Error})
					continue
				}
				trouble := r.Missing
				if len(r.Troubles) > 0 {
					trouble = r.Troubles[0]
				}
				lost := uint64(0)
				for _, k := range r.Lost {
					lost += k
				}
				rows = append(rows, []string{
					r.Name, where(&r.Process), r.State, lasting(r.Up), strconv.Itoa(r.Owned), strconv.Itoa(r.Locked), strconv.Itoa(r.Waiting),
					strconv.FormatUint(lost, 10), strconv.Itoa(r.Sessions), r.Version, trouble,
				})
			}
			for _, p := range rest {
				rows = append(rows, []string{who(&p), where(&p), "no node", "", "", "", "", "", "", "", ""})
			}
			return s.out.table(rows)
		},
	}
}

func partitionsCommand(s *settings) *cobra.Command {
	var each bool
	cmd := &cobra.Command{
		Use: "partitions", Short: "Which node owns how many partitions, or each of them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, done, err := s.observe(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			all, err := c.Partitions(cmd.Context())
			if err != nil {
				return err
			}
			if s.out.json {
				return s.out.encode(all)
			}
			if each {
				rows := [][]string{{"PARTITION", "OWNER", "HOST:PID", "EPOCH", "REVOKED", "GRACE", "ERROR"}}
				for _, p := range all {
					rows = append(rows, []string{
						strconv.Itoa(int(p.Number)), who(p.Owner), where(p.Owner), strconv.Itoa(int(p.Epoch)), yes(p.Revoked), wait(p.Grace), p.Error,
					})
				}
				return s.out.table(rows)
			}
			return s.showShares(all)
		},
	}
	cmd.Flags().BoolVarP(&each, "all", "a", false, "each partition")
	return cmd
}

func (s *settings) showShares(all []coord.PartitionInfo) error {
	count, host, in := make(map[string]int), make(map[string]string), 0
	for _, p := range all {
		name := "(the arbiter)"
		switch {
		case p.Error != "":
			name = "(not known)"
		case p.Owner != nil && p.Owner.Name == "":
			name = "session " + p.Owner.Session + ", which is not listed"
		case p.Owner != nil:
			name = p.Owner.ID
			host[name] = where(p.Owner)
		}
		if count[name]++; p.Grace > 0 {
			in++
		}
	}
	var names []string
	for name := range count {
		names = append(names, name)
	}
	slices.Sort(names)
	rows := [][]string{{"OWNER", "HOST:PID", "PARTITIONS", "SHARE"}}
	for _, name := range names {
		rows = append(rows, []string{name, host[name], strconv.Itoa(count[name]), fmt.Sprintf("%.1f%%", 100*float64(count[name])/float64(len(all)))})
	}
	err := s.out.table(rows)
	if in > 0 {
		s.out.line("%s in Grace: the arbiter grants nothing new of them; nodes that own some do", plural(in, "partition is", "partitions are"))
	}
	return err
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func wait(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return lasting(d)
}

func keyCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use: "key KEY", Short: "A key's partition, and its place at the arbiter", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := s.arbiter()
			if err != nil {
				return err
			}
			defer func() { _ = a.close() }()
			ctx, cancel := context.WithTimeout(cmd.Context(), s.timeout)
			defer cancel()
			found, err := a.Describe(ctx, s.namespace)
			if err != nil {
				return s.explain(err)
			}
			p := xxhash.Sum64String(args[0]) % uint64(found.Partitions)
			v := keyPlace{Key: args[0], Partition: p}
			rows := [][]string{{"partition", strconv.FormatUint(p, 10), fmt.Sprintf("of %d", found.Partitions)}}
			if a.redis != nil {
				part := fmt.Sprintf("{%s:p%d}", s.namespace, p)
				v.Record, v.Field, v.Queue, v.Result = part, "r:"+args[0], part+":w:"+args[0], part+":v:"+args[0]
				rows = append(rows, []string{"its row, if the arbiter grants it", v.Record, "HGET field " + v.Field},
					[]string{"callers that wait at the arbiter", v.Queue, ""}, []string{"result of coord.Share", v.Result, ""})
			} else {
				v.Record = fmt.Sprintf("%s/p%d", s.namespace, p)
				rows = append(rows, []string{"its partition's record", v.Record, "key of the table"})
			}
			if s.out.json {
				return s.out.encode(v)
			}
			return s.out.table(rows)
		},
	}
}

// A keyPlace says where a key is at the arbiter. The last three are Redis's.
type keyPlace struct {
	Key       string `json:"key"`
	Partition uint64 `json:"partition"`
	Record    string `json:"record"`
	Field     string `json:"field,omitempty"`
	Queue     string `json:"queue,omitempty"`
	Result    string `json:"result,omitempty"`
}
