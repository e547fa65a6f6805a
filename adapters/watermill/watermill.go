// Package watermill is a middleware for github.com/ThreeDotsLabs/watermill that handles messages
// about the same thing one after another, in all consumers together.
package watermill

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/holdfast-go/holdfast/coord"
)

// Serialize returns a middleware that calls the handler with the lock of the message's key. key
// returns "" for messages that need no lock. The message's context ends while the handler runs if
// the lock is lost, with that as its cause, and carries the lock.
//
// The lock ends with the handler. The router publishes the produced messages, and acknowledges the
// message, after that: a handler publishes messages by itself that must be in order with the lock.
//
// An error of Lock is the handler's: the message comes again, as the subscriber does it. A message
// that waits for its lock occupies its consumer: so let the broker send messages of one key to one
// consumer where it can. It does not execute a message once: one that was handled
// comes again if its acknowledgement was lost.
func Serialize(c *coord.Coordinator, key func(*message.Message) string) (message.HandlerMiddleware, error) {
	if c == nil || key == nil {
		return nil, errors.New("watermill: the coordinator or the key function is nil")
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) (produced []*message.Message, err error) {
			k := key(m)
			if k == "" {
				return h(m)
			}
			outer := m.Context()
			err = c.Do(outer, k, func(ctx context.Context, _ coord.Lock) error {
				m.SetContext(ctx)
				defer m.SetContext(outer)
				produced, err = h(m)
				return err
			})
			return produced, err
		}
	}, nil
}
