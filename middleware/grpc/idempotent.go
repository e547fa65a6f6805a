package holdgrpc

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"log/slog"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/middleware"
)

// ReplayedHeader is in the header of each answer that [Idempotent] replays, with the value "true".
const ReplayedHeader = "idempotent-replayed"

// IdempotentOptions are the options of [Idempotent]. The zero value of each field means its default, and nil means all defaults.
type IdempotentOptions struct {
	// Header is the key of the metadata with the idempotency key. Default "idempotency-key". Calls without it pass.
	Header string

	// Wait is for how long a call waits for the first one with its key to be over. Default 10 s. Negative: not at all.
	Wait time.Duration

	// TTL is for how long the record of a call is kept, from its last change. Default 24 h. It must not be negative.
	TTL time.Duration

	// StoreTimeout is for how long one call of the store may take. Default 5 s. It must not be negative.
	StoreTimeout time.Duration

	// MaxAnswer is how large the messages of an answer may be together to be kept, in bytes. Of a larger answer a repeated call learns
	// that it was executed (AlreadyExists). The store needs room for all answers of TTL. Default 64 KiB. Negative: only answers
	// without messages are kept, which are errors.
	MaxAnswer int

	// Final reports whether an error with this code is final, and to be replayed. After any other the call may be executed again.
	// Default: all but Canceled, DeadlineExceeded, ResourceExhausted, Aborted and Unavailable.
	Final func(codes.Code) bool

	// Logger gets a record for each answer that could not be stored. Nil: silent.
	Logger *slog.Logger
}

// Idempotency makes an interceptor, see [Idempotent].
type Idempotency struct {
	c     *coord.Coordinator
	store middleware.Store
	scope KeyFunc
	opts  IdempotentOptions
}

