package redisarbiter

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
)

// Describe implements [fallback.Describer]: it reads the format mark.
func (a *Arbiter) Describe(ctx context.Context, namespace string) (fallback.Settings, error) {
	s := fallback.Settings{Namespace: namespace, Partitions: 1, Grace: 1e9}
	if err := s.Check(); err != nil {
		return s, err
	}
	if v := reflect.ValueOf(a.client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return s, fmt.Errorf("%w: the Redis client is nil", fallback.ErrRefused)
	}
	n := &redisSpace{settings: s}
	mark, err := a.client.HGet(ctx, n.sessions(), "f").Result()
	if errors.Is(err, redis.Nil) || err == nil && mark == "" {
		return s, fmt.Errorf("%w: %q", fallback.ErrNoNamespace, namespace)
	}
	if err != nil {
		return s, atStart(refused(err))
	}
	return fallback.ParseMark(namespace, mark)
}
