package debug

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// lasting prints a duration with the digits that matter.
func lasting(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d >= time.Hour:
		return d.Round(time.Minute).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(100 * time.Nanosecond).String()
}

// plural counts things.
func plural(n int, one, more string) string {
	if n == 1 {
		return "1" + one
	}
	return strconv.Itoa(n) + more
}

// ago prints the time from t to now, 1 ms at least.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return lasting(max(now.Sub(t), time.Millisecond))
}

// keyURL returns the address of a key's page.
func keyURL(root, key string) string { return root + "keys/?key=" + url.QueryEscape(key) }

func percent(n, of int) string {
	if of == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(of))
}

// streams tells of the streams of a node to the others.
func streams(n *Node) string {
	if n.Report == nil {
		return ""
	}
	up, others := 0, 0
	var missing []string
	for _, m := range n.Report.Nodes {
		switch {
		case m.Self:
		case m.Linked:
			up, others = up+1, others+1
		default:
			others++
			missing = append(missing, m.Name)
		}
	}
	text := fmt.Sprintf("%d of %d", up, others)
	if len(missing) > 0 {
		text += ", not to " + strings.Join(missing, ", ")
	}
	return text
}

// guards tells which nodes guard a node.
func guards(n *Node) string {
	if n.Report == nil {
		return ""
	}
	var all []string
	for _, m := range n.Report.Nodes {
		if m.Guardian {
			all = append(all, m.Name+" ("+lasting(m.Promise.Round(100*time.Millisecond))+")")
		}
	}
	return strings.Join(all, ", ")
}

func sum(m map[string]uint64) (n uint64) {
	for _, k := range m {
		n += k
	}
	return n
}

// heldBy says which process has a key.
func heldBy(k *coord.KeySummary, now time.Time) string {
	if k.Holder == nil {
		return "No process that answers holds it."
	}
	text := "It is held by " + k.Holder.Name
	if k.Holder.Host != "" {
		text += fmt.Sprintf(" (%s:%d)", k.Holder.Host, k.Holder.PID)
	}
	if k.Label != "" {
		text += fmt.Sprintf(", label %q", k.Label)
	}
	if !k.Since.IsZero() {
		text += ", for " + ago(now, k.Since)
	}
	return text + "."
}