// Idempotent executes a call with an idempotency key in its metadata once, however often it is sent, over all processes that share the
// coordinator's namespace and the store. Others with the key get the answer of the first one, its messages and its status, with
// [ReplayedHeader]; other headers and trailers are not kept. Requests and answers have to be messages of protobuf, with types that are
// linked into the program.
//
// Unary calls and those whose server streams may have a key. The messages of a stream go to the caller as they are sent. A caller that
// streams cannot have one (InvalidArgument): its request is not known before the handler runs.
//
// scope is the user or tenant whose key it is: the same key in two scopes is two keys. A repeated call has to have the same method and
// request (InvalidArgument otherwise). That the handler is about to run is stored before it does, and its answer before the caller
// gets it. If the process dies in between, the outcome is unknown, and repeated calls get FailedPrecondition. The handler's
// context does not end with the caller's, but when the lock of the key is lost. It panics if c, store or scope is nil or an option negative.
func Idempotent(c *coord.Coordinator, store middleware.Store, scope KeyFunc, opts *IdempotentOptions) *Idempotency {
	if c == nil || store == nil || scope == nil {
		panic("holdgrpc: Idempotent needs a coordinator, a Store and a scope")
	}
	m := &Idempotency{c: c, store: store, scope: scope}
	if opts != nil {
		m.opts = *opts
	}
	o := &m.opts
	if o.Header == "" {
		o.Header = "idempotency-key"
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
	if o.MaxAnswer == 0 {
		o.MaxAnswer = 64 << 10
	}
	if o.Final == nil {
		o.Final = final
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return m
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

// begin returns what a call with an idempotency key is executed by, and nil if it has none. req is nil for a stream.
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

// printOf is what a repeated call must have in common with the first one.
func printOf(method string, req any) (print [sha256.Size]byte, err error) {
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

// execution is a call with an idempotency key.
type execution struct {
	m     *Idempotency
	ctx   context.Context
	id    string // of the record
	print [sha256.Size]byte
	next  func(context.Context) (any, error) // returns a message, or a *recorded
}

// The states of a record; the first byte of it. The request's print follows, and then a google.rpc.Status. Where a message was
// answered, that is its last detail. Of a stream the details are the status that it ended with, and its messages.
const (
	started  = 's'
	failed   = 'f' // not executed, or to be executed again
	answered = 'a'
	streamed = 'm'
	notKept  = 'n' // executed, with an answer that is too large
)

func (x *execution) answer() (any, error) {
	if res, err, ok := x.known(); ok { // the usual repetition: no lock
		return res, err
	}
	l, err := lock(x.ctx, x.m.c, "idempotency/"+x.id, x.m.opts.Wait)
	if errors.Is(err, coord.ErrLocked) && x.ctx.Err() == nil {
		return nil, status.Error(codes.Aborted, "the first call with this idempotency key is still being executed")
	}
	if err != nil {
		return nil, refused(x.ctx, err)
	}
	defer l.Unlock()
	if res, err, ok := x.known(); ok {
		return res, err
	}
	rec, err := x.load()
	if err != nil {
		return nil, errStore
	}
	if len(rec) > 0 && rec[0] == started {
		return nil, status.Error(codes.FailedPrecondition, "this call was begun before, and it is not known whether it was executed")
	}
	if err := x.put(l, started, nil); err != nil {
		if !errors.Is(err, middleware.ErrStale) { // it may have been stored all the same, and nothing has happened yet
			_ = x.put(l, failed, nil)
		}
		return nil, errStore
	}
	if lost := l.Context(); lost.Err() != nil { // while the store took its time; a later holder may not know of this
		_ = x.put(l, failed, nil)
		return nil, refused(x.ctx, context.Cause(lost))
	}
	return x.execute(l)
}

// execute runs the handler. If it panics, the record stays "started": the outcome is unknown.
func (x *execution) execute(l coord.Lock) (any, error) {
	ctx, end := within(context.WithoutCancel(x.ctx), l)
	defer end()
	res, err := x.next(ctx)
	state, s, packErr := x.outcome(res, err)
	if packErr != nil {
		return nil, packErr
	}
	if putErr := x.put(l, state, s); putErr != nil {
		x.m.opts.Logger.Error("holdfast: the answer to a call could not be stored", "key", l.Key(), "fence", l.Fence(), "error", putErr)
		if errors.Is(putErr, middleware.ErrStale) {
			return nil, status.Error(codes.FailedPrecondition, "the call took too long and was executed again: ask again for that answer")
		}
	}
	return res, err
}

// outcome is what is to be stored.
func (x *execution) outcome(res any, err error) (state byte, s *spb.Status, packErr error) {
	s = status.Convert(err).Proto()
	stream, _ := res.(*recorded)
	switch {
	case err != nil && !x.m.opts.Final(status.Code(err)):
		return failed, s, nil
	case stream != nil:
		if stream.dropped {
			return notKept, nil, nil
		}
		end, err := anypb.New(s)
		if err != nil {
			return 0, nil, errNotKept
		}
		return streamed, &spb.Status{Details: append([]*anypb.Any{end}, stream.messages...)}, nil
	case err != nil:
		return answered, s, nil
	}
	packed, err := pack(res)
	switch {
	case err != nil:
		return 0, nil, err
	case len(packed.Value) > x.m.opts.MaxAnswer:
		return notKept, nil, nil
	}
	return answered, &spb.Status{Details: []*anypb.Any{packed}}, nil
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

// known returns the answer that is there, a message or a *recorded, or an error. ok is false if there is none.
func (x *execution) known() (res any, err error, ok bool) {
	rec, err := x.load()
	switch {
	case err != nil:
		return nil, errStore, true
	case rec == nil:
		return nil, nil, false
	case len(rec) < 1+len(x.print):
		return nil, errRecord, true
	case string(rec[1:1+len(x.print)]) != string(x.print[:]):
		return nil, status.Error(codes.InvalidArgument, "the idempotency key was used for another call"), true
	case rec[0] == notKept:
		return nil, status.Error(codes.AlreadyExists, "the call was executed, but its answer was too large to be kept"), true
	case rec[0] != answered && rec[0] != streamed:
		return nil, nil, false
	}
	var s spb.Status
	if err := proto.Unmarshal(rec[1+len(x.print):], &s); err != nil {
		return nil, errRecord, true
	}
	_ = grpc.SetHeader(x.ctx, metadata.Pairs(ReplayedHeader, "true"))
	if rec[0] == streamed {
		var end spb.Status
		if len(s.Details) == 0 || s.Details[0].UnmarshalTo(&end) != nil {
			return nil, errRecord, true
		}
		return &recorded{messages: s.Details[1:]}, status.ErrorProto(&end), true
	}
	if s.Code != int32(codes.OK) {
		return nil, status.ErrorProto(&s), true
	}
	if len(s.Details) != 1 {
		return nil, errRecord, true
	}
	res, err = unpack(s.Details[0])
	return res, err, true
}

var errRecord = status.Error(codes.Internal, "the record of the call cannot be read")

func unpack(packed *anypb.Any) (proto.Message, error) {
	message, err := packed.UnmarshalNew()
	if err != nil {
		return nil, status.Error(codes.Internal, "the type of the answer is not known to this program")
	}
	return message, nil
}

// load returns the record, nil if there is none.
func (x *execution) load() ([]byte, error) {
	ctx, cancel := context.WithTimeout(x.ctx, x.m.opts.StoreTimeout)
	defer cancel()
	rec, err := x.m.store.Get(ctx, x.id)
	if errors.Is(err, middleware.ErrNoRecord) {
		return nil, nil
	}
	return rec, err
}

func (x *execution) put(l coord.Lock, state byte, s *spb.Status) error {
	rec := append([]byte{state}, x.print[:]...)
	if s != nil {
		b, err := proto.Marshal(s)
		if err != nil {
			return err
		}
		rec = append(rec, b...)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), x.m.opts.StoreTimeout)
	defer cancel()
	return x.m.store.Put(ctx, x.id, rec, uint64(l.Fence()), x.m.opts.TTL)
}

var errStore = status.Error(codes.Unavailable, "idempotency keys cannot be looked up now")
