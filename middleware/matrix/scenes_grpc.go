package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

var overHTTP2 = []string{"h2c", "h2"}

var grpcScenes = []scene{
	{name: "gRPC unary", only: overHTTP2, handler: serveGRPC, client: func(x *trial, got *seen) { unary(x, got, "hello") }},
	{name: "gRPC unary that fails", only: overHTTP2, handler: serveGRPC, client: func(x *trial, got *seen) { unary(x, got, "fail") }},
	{name: "gRPC stream", only: overHTTP2, handler: serveGRPC, client: func(x *trial, got *seen) { stream(x, got, false) }},
	{name: "gRPC stream head first", only: overHTTP2, handler: serveGRPC, client: func(x *trial, got *seen) { stream(x, got, true) }},
}

// grpcServer answers any method: each message with the same, until one says "fail".
var grpcServer = grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	if len(md["head"]) > 0 {
		if err := s.SendHeader(metadata.Pairs("head", "first")); err != nil {
			return err
		}
	}
	for {
		var m wrapperspb.StringValue
		if err := s.RecvMsg(&m); err != nil {
			s.SetTrailer(metadata.Pairs("trailer", "set", "raw-bin", "\x00\xff"))
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if m.Value == "fail" {
			s.SetTrailer(metadata.Pairs("trailer", "failed"))
			return status.Error(codes.FailedPrecondition, "on purpose: 100 %")
		}
		m.Value = "echo " + m.Value
		if err := s.SendMsg(&m); err != nil {
			return err
		}
	}
}))

func serveGRPC(_ *trial, w http.ResponseWriter, r *http.Request) { grpcServer.ServeHTTP(w, r) }

func (x *trial) dial(got *seen) (*grpc.ClientConn, context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	for k, v := range x.headers() {
		ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(k), v)
	}
	by := insecure.NewCredentials()
	if x.pair.tls != nil {
		by = credentials.NewTLS(x.pair.tls.Clone())
	}
	conn, err := grpc.NewClient(x.pair.addr(), grpc.WithTransportCredentials(by))
	if err != nil {
		got.failed(err)
	}
	return conn, ctx, cancel
}

func unary(x *trial, got *seen, text string) {
	conn, ctx, cancel := x.dial(got)
	defer cancel()
	defer conn.Close()
	var answer wrapperspb.StringValue
	var head, tail metadata.MD
	err := conn.Invoke(ctx, "/"+x.stack+"/"+x.scene.name, wrapperspb.String(text), &answer, grpc.Header(&head), grpc.Trailer(&tail))
	got.Body = answer.Value
	got.grpc(err, head, tail)
}

func stream(x *trial, got *seen, headFirst bool) {
	conn, ctx, cancel := x.dial(got)
	defer cancel()
	defer conn.Close()
	if headFirst {
		ctx = metadata.AppendToOutgoingContext(ctx, "head", "1")
	}
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	s, err := conn.NewStream(ctx, desc, "/"+x.stack+"/"+x.scene.name)
	if err != nil {
		got.grpc(err, nil, nil)
		return
	}
	if headFirst {
		head, err := s.Header()
		got.note("head: %v %v", head["head"], err)
	}
	var answer wrapperspb.StringValue
	for _, text := range []string{"one", strings.Repeat("x", 100_000), "three"} {
		if err = s.SendMsg(wrapperspb.String(text)); err == nil {
			err = s.RecvMsg(&answer)
		}
		if err != nil {
			break
		}
		got.Body += answer.Value
	}
	if err == nil {
		err = s.CloseSend()
	}
	if err == nil {
		err = s.RecvMsg(&answer)
	}
	head, _ := s.Header()
	got.grpc(err, head, s.Trailer())
}

// grpc takes the end of a call.
func (s *seen) grpc(err error, head, tail metadata.MD) {
	if err != nil && !errors.Is(err, io.EOF) {
		s.note("%v: %s", status.Code(err), status.Convert(err).Message())
	}
	s.Header, s.Trailer = http.Header{}, http.Header{}
	for k, v := range head {
		if k != "date" && k != "trailer" {
			s.Header[k] = slices.Clone(v)
		}
	}
	for k, v := range tail {
		s.Trailer[k] = slices.Clone(v)
	}
}
