// Command consumer pays the orders of a queue, each once, however often its message is delivered
// and whichever process dies. The queue is a stream of Redis; run as many consumers as you like:
//
//	redis-server &
//	go run ./examples/consumer -redis localhost:6379
//	redis-cli xadd payments '*' id 42 order 7
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/idempotent"
)

func main() {
	addr := flag.String("redis", "localhost:6379", "host:port of Redis")
	name := flag.String("name", "one", "of this consumer")
	idle := flag.Duration("idle", 30*time.Second, "after which a message is taken from a consumer that does not finish it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	client := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
	err := run(ctx, client, *name, *idle, func(ctx context.Context, m redis.XMessage) error {
		log.Printf("paid order %v", m.Values["order"])
		return nil
	})
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

// run consumes until ctx ends.
func run(ctx context.Context, client *redis.Client, name string, idle time.Duration, pay func(context.Context, redis.XMessage) error) error {
	// ColdStart: redis-server was just started. Leave it out where Redis may have lost locks.
	arbiter := redisarbiter.New(client, &redisarbiter.Options{ColdStart: true})
	locks, err := coord.New(ctx, arbiter, &coord.Options{Namespace: "payments"})
	if err != nil {
		return err
	}
	defer func() { // gives everything away; waits for locks in use until ctx ends
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = locks.Close(ctx)
	}()
	once := idempotent.New(locks, idempotent.NewRedisStore(client, nil), &idempotent.Options{Scope: "payments"})
	if err := client.XGroupCreateMkStream(ctx, "payments", "payers", "0").Err(); err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return err // or it is there already
	}
	for {
		// Messages that another consumer has not finished come first, and then new ones.
		old := redis.XAutoClaimArgs{Stream: "payments", Group: "payers", Consumer: name, MinIdle: idle, Start: "0", Count: 10}
		messages, _, err := client.XAutoClaim(ctx, &old).Result()
		if err == nil && len(messages) == 0 {
			fresh := redis.XReadGroupArgs{Streams: []string{"payments", ">"}, Group: "payers", Consumer: name, Count: 10, Block: idle / 2}
			var streams []redis.XStream
			streams, err = client.XReadGroup(ctx, &fresh).Result()
			for _, s := range streams {
				messages = append(messages, s.Messages...)
			}
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		for _, m := range messages {
			if err := handle(ctx, client, once, m, pay); err != nil {
				return err
			}
		}
	}
}

// handle pays a message's order once, and takes the message out of the queue if it is settled.
func handle(ctx context.Context, client *redis.Client, once *idempotent.Executor, m redis.XMessage, pay func(context.Context, redis.XMessage) error) error {
	id, _ := m.Values["id"].(string) // its sender's: a message that is sent twice has it twice
	err := once.Once(ctx, id, func(ctx context.Context, _ coord.Lock) error { return pay(ctx, m) })
	_, isFinal := errors.AsType[*idempotent.FinalError](err)
	switch {
	case err == nil || isFinal: // paid, or refused for good: now, or before
	case errors.Is(err, idempotent.ErrUnknown), errors.Is(err, idempotent.ErrNoID): // a human looks
		if err := client.XAdd(ctx, &redis.XAddArgs{Stream: "payments:unknown", Values: m.Values}).Err(); err != nil {
			return err
		}
	default: // it stays pending, and is delivered again
		log.Printf("payment %s is tried again: %v", id, err)
		return ctx.Err()
	}
	return client.XAck(ctx, "payments", "payers", m.ID).Err()
}
