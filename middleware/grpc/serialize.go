package holdgrpc

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/held"
	"github.com/holdfast-go/holdfast/internal/once"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// SerializeOptions are the options of [Serialize]. The zero value of each field means its default,
// and nil means all defaults.
type SerializeOptions struct {
	// Wait is the longest wait of a call for its turn. Default 10 s; at least 1 ms. Negative: not
	// at all.
	Wait time.Duration

	// MaxWaiters is the most calls for one key that may wait in this process, besides the one that
	// runs. Default 128. Negative: no limit.
	MaxWaiters int

	// Logger gets a record for each lock that was lost while its handler ran. Nil: silent.
	Logger *slog.Logger
}

// Serializer makes interceptors, see [Serialize].
type Serializer struct {
	c     *coord.Coordinator
	key   KeyFunc
	opts  SerializeOptions
	queue once.Counter
}

// Serialize makes calls with the same key run one after another, in all processes of the
// coordinator's namespace. The handler's context ends with the call's, and when the lock is lost,
// with a cause that Is [coord.ErrLost]; [Lock] returns the lock for its token. The lock is held
// until the handler has returned; a stream holds it for as long as it lasts. A call whose lock an
// interceptor further out has taken, for the same coordinator, goes by that one. It panics if c or
// key is nil, or Wait too short to be meant.
func Serialize(c *coord.Coordinator, key KeyFunc, opts *SerializeOptions) *Serializer {
	if c == nil || key == nil {
		panic("holdgrpc: Serialize needs a coordinator and a KeyFunc")
	}
	s := &Serializer{c: c, key: key}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Wait == 0 {
		s.opts.Wait = 10 * time.Second
	}
	if err := unit.Check("holdgrpc: SerializeOptions.Wait", s.opts.Wait, time.Millisecond, "10 * time.Second"); err != nil {
		panic(err.Error())
	}
	if s.opts.MaxWaiters == 0 {
		s.opts.MaxWaiters = 128
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.New(slog.DiscardHandler)
	}
	return s
}

// Unary is for grpc.UnaryInterceptor and grpc.ChainUnaryInterceptor.
func (s *Serializer) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (res any, err error) {
	err = s.run(ctx, info.FullMethod, req, func(ctx context.Context) error {
		res, err = next(ctx, req)
		return err
	})
	return res, err
}

// Stream is for grpc.StreamInterceptor and grpc.ChainStreamInterceptor.
func (s *Serializer) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return s.run(ss.Context(), info.FullMethod, nil, func(ctx context.Context) error {
		return next(srv, &stream{ss, ctx})
	})
}

// stream is a stream with another context.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *stream) Context() context.Context { return s.ctx }

// holding is a context that carries a lock.
type holding struct {
	context.Context
	c    *coord.Coordinator
	lock coord.Lock
}

type lockKey struct{}

// Held tells package coord which lock a handler holds, so that it does not wait for itself.
func (h *holding) Held() (coord.Lock, context.Context) { return h.lock, h.Context }

func (h *holding) Value(key any) any {
	if key == (lockKey{}) || key == (held.Key{}) {
		return h
	}
	return h.Context.Value(key)
}

// Lock returns the lock that [Serialize] or [Idempotent] holds for the call that ctx belongs to,
// the innermost if there are several.
func Lock(ctx context.Context) (l coord.Lock, ok bool) {
	h, ok := ctx.Value(lockKey{}).(*holding)
	if !ok {
		return coord.Lock{}, false
	}
	return h.lock, true
}

// holds reports whether the call has c's lock of the key, by an interceptor around this one.
func holds(ctx context.Context, c *coord.Coordinator, key string) bool {
	for h, _ := ctx.Value(lockKey{}).(*holding); h != nil; h, _ = h.Context.Value(lockKey{}).(*holding) {
		if h.c == c && h.lock.Key() == key && h.lock.Context().Err() == nil {
			return true
		}
	}
	return false
}

func (s *Serializer) run(ctx context.Context, method string, req any, f func(context.Context) error) error {
	key, ok, err := s.key.of(ctx, method, req)
	if err != nil {
		return err
	}
	if !ok {
		return f(ctx)
	}
	if holds(ctx, s.c, key) {
		return f(ctx)
	}
	if !s.queue.Enter(key, s.opts.MaxWaiters) {
		return status.Error(codes.ResourceExhausted, "too many calls wait for the same resource")
	}
	l, err := lock(ctx, s.c, key, s.opts.Wait)
	if err != nil {
		s.queue.Leave(key)
		return refused(ctx, err)
	}
	s.queue.Begin(key)
	defer s.queue.End(key)
	defer func() {
		if err := l.Unlock(); errors.Is(err, coord.ErrLost) {
			s.opts.Logger.Warn("holdfast: the lock of a call was lost while its handler ran", "method", method, "key", key, "error", err)
		}
	}()
	ctx, end := within(ctx, s.c, l)
	defer end()
	return f(ctx)
}

func lock(ctx context.Context, c *coord.Coordinator, key string, wait time.Duration) (coord.Lock, error) {
	if wait < 0 {
		return c.TryLock(ctx, key)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return c.Lock(ctx, key)
}

// within returns the handler's context: it ends with the call's, and when the lock is lost.
func within(ctx context.Context, c *coord.Coordinator, l coord.Lock) (context.Context, func()) {
	ctx, end := held.Under(&holding{ctx, c, l}, l.Context())
	return ctx, func() { end(coord.ErrUnlocked) }
}

// refused returns the status of a call that did not get its lock.
func refused(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), coord.ErrLost): // an interceptor further out has lost its lock
	case errors.Is(ctx.Err(), context.Canceled):
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, coord.ErrInvalidKey):
		return status.Error(codes.InvalidArgument, "the call has no usable key")
	case errors.Is(err, coord.ErrHeld):
		return status.Error(codes.Internal, "the call waits for a lock that it holds")
	case errors.Is(err, coord.ErrLocked):
		return status.Error(codes.Aborted, "another call for the same resource is being served")
	}
	return status.Error(codes.Unavailable, "locks are not available now")
}
