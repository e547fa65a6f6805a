package holdgrpc

import (
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// A request is compared by its fields where its type is known: the bytes of a map have no order.
func TestNewRequest(t *testing.T) {
	if m, ok := newRequest("/grpc.health.v1.Health/Watch").(*healthpb.HealthCheckRequest); !ok {
		t.Errorf("%T", m)
	}
	for _, method := range []string{"/grpc.health.v1.Health", "/no.Such/Method", ""} {
		m := newRequest(method)
		if _, ok := m.(*emptypb.Empty); !ok {
			t.Errorf("%s: %T", method, m)
		}
		b, _ := proto.Marshal(&healthpb.HealthCheckRequest{Service: "x"})
		if err := proto.Unmarshal(b, m); err != nil {
			t.Fatal(err)
		}
		var back healthpb.HealthCheckRequest
		b, _ = proto.Marshal(m)
		if err := proto.Unmarshal(b, &back); err != nil || back.Service != "x" {
			t.Errorf("%s: %v, %v", method, &back, err)
		}
	}
}
