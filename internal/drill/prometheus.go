//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/reexec"
	"github.com/holdfast-go/holdfast/internal/repo"
)

// A monitor is a real Prometheus on a host of its own. It scrapes the nodes once a second, and has
// the rules of alerts.yml. Their windows and pauses are shortened, since a drill does not last for
// minutes; their comparisons stay.
type monitor struct {
	*reexec.Process
	url    string
	panels map[string][]string // expressions of dashboard.json, by title
}

// window is for over how long rules and panels look back here, where they have minutes.
const window = "20s"

var (
	windows = regexp.MustCompile(`\[[0-9]+m\]`)
	pauses  = regexp.MustCompile(`(?m)^( *for: ).*$`)
)

func (w *world) startPrometheus() error {
	if _, err := exec.LookPath("prometheus"); err != nil {
		return errors.New("prometheus is missing: apt install prometheus, or -short")
	}
	root, err := repo.Root()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "metrics", "prometheus")
	rules, err := os.ReadFile(filepath.Join(dir, "alerts.yml"))
	if err != nil {
		return err
	}
	text := windows.ReplaceAllString(string(rules), "["+window+"]")
	if text = pauses.ReplaceAllString(text, "${1}2s"); text == string(rules) {
		return errors.New("alerts.yml has no windows")
	}
	config := "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\nscrape_configs:\n- job_name: shop\n  static_configs:\n"
	for _, name := range names {
		config += fmt.Sprintf("  - {targets: ['%s:8080'], labels: {instance: %s}}\n", w.net.Host(name).Addr, name)
	}
	for name, text := range map[string]string{"rules.yml": text, "prometheus.yml": config} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	h := w.net.Host(prometheusHost)
	p := &monitor{url: "http://" + h.Addr + ":9090"}
	if p.panels, err = panelsOf(filepath.Join(dir, "dashboard.json")); err != nil {
		return err
	}
	p.Process, err = reexec.Run(filepath.Join(w.dir, "prometheus.log"), nil, append(h.In(), "prometheus",
		"--config.file="+filepath.Join(w.dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(w.dir, "tsdb"),
		"--web.listen-address="+h.Addr+":9090", "--log.level=warn")...)
	if err != nil {
		return err
	}
	w.prometheus = p
	return nil
}

func (p *monitor) end() error { return p.End(endTime, unix.SIGTERM) }

// panelsOf returns the expressions of a dashboard, by the titles of its panels.
func panelsOf(file string) (map[string][]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	all := make(map[string][]string)
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			expr := strings.NewReplacer("$instance", ".*", "$__rate_interval", window).Replace(t.Expr)
			all[p.Title] = append(all[p.Title], expr)
		}
	}
	return all, nil
}

// ask asks Prometheus's API.
func (p *monitor) ask(ctx context.Context, w *world, path string, answer any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/"+path, http.NoBody)
	if err != nil {
		return err
	}
	text, err := w.read(r)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), answer)
}

// alerts waits until an alert fires for a node. In the short form it does nothing.
func (w *world) alerts(name, instance string) look {
	return w.inLongForm(func(ctx context.Context) error {
		var a struct {
			Data struct {
				Alerts []struct {
					State               string
					Labels, Annotations map[string]string
				}
			}
		}
		if err := w.prometheus.ask(ctx, w, "alerts", &a); err != nil {
			return err
		}
		for _, x := range a.Data.Alerts {
			if x.State == "firing" && x.Labels["alertname"] == name && x.Labels["instance"] == instance {
				w.say("%-12s %s: %s", "alert", name, x.Annotations["summary"])
				return nil
			}
		}
		return fmt.Errorf("%s does not fire for %s: %+v", name, instance, a.Data.Alerts)
	})
}

// plots waits until a panel of the dashboard has a line with that label beyond a bound. In the
// short form it does nothing.
func (w *world) plots(title, label, value string, above float64) look {
	return w.inLongForm(func(ctx context.Context) error {
		if len(w.prometheus.panels[title]) == 0 {
			return fmt.Errorf("the dashboard has no panel %q", title)
		}
		for _, expr := range w.prometheus.panels[title] {
			var a struct {
				Data struct {
					Result []struct {
						Metric map[string]string
						Value  [2]any // a time, and a number as text
					}
				}
			}
			if err := w.prometheus.ask(ctx, w, "query?query="+url.QueryEscape(expr), &a); err != nil {
				return err
			}
			for _, x := range a.Data.Result {
				text, _ := x.Value[1].(string)
				if v, err := strconv.ParseFloat(text, 64); err == nil && v > above && x.Metric[label] == value {
					w.say("%-12s %q: %s is %.3g", "dashboard", title, strings.TrimSpace(label+" "+value), v)
					return nil
				}
			}
		}
		return fmt.Errorf("panel %q has nothing of %s %q above %v", title, label, value, above)
	})
}

// inLongForm waits until f returns nil, where there is a Prometheus.
func (w *world) inLongForm(f func(ctx context.Context) error) look {
	return func(ctx context.Context) error {
		if w.prometheus == nil {
			return nil
		}
		return w.until(ctx, 2*limit, func() error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return f(ctx)
		})
	}
}
