package holdgrpc

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/once"
	"github.com/holdfast-go/holdfast/internal/unit"
	"github.com/holdfast-go/holdfast/middleware"
)

// ReplayedHeader is in the header of each answer that [Idempotent] replays, with the value "true".
const ReplayedHeader = "idempotent-replayed"

// IdempotentOptions are the options of [Idempotent]. The zero value of each field means its
// default, and nil means all defaults.
type IdempotentOptions struct {
	// Header is the key of the metadata with the idempotency key, of letters, digits, "-", "_" and
	// "."; capitals count as small letters. Default "idempotency-key". Calls without it pass.
	Header string

	// Wait is the longest wait of a call for the end of the first one with its key. Default 10 s;
	// at least 1 ms. Negative: not at all.
	Wait time.Duration

	// MaxWaiters is the most calls with one key that may wait in this process for the first one,
	// besides the one that runs; others are told at once that it is being executed (Aborted).
	// Default 32. Negative: no limit.
	MaxWaiters int

	// TTL is the life of a call's record, from its last change. Default 24 h; at least 1 s. It must
	// not be negative.
	TTL time.Duration

	// StoreTimeout is the limit for one call of the store. Default 5 s; at least 1 ms. It must not
	// be negative.
	StoreTimeout time.Duration

	// MaxAnswer is the largest size of an answer's messages together that is kept, in bytes. Of a
	// larger answer a repeated call learns that it was executed (AlreadyExists). The store needs
	// room for all answers of TTL. Default 64 KiB. Negative: only answers without messages are
	// kept, which are errors.
	MaxAnswer int

	// Final reports whether an error with this code is final, and to be replayed. After any other
	// the call may be executed again. An error of package context has the code that the server
	// sends, and one that Is [coord.ErrLost] and has no status counts as Canceled. Default: all but
	// Canceled, DeadlineExceeded, ResourceExhausted, Aborted and Unavailable.
	Final func(codes.Code) bool

	// Logger gets a record for each answer that could not be stored. Nil: silent.
	Logger *slog.Logger
}

// Idempotency makes an interceptor, see [Idempotent].
type Idempotency struct {
	scope   KeyFunc
	opts    IdempotentOptions
	machine once.Machine
}

