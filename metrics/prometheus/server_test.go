package prometheus_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// server is a real Prometheus.
type server struct {
	t   *testing.T
	url string
}

// web keeps no connections, whose goroutines would be left at the end.
var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

// startServer starts one that scrapes the targets each second, with the rules of alerts.yml. The
// test is skipped without the program.
func startServer(t *testing.T, targets []string) *server {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed: apt install prometheus")
	}
	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 900ms, evaluation_interval: 1s}\nrule_files: [%s]\n"+
		"scrape_configs:\n  - job_name: holdfast\n    static_configs: [{targets: [%s]}]\n", strconv.Quote(rules), strings.Join(targets, ", "))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for range 3 { // another process may take the port meanwhile
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		_ = l.Close()
		cmd := exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr,
			"--enable-feature=exemplar-storage")
		log, err := os.Create(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-ended
			_ = log.Close()
		})
		s := &server{t, "http://" + addr}
		is := false
		await.Until(t, "Prometheus is ready", func() bool {
			select {
			case <-ended:
				return true
			default:
			}
			r, err := web.Get(s.url + "/-/ready")
			if err == nil {
				_ = r.Body.Close()
				is = r.StatusCode == http.StatusOK
			}
			return is
		})
		if is {
			return s
		}
		out, _ = os.ReadFile(log.Name())
	}
	t.Fatalf("Prometheus does not start:\n%s", out)
	return nil
}

// get asks the API.
func (s *server) get(path string, args url.Values, into any) error {
	s.t.Helper()
	r, err := web.Get(s.url + path + "?" + args.Encode())
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	var a struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if a.Status != "success" {
		return fmt.Errorf("%s: %s", path, a.Error)
	}
	return json.Unmarshal(a.Data, into)
}

// query returns the numbers that an expression has now, by the labels.
func (s *server) query(expr string) (map[string]float64, error) {
	s.t.Helper()
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	if err := s.get("/api/v1/query", url.Values{"query": {expr}}, &data); err != nil {
		return nil, err
	}
	all := make(map[string]float64)
	for _, x := range data.Result {
		v, err := strconv.ParseFloat(fmt.Sprint(x.Value[1]), 64)
		if err != nil {
			return nil, err
		}
		all[fmt.Sprint(x.Metric)] = v
	}
	return all, nil
}

// becomes waits until an expression has a number that makes ok report true.
func (s *server) becomes(expr string, ok func(float64) bool) {
	s.t.Helper()
	var last string
	await.Within(s.t, time.Minute, expr, func() bool {
		all, err := s.query(expr)
		if err != nil {
			s.t.Fatalf("%s: %v", expr, err)
		}
		if now := fmt.Sprint(all); now != last {
			last = now
			s.t.Logf("%s: %v", expr, all)
		}
		for _, v := range all {
			if ok(v) {
				return true
			}
		}
		return false
	})
}

// alert waits until an alert has had a state for an instance.
func (s *server) alert(name, instance, state string) {
	s.t.Helper()
	expr := fmt.Sprintf(`max_over_time(ALERTS{alertname=%q,instance=%q,alertstate=%q}[5m])`, name, instance, state)
	s.becomes(expr, func(v float64) bool { return v == 1 })
}

func isNumber(v float64) bool { return !math.IsNaN(v) }

// panels returns the dashboard's expressions, by the title of their panel, as Grafana sends them.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]string)
	filled := strings.NewReplacer("$instance", ".+", "$__rate_interval", "5s")
	for _, p := range board.Panels {
		for _, x := range p.Targets {
			expr := filled.Replace(x.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: %s has a variable that the test does not know", p.Title, x.Expr)
			}
			all[p.Title] = append(all[p.Title], expr)
		}
	}
	if len(all) < 10 {
		t.Fatalf("%v", all)
	}
	return all
}

