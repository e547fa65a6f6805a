package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/coord"
)

// completeNodes completes names of nodes.
func (s *settings) completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c, done, err := s.observe(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer done()
	return completions(c.Nodes()), cobra.ShellCompDirectiveNoFileComp
}

// completions returns the nodes' names, and the IDs of those that have one name.
func completions(all []coord.NodeInfo) (names []string) {
	count := make(map[string]int)
	for _, n := range all {
		count[n.Name]++
	}
	for _, n := range all {
		if count[n.Name] > 1 {
			names = append(names, n.ID)
		} else {
			names = append(names, n.Name)
		}
	}
	return names
}

// nodeCalled returns what package coord takes for the node that an operator names: by its name, if
// no other has the same one, as HOST:PID, or by its ID.
func nodeCalled(ctx context.Context, c *coord.Coordinator, text string) (string, error) {
	all, err := c.Processes(ctx)
	if err != nil {
		return "", err
	}
	return pick(all, text)
}

func pick(all []coord.Process, text string) (string, error) {
	var found []coord.Process
	for _, p := range all {
		switch text {
		case "":
		case p.ID:
			return text, nil
		case p.Name, where(&p):
			found = append(found, p)
		}
	}
	found = slices.DeleteFunc(found, func(p coord.Process) bool { return p.ID == "" }) // no node
	switch len(found) {
	case 0:
		return text, nil // package coord says that there is none
	case 1:
		return found[0].ID, nil
	}
	var each []string
	for _, p := range found {
		each = append(each, fmt.Sprintf("%s, whose ID is %s", where(&p), p.ID))
	}
	return "", fmt.Errorf("several nodes are called %q: give HOST:PID, as holdfast nodes has it, or the ID: %s", text, strings.Join(each, "; "))
}
