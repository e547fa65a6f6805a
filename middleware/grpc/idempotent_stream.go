package holdgrpc

import (
	"context"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Stream is for grpc.StreamInterceptor and grpc.ChainStreamInterceptor.
func (m *Idempotency) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	x, err := m.begin(ss.Context(), info.FullMethod, nil)
	if err != nil {
		return err
	}
	if x == nil {
		return next(srv, ss)
	}
	if info.IsClientStream {
		return status.Error(codes.InvalidArgument, "a call whose caller streams cannot have an idempotency key")
	}
	req := newRequest(info.FullMethod)
	if err := ss.RecvMsg(req); err != nil {
		return err
	}
	if x.print, err = printOf(info.FullMethod, req); err != nil {
		return err
	}
	ran := false
	x.next = func(ctx context.Context) (any, error) {
		ran = true
		r := &recorded{ServerStream: ss, ctx: ctx, req: req, left: max(0, m.opts.MaxAnswer)}
		return r, next(srv, r)
	}
	res, err := x.answer()
	if kept, ok := res.(*recorded); ok && !ran {
		for _, packed := range kept.messages {
			message, err := unpack(packed)
			if err != nil {
				return err
			}
			if err := ss.SendMsg(message); err != nil {
				return err
			}
		}
	}
	return err
}

// newRequest returns an empty message of the method's input. Where the program does not know the
// method, it is one that keeps all as unknown fields.
func newRequest(method string) proto.Message {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	if d, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err == nil {
		if md, ok := d.(protoreflect.MethodDescriptor); ok {
			if t, err := protoregistry.GlobalTypes.FindMessageByName(md.Input().FullName()); err == nil {
				return t.New().Interface()
			}
		}
	}
	return &emptypb.Empty{}
}

// recorded is a stream of a server; its messages are kept.
type recorded struct {
	grpc.ServerStream
	ctx      context.Context
	req      proto.Message // nil once the handler has it
	messages []*anypb.Any
	left     int  // bytes that messages may still have
	dropped  bool // there were more
	gone     bool // the caller is: the handler goes on, for those that repeat the call
}

func (r *recorded) Context() context.Context { return r.ctx }

func (r *recorded) RecvMsg(m any) error {
	if r.req == nil {
		return io.EOF
	}
	message, ok := m.(proto.Message)
	if !ok {
		return status.Error(codes.Internal, "the request is no message of protobuf")
	}
	b, err := proto.Marshal(r.req)
	if err == nil {
		err = proto.Unmarshal(b, message)
	}
	r.req = nil
	return err
}

func (r *recorded) SendMsg(m any) error {
	if !r.dropped {
		packed, err := pack(m)
		if err != nil {
			return err
		}
		if r.left -= len(packed.Value); r.left < 0 {
			r.dropped, r.messages = true, nil
		} else {
			r.messages = append(r.messages, packed)
		}
	}
	if r.gone {
		return nil
	}
	if err := r.ServerStream.SendMsg(m); err != nil {
		if r.dropped {
			return err
		}
		r.gone = true
	}
	return nil
}
