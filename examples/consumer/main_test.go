package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// consumerEnv makes the test binary a consumer of the Redis server at that address.
const consumerEnv = "HOLDFAST_CONSUMER"

const idle = 200 * time.Millisecond

func TestMain(m *testing.M) {
	addr := os.Getenv(consumerEnv)
	if addr == "" {
		leak.Main(m)
		return
	}
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	err := run(context.Background(), client, fmt.Sprint("consumer-", os.Getpid()), idle, func(ctx context.Context, m redis.XMessage) error {
		order := fmt.Sprint(m.Values["order"])
		if order == "fails" && client.Incr(ctx, "attempts").Val() < 3 {
			return errors.New("the bank is busy")
		}
		if err := client.HIncrBy(ctx, "paid", order, 1).Err(); err != nil {
			return err
		}
		if order == "crash" {
			client.LPush(ctx, "in the middle", os.Getpid())
			select {} // the test kills this process
		}
		return nil
	})
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Each order is paid once, although each message is sent twice, payments fail, and a process is
// killed in the middle of one. The one whose end is not known is not paid again: it is put aside,
// as are messages that cannot be told apart.
func TestConsumer(t *testing.T) {
	takes.Seconds(t)
	server := redistest.Start(t)
	client := server.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	send := func(id, order string) {
		for range 2 {
			if err := client.XAdd(ctx, &redis.XAddArgs{Stream: "payments", Values: []string{"id", id, "order", order}}).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	processes := map[string]*exec.Cmd{}
	for range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), consumerEnv+"="+server.Addr)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		processes[fmt.Sprint(cmd.Process.Pid)] = cmd
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	for i := range 50 {
		send(fmt.Sprint("p", i), fmt.Sprint(i))
	}
	send("f", "fails")
	send("c", "crash")
	send("", "nameless")
	victim, err := client.BRPop(ctx, time.Minute, "in the middle").Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := processes[victim[1]].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	settled := func() bool {
		p, err := client.XPending(ctx, "payments", "payers").Result()
		groups, err2 := client.XInfoGroups(ctx, "payments").Result()
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return p.Count == 0 && groups[0].Lag == 0
	}
	await.Within(t, time.Minute, "all orders are paid", settled)
	paid, err := client.HGetAll(ctx, "paid").Result()
	if err != nil || len(paid) != 52 {
		t.Errorf("%d orders paid, %v", len(paid), err)
	}
	for order, times := range paid {
		if times != "1" {
			t.Errorf("order %s was paid %s times", order, times)
		}
	}
	aside, err := client.XRange(ctx, "payments:unknown", "-", "+").Result()
	if err != nil {
		t.Error(err)
	}
	nameless := 0
	for _, m := range aside {
		switch m.Values["order"] {
		case "crash":
		case "nameless":
			nameless++
		default:
			t.Errorf("put aside: %v", m.Values)
		}
	}
	if nameless < 2 || len(aside) == nameless { // messages taken from a slow one are put aside again
		t.Errorf("%d were put aside, %d of them have no ID, want 2 at least", len(aside), nameless)
	}
}
