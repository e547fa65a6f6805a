package election_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Figures: go test ./election -run SIGTERM -v -handovers 300.
var handovers = flag.Int("handovers", 6, "how many leaders are told to stop")

// candidateEnv makes the test binary a candidate: the address of Redis, or that and ",cluster".
const candidateEnv = "HOLDFAST_CANDIDATE"

// candidate is a process that campaigns until SIGTERM. It says on stdout when it waits, and when it
// leads.
func candidate(redisAddr string, cluster bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	defer client.Close()
	opts := &coord.Options{Partitions: 31}
	if cluster {
		opts.Cluster = &coord.Cluster{Gossip: "127.0.0.1:0", Membership: gossip.Start}
	}
	c, err := coord.New(ctx, redisarbiter.New(client, &redisarbiter.Options{ColdStart: true}), opts)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	e, err := election.New(c, "billing", nil)
	if err != nil {
		return err
	}
	fmt.Println("waits")
	return e.Run(ctx, func(ctx context.Context, t *election.Term) error {
		fmt.Println("leads", time.Now().UnixNano(), uint64(t.Fence()))
		<-ctx.Done()
		return nil
	})
}

// A runner is a process that runs candidate.
type runner struct {
	cmd   *exec.Cmd
	waits chan struct{}
}

// A lead is the message of a process that has become the leader.
type lead struct {
	by    *runner
	at    time.Time
	fence uint64
}

func startCandidate(t *testing.T, env string, leads chan<- lead) *runner {
	t.Helper()
	p := &runner{exec.Command(os.Args[0]), make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), candidateEnv+"="+env), os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			var at int64
			l := lead{by: p}
			if n, _ := fmt.Sscanf(s.Text(), "leads %d %d", &at, &l.fence); n == 2 {
				l.at = time.Unix(0, at)
				leads <- l
			} else {
				close(p.waits)
			}
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-read
		_ = p.cmd.Wait()
	})
	return p
}

// A leader's process gets SIGTERM, and another process leads as soon as the first one's function
// has returned. No hand-over waits for a timer; the shortest is RetryEvery, 500 ms.
func TestRun_SIGTERM(t *testing.T) {
	for name, suffix := range map[string]string{"key by key": "", "in a cluster": ",cluster"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, leads := redistest.Start(t).Addr+suffix, make(chan lead, 100)
			for range 3 { // the leader, and two that wait
				<-startCandidate(t, env, leads).waits
			}
			now := <-leads
			var took []time.Duration
			for range *handovers {
				<-startCandidate(t, env, leads).waits
				told := time.Now()
				if err := now.by.cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				next := <-leads
				if next.fence <= now.fence {
					t.Errorf("fence %d after %d", next.fence, now.fence)
				}
				took, now = append(took, next.at.Sub(told)), next
			}
			slices.Sort(took)
			p50, p99 := took[len(took)/2], took[(len(took)*99-1)/100]
			t.Logf("%d hand-overs on SIGTERM: p50 %v, p99 %v, longest %v", len(took), p50, p99, took[len(took)-1])
			if p50 > 500*time.Millisecond {
				t.Errorf("half of the hand-overs took %v and more", p50)
			}
		})
	}
}
