package redislock

import (
	"sync/atomic"
	"time"
)

// A RetryStrategy sets how long to wait for a key that is locked.
type RetryStrategy interface {
	// NextBackoff returns the next pause. A pause of less than 1 ns ends the wait.
	NextBackoff() time.Duration
}

type linear time.Duration

func (s linear) NextBackoff() time.Duration { return time.Duration(s) }

// LinearBackoff waits without an end, if it is not limited.
func LinearBackoff(backoff time.Duration) RetryStrategy { return linear(backoff) }

// NoRetry does not wait.
func NoRetry() RetryStrategy { return linear(0) }

type limited struct {
	s    RetryStrategy
	left atomic.Int64
}

func (s *limited) NextBackoff() time.Duration {
	if s.left.Add(-1) < 0 {
		s.left.Store(0)
		return 0
	}
	return s.s.NextBackoff()
}

// LimitRetry limits the number of pauses to max.
func LimitRetry(s RetryStrategy, max int) RetryStrategy {
	l := &limited{s: s}
	l.left.Store(int64(max))
	return l
}

type exponential struct {
	n           atomic.Int64
	least, most time.Duration
}

func (s *exponential) NextBackoff() time.Duration {
	pause := time.Millisecond << min(s.n.Add(1)+1, 26)
	if pause < s.least {
		return s.least
	}
	if s.most != 0 {
		pause = min(pause, s.most)
	}
	return pause
}

// ExponentialBackoff has pauses of 4 ms, 8 ms and so on, at least least and, if most is not 0, at
// most most.
func ExponentialBackoff(least, most time.Duration) RetryStrategy {
	return &exponential{least: least, most: most}
}
