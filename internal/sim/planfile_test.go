package sim

import (
	"reflect"
	"testing"
)

func TestPlanFile(t *testing.T) {
	for seed := range uint64(50) {
		cfg := Random(seed)
		got, err := load(cfg.save("because"))
		cfg.Plan = cfg.plan()
		if err != nil || !reflect.DeepEqual(got, cfg) {
			t.Fatalf("%v\n%+v\n%+v", err, got, cfg)
		}
	}
	cfg := Random(1)
	cfg.Plan = []Fault{} // nothing happens, unlike in the seed's plan
	if got, err := load(cfg.save("")); err != nil || !reflect.DeepEqual(got, cfg) {
		t.Errorf("%v\n%+v", err, got)
	}
}

// A plan that can be read can be written, and is the same when it is read again. It is about nodes
// that there are.
func FuzzPlanFile(f *testing.F) {
	for seed := range uint64(4) {
		cfg := Random(seed)
		cfg.Plan = cfg.plan()[:4]
		f.Add(cfg.save("because"))
	}
	f.Add([]byte(`{"nodes":1}`))
	f.Add([]byte(`{"ttl":"10s","nodes":2,"keys":1,"think":"1s","length":3,"plan":[{"at":"1s","kind":"cut","other":1,"some":[0,7]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := load(text)
		if err != nil {
			return
		}
		for _, x := range cfg.Plan {
			if max(x.Node, x.Other) >= cfg.Nodes || min(x.Node, x.Other) < 0 {
				t.Errorf("%+v of %d nodes", x, cfg.Nodes)
			}
			_ = x.String()
		}
		again, err := load(cfg.save(""))
		if err != nil || !reflect.DeepEqual(again, cfg) {
			t.Errorf("%v\n%+v\n%+v", err, again, cfg)
		}
	})
}
