package holdgrpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/adapters/adaptertest"
	"github.com/holdfast-go/holdfast/adapters/adaptertest/processtest"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/takes"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// serialized runs a section as the handler of a call to a server of its own.
func serialized(t *testing.T, c *coord.Coordinator, key string, section func(context.Context) error) error {
	var failed error // gRPC passes a status on
	l := listen(t)
	server := serve(t, l, &service{pay: func(ctx context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		failed = section(ctx)
		return m, failed
	}}, grpc.UnaryInterceptor(holdgrpc.Serialize(c, byOrder, nil).Unary))
	defer server.Stop()
	conn := dial(t, l)
	defer conn.Close()
	_, err := call(t.Context(), conn, key)
	if failed != nil {
		return failed
	}
	return err
}

// The suite of all adapters.
func TestSerialize(t *testing.T) {
	takes.Seconds(t)
	adaptertest.Run(t, adaptertest.Fixture{RealTime: true, Section: serialized})
}

// Servers of two processes over a real Redis; one process is killed in the middle of a call.
func TestSerialize_Processes(t *testing.T) { processtest.Run(t, serialized) }
