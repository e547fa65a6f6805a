package watermill_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/holdfast-go/holdfast/adapters/adaptertest"
	"github.com/holdfast-go/holdfast/adapters/adaptertest/processtest"
	"github.com/holdfast-go/holdfast/adapters/watermill"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// consume has a router handle one message.
func consume(ctx context.Context, mw message.HandlerMiddleware, handle func(*message.Message) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	broker := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
	defer broker.Close()
	r, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		return err
	}
	outcome := make(chan error, 1)
	r.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc { // around the lock, as a poison queue is
		return func(m *message.Message) ([]*message.Message, error) {
			out, err := h(m)
			outcome <- err
			return out, nil
		}
	}, mw)
	r.AddConsumerHandler("orders", "orders", broker, handle)
	if err := broker.Publish("orders", message.NewMessage("1", nil)); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	err = <-outcome
	return errors.Join(err, r.Close(), <-done)
}

func section(t *testing.T, c *coord.Coordinator, key string, section func(context.Context) error) error {
	mw, err := watermill.Serialize(c, func(*message.Message) string { return key })
	if err != nil {
		return err
	}
	return consume(t.Context(), mw, func(m *message.Message) error { return section(m.Context()) })
}

func TestSerialize(t *testing.T) { adaptertest.Run(t, adaptertest.Fixture{Section: section}) }

func TestSerialize_Processes(t *testing.T) { processtest.Run(t, section) }

func TestSerialize_WithoutAKey(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	mw, err := watermill.Serialize(c, func(*message.Message) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	ran := false
	if err := consume(t.Context(), mw, func(*message.Message) error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("%t, %v", ran, err)
	}
	if _, err := watermill.Serialize(nil, nil); err == nil {
		t.Error("nil was accepted")
	}
}

func ExampleSerialize() {
	ctx := context.Background()
	locks, err := coord.New(ctx, fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	serialize, err := watermill.Serialize(locks, func(m *message.Message) string { return "order/" + m.Metadata.Get("order") })
	if err != nil {
		log.Fatal(err)
	}
	// router.AddMiddleware(serialize), inside of Retry and Timeout
	err = consume(ctx, serialize, func(*message.Message) error { fmt.Println("handled"); return nil })
	fmt.Println(err, locks.Close(ctx))
	// Output:
	// handled
	// <nil> <nil>
}