// Idempotent executes a call with an idempotency key in its metadata once, however often it is
// sent. That holds over all processes that share the coordinator's namespace and the store. Other
// calls with the key get the answer of the first one, its messages and its status, with
// [ReplayedHeader]; other headers and trailers are not kept. Requests and answers have to be
// messages of protobuf, with types that are linked into the program.
//
// Unary and server-streaming calls may have a key. The messages of a stream go to the caller as
// they are sent. A caller that streams cannot have one (InvalidArgument): its request is not known
// before the handler runs.
//
// scope is the user or tenant that the key is of: the same key in two scopes is two keys. A
// repeated call has to have the same method and request (InvalidArgument otherwise). That the
// handler is about to run is stored before it does, and its answer before the caller gets it. If
// the process dies in between, the outcome is unknown, and repeated calls get FailedPrecondition.
// The handler's context does not end with the caller's, but when the lock of the key is lost.
//
// It panics if c, store or scope is nil, TTL or StoreTimeout negative, or a time too short to be
// meant. It also panics if Header is a key that metadata cannot have.
func Idempotent(c *coord.Coordinator, store middleware.Store, scope KeyFunc, opts *IdempotentOptions) *Idempotency {
	if c == nil || store == nil || scope == nil {
		panic("holdgrpc: Idempotent needs a coordinator, a Store and a scope")
	}
	m := &Idempotency{scope: scope}
	if opts != nil {
		m.opts = *opts
	}
	o := &m.opts
	if o.Header == "" {
		o.Header = "idempotency-key"
	}
	if o.Header = strings.ToLower(o.Header); !carried(o.Header) {
		panic(fmt.Sprintf("holdgrpc: IdempotentOptions.Header: metadata cannot have the key %q", o.Header))
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.Wait, 10 * time.Second}, {&o.TTL, 24 * time.Hour}, {&o.StoreTimeout, 5 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if o.TTL < 0 || o.StoreTimeout < 0 {
		panic("holdgrpc: IdempotentOptions.TTL and StoreTimeout must not be negative")
	}
	if err := errors.Join(unit.Check("holdgrpc: IdempotentOptions.Wait", o.Wait, time.Millisecond, "10 * time.Second"),
		unit.Check("holdgrpc: IdempotentOptions.TTL", o.TTL, time.Second, "24 * time.Hour"),
		unit.Check("holdgrpc: IdempotentOptions.StoreTimeout", o.StoreTimeout, time.Millisecond, "5 * time.Second")); err != nil {
		panic(err.Error())
	}
	if o.MaxWaiters == 0 {
		o.MaxWaiters = 32
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = 64 << 10
	}
	if o.Final == nil {
		o.Final = final
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m.machine = once.Machine{Locks: c, Store: store, Wait: o.Wait, MaxWaiters: o.MaxWaiters, TTL: o.TTL, StoreTimeout: o.StoreTimeout}
	return m
}

// carried reports whether callers can send metadata with this key, which is in lower case.
func carried(key string) bool {
	return !strings.HasPrefix(key, "grpc-") && !strings.ContainsFunc(key, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	})
}

func final(c codes.Code) bool {
	switch c {
	case codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Unavailable:
		return false
	}
	return true
}

// Unary is for grpc.UnaryInterceptor and grpc.ChainUnaryInterceptor.
func (m *Idempotency) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	x, err := m.begin(ctx, info.FullMethod, req)
	if x == nil {
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
	if x.print, err = printOf(info.FullMethod, req); err != nil {
		return nil, err
	}
	x.next = func(ctx context.Context) (any, error) { return next(ctx, req) }
	return x.answer()
}

// begin returns the execution of a call with an idempotency key, and nil if it has none. req is nil
// for a stream.
func (m *Idempotency) begin(ctx context.Context, method string, req any) (*execution, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md[m.opts.Header]
	if len(values) == 0 {
		return nil, nil
	}
	if len(values) > 1 || values[0] == "" || len(values[0]) > middleware.MaxIdempotencyKey {
		return nil, status.Errorf(codes.InvalidArgument, "the metadata %q has to be there once, with 1 to %d bytes", m.opts.Header,
			middleware.MaxIdempotencyKey)
	}
	scope, ok, err := m.scope.of(ctx, method, req)
	if err != nil || !ok {
		return nil, err
	}
	id := digest("grpc", scope, values[0])
	return &execution{m: m, ctx: ctx, id: base64.RawURLEncoding.EncodeToString(id[:])}, nil
}

// printOf returns the digest that a repeated call must have in common with the first one.
func printOf(method string, req any) (print once.Print, err error) {
	message, ok := req.(proto.Message)
	if !ok {
		return print, status.Error(codes.Internal, "the request is no message of protobuf")
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		return print, status.Error(codes.Internal, "the request cannot be compared")
	}
	return digest(method, string(body)), nil
}

// digest is one of a list of texts.
func digest(texts ...string) [sha256.Size]byte {
	var b []byte
	for _, s := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return sha256.Sum256(b)
}

// execution is a call with an idempotency key: a once.Job.
type execution struct {
	m     *Idempotency
	ctx   context.Context
	id    string // of the record
	print once.Print
	next  func(context.Context) (any, error) // returns a message, or a *recorded
	lock  coord.Lock
	res   any // the result of next
	err   error
	pack  error // why the answer cannot be kept: the outcome is unknown to repeated calls
}

// answer executes the call, or returns the answer of its record, a message or a *recorded.
func (x *execution) answer() (any, error) {
	out, err := x.m.machine.Do(x.ctx, x.id, x.print, x)
	if out.NotSaved != nil {
		x.m.opts.Logger.Error("holdfast: the answer to a call could not be stored", "key", x.lock.Key(), "fence", x.lock.Fence(),
			"error", out.NotSaved)
	}
	switch {
	case err != nil:
		return nil, x.refused(err)
	case !out.Ran:
		return x.replay(out.Record)
	case x.pack != nil:
		return nil, x.pack
	case errors.Is(out.NotSaved, middleware.ErrStale):
		return nil, status.Error(codes.FailedPrecondition, "the call took too long and was executed again: ask again for that answer")
	}
	return x.res, x.err
}

// refused returns the status of a call that was not executed.
func (x *execution) refused(err error) error {
	switch {
	case errors.Is(err, once.ErrReused):
		return status.Error(codes.InvalidArgument, "the idempotency key was used for another call")
	case errors.Is(err, once.ErrUnknown):
		return status.Error(codes.FailedPrecondition, "this call was begun before, and it is not known whether it was executed")
	case errors.Is(err, once.ErrInProgress) && x.ctx.Err() == nil:
		return status.Error(codes.Aborted, "the first call with this idempotency key is still being executed")
	case errors.Is(err, once.ErrRecord):
		return errRecord
	}
	for _, of := range []error{coord.ErrLocked, coord.ErrUnavailable, coord.ErrLost, coord.ErrClosed, coord.ErrHeld} {
		if errors.Is(err, of) {
			return refused(x.ctx, err)
		}
	}
	return errStore
}

// Hold keeps the lock of the run.
func (x *execution) Hold(l coord.Lock) { x.lock = l }

// Release gives the lock back.
func (x *execution) Release() { _ = x.lock.Unlock() } // lost or not, the store has compared tokens

// Run calls the handler, and returns the record of its answer; nil if that cannot be kept.
func (x *execution) Run(l coord.Lock) []byte {
	ctx, end := within(context.WithoutCancel(x.ctx), x.m.machine.Locks, l)
	defer end()
	x.res, x.err = x.next(ctx)
	state, payload, err := x.outcome()
	if err != nil {
		x.pack = err
		return nil
	}
	return append(once.Encode(state, x.print), payload...)
}

// The first byte of the payload of an answer. A google.rpc.Status follows.
const (
	unary    = 'u' // its last detail is the message, if there is one
	streamed = 's' // its details are the status that the stream ended with, and its messages
)

// outcome returns the state and the payload to be stored.
func (x *execution) outcome() (once.State, []byte, error) {
	told, code := statusOf(x.err)
	if x.err != nil && !x.m.opts.Final(code) {
		return once.Failed, nil, nil
	}
	s, kind := told.Proto(), byte(unary)
	if stream, ok := x.res.(*recorded); ok {
		if stream.dropped {
			return once.NotKept, nil, nil
		}
		end, err := anypb.New(s)
		if err != nil {
			return 0, nil, errNotKept
		}
		s, kind = &spb.Status{Details: append([]*anypb.Any{end}, stream.messages...)}, streamed
	} else if x.err == nil {
		packed, err := pack(x.res)
		switch {
		case err != nil:
			return 0, nil, err
		case len(packed.Value) > x.m.opts.MaxAnswer:
			return once.NotKept, nil, nil
		}
		s = &spb.Status{Details: []*anypb.Any{packed}}
	}
	b, err := proto.Marshal(s)
	if err != nil {
		return 0, nil, errNotKept
	}
	return once.Answered, append([]byte{kind}, b...), nil
}

// statusOf returns the status that gRPC's server makes of a handler's error, and the code that
// Final is asked about. Where the error says that a lock was lost that is Canceled, as the
// context's Err is.
func statusOf(err error) (*status.Status, codes.Code) {
	s, ok := status.FromError(err)
	if ok {
		return s, s.Code()
	}
	s = status.FromContextError(err)
	if errors.Is(err, coord.ErrLost) {
		return s, codes.Canceled
	}
	return s, s.Code()
}

var errNotKept = status.Error(codes.Internal, "the answer cannot be kept")

func pack(res any) (*anypb.Any, error) {
	message, ok := res.(proto.Message)
	if !ok {
		return nil, status.Error(codes.Internal, "the answer is no message of protobuf")
	}
	packed, err := anypb.New(message)
	if err != nil {
		return nil, errNotKept
	}
	return packed, nil
}

// replay returns the answer that is in the record, a message or a *recorded, or its error.
func (x *execution) replay(found once.Record) (any, error) {
	if found.State == once.NotKept {
		return nil, status.Error(codes.AlreadyExists, "the call was executed, but its answer was too large to be kept")
	}
	var s spb.Status
	if len(found.Payload) == 0 || proto.Unmarshal(found.Payload[1:], &s) != nil {
		return nil, errRecord
	}
	switch found.Payload[0] {
	case streamed:
		var end spb.Status
		if len(s.Details) == 0 || s.Details[0].UnmarshalTo(&end) != nil {
			return nil, errRecord
		}
		x.replayed()
		return &recorded{messages: s.Details[1:]}, status.ErrorProto(&end)
	case unary:
		if s.Code != int32(codes.OK) {
			x.replayed()
			return nil, status.ErrorProto(&s)
		}
		if len(s.Details) != 1 {
			return nil, errRecord
		}
		x.replayed()
		return unpack(s.Details[0])
	}
	return nil, errRecord
}

// replayed marks the answer as one of an earlier run.
func (x *execution) replayed() { _ = grpc.SetHeader(x.ctx, metadata.Pairs(ReplayedHeader, "true")) }

func unpack(packed *anypb.Any) (proto.Message, error) {
	message, err := packed.UnmarshalNew()
	if err != nil {
		return nil, status.Error(codes.Internal, "the type of the answer is not known to this program")
	}
	return message, nil
}

var (
	errRecord = status.Error(codes.Internal, "the record of the call cannot be read")
	errStore  = status.Error(codes.Unavailable, "idempotency keys cannot be looked up now")
)