// Two processes of a cluster at a real Redis, scraped by a real Prometheus: each expression of the
// dashboard has numbers, and each name that it and the alerts use is there. The alerts notice a
// process that stands still, and a Redis that goes.
func TestPrometheus(t *testing.T) {
	takes.Seconds(t)
	redis := redistest.Start(t)
	anna, berta := startNode(t, redis.Addr, "anna"), startNode(t, redis.Addr, "berta")
	s := startServer(t, []string{anna.addr, berta.addr})
	s.becomes(`sum(up{job="holdfast"})`, func(v float64) bool { return v == 2 })

	t.Run("dashboard", func(t *testing.T) {
		s := &server{t, s.url}
		for title, exprs := range panels(t) {
			for _, expr := range exprs {
				t.Run(title, func(t *testing.T) { (&server{t, s.url}).becomes(expr, isNumber) })
			}
		}
		var instances []string
		err := s.get("/api/v1/label/instance/values", url.Values{"match[]": {"holdfast_session_count"}}, &instances)
		if err != nil || len(instances) != 2 {
			t.Errorf("the variable instance: %v, %v", instances, err)
		}
	})
	t.Run("names", func(t *testing.T) { (&server{t, s.url}).checkNames() })
	t.Run("rules", func(t *testing.T) { (&server{t, s.url}).checkRules() })
	t.Run("exemplars", func(t *testing.T) {
		s := &server{t, s.url}
		await.Until(t, "there is an exemplar with a trace", func() bool {
			var data []struct {
				Exemplars []struct{ Labels map[string]string }
			}
			now := time.Now()
			if err := s.get("/api/v1/query_exemplars", url.Values{
				"query": {"holdfast_lock_class_wait_duration_seconds_bucket"},
				"start": {now.Add(-time.Minute).Format(time.RFC3339)}, "end": {now.Format(time.RFC3339)},
			}, &data); err != nil {
				t.Fatal(err)
			}
			return len(data) > 0 && data[0].Exemplars[0].Labels["trace_id"] != ""
		})
	})
	t.Run("incidents", func(t *testing.T) {
		s := &server{t, s.url}
		if err := berta.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		s.becomes(fmt.Sprintf("holdfast_partition_count{instance=%q}", anna.addr), func(v float64) bool { return v == nodePartitions })
		if err := berta.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		s.alert("HoldfastSessionLost", berta.addr, "firing")
		s.alert("HoldfastLocksLost", berta.addr, "firing")
		redis.Kill()
		s.alert("HoldfastNoSession", anna.addr, "pending")
		s.alert("HoldfastArbiterFails", anna.addr, "pending")
	})
}

// checkNames checks that the names in dashboard and alerts are there.
func (s *server) checkNames() {
	var known []string
	if err := s.get("/api/v1/label/__name__/values", nil, &known); err != nil {
		s.t.Fatal(err)
	}
	for _, file := range []string{"dashboard.json", "alerts.yml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		names := regexp.MustCompile(`holdfast_[a-z_]+`).FindAllString(string(text), -1)
		if len(names) < 5 {
			s.t.Errorf("%s: %v", file, names)
		}
		for _, name := range names {
			if !slices.Contains(known, name) {
				s.t.Errorf("%s names %s, of which Prometheus has no series", file, name)
			}
		}
	}
}

// checkRules checks that each alert could be evaluated, and that none fires while all is well.
func (s *server) checkRules() {
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State string }
		}
	}
	count := 0
	await.Until(s.t, "all rules are evaluated", func() bool {
		if err := s.get("/api/v1/rules", nil, &data); err != nil {
			s.t.Fatal(err)
		}
		count = 0
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				if r.Health != "unknown" {
					count++
				}
			}
		}
		return count >= 8
	})
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" || r.LastError != "" || r.State == "firing" {
				s.t.Errorf("%+v", r)
			}
		}
	}
}

// node is a process of the application.
type node struct {
	cmd  *exec.Cmd
	addr string // of its metrics
}

// startNode starts one, which ends with its input.
func startNode(t *testing.T, redis, name string) *node {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asNode+"="+name, "HOLDFAST_TEST_REDIS="+redis)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s says %q, %v", name, line, err)
	}
	return &node{cmd, strings.TrimSpace(line)}
}

// awaitEnd returns when the test has let go of this process, or has ended.
func awaitEnd(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
