//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/debug"
)

// holdfast runs the command on the operator's machine. Its status may be 1: doctor has found
// something.
func (w *world) holdfast(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, w.command, args...)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=redis://"+w.server.Addr, "HOLDFAST_NAMESPACE="+namespace, "HOLDFAST_NAME=operator",
		"HOLDFAST_PEER_KEYS="+filepath.Join(w.dir, "peer-keys"))
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if x, ok := errors.AsType[*exec.ExitError](err); ok && x.ExitCode() == 1 && len(out) > 0 {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("holdfast %s: %w: %s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out), err
}

// problemsOfPage returns the problems on the page, as a browser gets it.
func (n *node) problemsOfPage(ctx context.Context) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/debug/locks/", http.NoBody)
	if err != nil {
		return "", err
	}
	r.Header.Set("Accept", "text/html")
	text, err := n.w.read(r)
	_, box, _ := strings.Cut(html.UnescapeString(text), `<div class="box">`)
	box, _, _ = strings.Cut(box, "</div>")
	return strings.NewReplacer(`<li class="bad">`, "\n", "</li>", "", "<ul>", "", "</ul>", "").Replace(box), err
}

// problems returns the same as curl gets it.
func (n *node) problems(ctx context.Context) (string, error) {
	o, err := n.overview(ctx)
	return strings.Join(o.Problems, "\n"), err
}

// overview returns the page as curl gets it.
func (n *node) overview(ctx context.Context) (o debug.Overview, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/debug/locks/", http.NoBody)
	if err != nil {
		return o, err
	}
	text, err := n.w.read(r)
	if err != nil {
		return o, err
	}
	return o, json.Unmarshal([]byte(text), &o)
}

// samples are the values of one scrape, by name and labels as Prometheus writes them.
type samples map[string]float64

func (n *node) scrape(ctx context.Context) (samples, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	text, err := n.w.read(r)
	if err != nil {
		return nil, err
	}
	all := make(samples)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("%s/metrics: %q: %w", n.url, line, err)
		}
		all[line[:at]] = v
	}
	return all, nil
}

// since returns how much counters have grown.
func (s samples) since(before samples) samples {
	all := make(samples, len(s))
	for name, v := range s {
		all[name] = v - before[name]
	}
	return all
}

// quantile is histogram_quantile of a histogram, of all its series together: an upper bound of it,
// that of its bucket. NaN: no observations.
func (s samples) quantile(q float64, name string) float64 {
	counts, total := make(map[float64]float64), 0.0
	for series, n := range s {
		_, le, ok := strings.Cut(series, `le="`)
		if !ok || !strings.HasPrefix(series, name+"_bucket{") {
			continue
		}
		bound, err := strconv.ParseFloat(strings.TrimSuffix(le, `"}`), 64)
		if err != nil {
			continue
		}
		if counts[bound] += n; math.IsInf(bound, 1) {
			total += n
		}
	}
	best := math.NaN()
	for bound, n := range counts {
		if total > 0 && n >= q*total && !(bound >= best) {
			best = bound
		}
	}
	return best
}
