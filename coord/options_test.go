package coord_test

import (
	"crypto/tls"
	"log/slog"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/ring"
)

// option describes a field of Options.
type option struct {
	zero any   // the meaning of the zero value
	bad  []any // values that New refuses, with an error that names the field
	good []any // values at the limits, which it takes
}

// options are all fields, those of Handoff and Cluster among them. A new one has to be added here,
// with its default and its limits.
func options() map[string]option {
	long := strings.Repeat("x", 101)
	host, _ := os.Hostname()
	year := 365 * 24 * time.Hour
	times := []any{-time.Second, time.Microsecond, time.Duration(math.MaxInt64), time.Duration(math.MaxInt64 / 5 * 2), time.Duration(1 << 62)}
	return map[string]option{
		"Namespace":        {"holdfast", []any{"{a}", "a b", strings.Repeat("x", 129)}, []any{strings.Repeat("x", 128)}},
		"Name":             {host, []any{long, "a b", "a\n", "ä"}, []any{long[1:], "a/b"}},
		"Partitions":       {1021, []any{-1, 65537}, []any{1}},
		"SessionTTL":       {10 * time.Second, append([]any{year + 1}, times...), []any{2 * time.Second, year}},
		"RenewEvery":       {2500 * time.Millisecond, append([]any{8 * time.Second}, times...), []any{time.Second}},
		"RetryEvery":       {500 * time.Millisecond, append([]any{3 * time.Second}, times...), []any{time.Second}},
		"CallTimeout":      {time.Second, append([]any{7 * time.Second}, times...), []any{2 * time.Second}},
		"Margin":           {time.Second, append([]any{9 * time.Second, 3400 * time.Millisecond}, times...), []any{1900 * time.Millisecond}},
		"Grace":            {12 * time.Second, append([]any{11 * time.Second}, times...), []any{time.Hour, 2 * year}},
		"Handoff.MaxTurns": {0, nil, []any{-1, 1}},
		"Handoff.MaxHold":  {5 * time.Millisecond, []any{time.Duration(5)}, []any{-time.Second, time.Microsecond, time.Hour}},
		"Handoff.Linger":   {5 * time.Millisecond, []any{time.Duration(5)}, []any{-time.Second, time.Microsecond, time.Hour}},
		"Cluster":          {(*coord.Cluster)(nil), nil, nil},
		"StartUnavailable": {false, nil, []any{true}},
		"LongWait":         {10 * time.Second, []any{time.Duration(10)}, []any{-time.Second, time.Millisecond}},
		"DeadlockAfter":    {time.Duration(0), []any{time.Duration(1)}, []any{-time.Second, time.Millisecond}},
		"LongHold":         {time.Minute, []any{time.Duration(60)}, []any{-time.Second, time.Millisecond}},
		"LogCallers":       {false, nil, []any{true}},
		"Unbreakable":      {false, nil, []any{true}},
		"Observe":          {false, nil, nil}, // see TestObserve
		"Logger":           {nil, nil, []any{slog.New(slog.DiscardHandler)}},
		"Trace":            {&coord.Trace{}, nil, nil},

		"Cluster.Membership":      {nil, []any{(func(ring.Options) (ring.Membership, error))(nil)}, []any{gossip.Start}},
		"Cluster.Gossip":          {"", []any{"nowhere", "127.0.0.1:x"}, []any{"127.0.0.1:0"}},
		"Cluster.GossipAdvertise": {"", []any{"nowhere", "0.0.0.0:7"}, []any{"127.0.0.1:0"}},
		"Cluster.GossipKeys":      {[][]byte(nil), []any{[][]byte{[]byte("short")}, [][]byte{}}, []any{[][]byte{make([]byte, 16)}}},
		"Cluster.Seeds":           {[]string(nil), []any{[]string{"127.0.0.1:x"}}, []any{[]string{"127.0.0.1"}}},
		"Cluster.Peer":            {"", []any{"nowhere"}, []any{"127.0.0.1:0"}},
		"Cluster.PeerAdvertise":   {"", []any{"nowhere", "0.0.0.0:7"}, []any{"127.0.0.1:0"}},
		"Cluster.PeerKeys":        {[][]byte(nil), []any{[][]byte{make([]byte, 31)}, [][]byte{}}, []any{[][]byte{make([]byte, 32)}}},
		"Cluster.PeerTLS":         {(*tls.Config)(nil), []any{&tls.Config{}}, nil},
		"Cluster.Service":         {"", []any{"a b", strings.Repeat("x", 1000)}, []any{"http://10.0.0.1"}},
		"Cluster.Keepalive":       {time.Second, append([]any{time.Minute}, times...), []any{100 * time.Millisecond}},
		"Cluster.MaxPerNode":      {1 << 20, nil, []any{-1, 1}},
		"Cluster.Takeover":        {3 * time.Second, []any{time.Millisecond, 10 * time.Second}, []any{-time.Second, 100 * time.Millisecond}},
		"Cluster.Unwatched":       {false, nil, []any{true}},
		"Cluster.Debounce":        {2 * time.Second, []any{-time.Second, time.Duration(2)}, []any{time.Millisecond}},
		"Cluster.MaxDebounce":     {10 * time.Second, []any{-time.Second, time.Second, time.Duration(10)}, []any{time.Minute}},
	}
}

func TestOptions_EachHasADefaultAndLimits(t *testing.T) {
	all := options()
	check := func(name string, v reflect.Value) {
		x, ok := all[name]
		if !ok {
			t.Errorf("Options.%s has no line in options()", name)
			return
		}
		delete(all, name)
		if x.zero != nil && !reflect.DeepEqual(v.Interface(), x.zero) {
			t.Errorf("the default of Options.%s is %v, want %v", name, v, x.zero)
		}
		for _, bad := range x.bad {
			if err := attempt(t, name, bad); err == nil || !mentions(err.Error(), name) {
				t.Errorf("Options.%s = %v: %v, want an error that names it", name, bad, err)
			}
		}
		for _, good := range x.good {
			if err := attempt(t, name, good); err != nil {
				t.Errorf("Options.%s = %v: %v", name, good, err)
			}
		}
	}
	walk(reflect.ValueOf(coord.Filled(nil)), "", check)
	walk(reflect.ValueOf(*coord.Filled(&coord.Options{Cluster: &coord.Cluster{Membership: gossip.Start}}).Cluster), "Cluster.", check)
	for name := range all {
		t.Errorf("options() has %s, Options has not", name)
	}
}

// The arbiter counts milliseconds: a process must not rely on less than one more.
func TestOptions_TimesOfTheArbiterAreWholeMilliseconds(t *testing.T) {
	f := coord.Filled(&coord.Options{SessionTTL: 2*time.Second + 900*time.Nanosecond, Grace: 3*time.Second + 1})
	if f.SessionTTL != 2001*time.Millisecond || f.Grace != 3001*time.Millisecond {
		t.Error(f.SessionTTL, f.Grace)
	}
}

// A deposed server may answer for up to Margin where another process raises the namespace's Grace.
// So this process's own Grace does not count.
func TestOptions_LeaveTimeForAFailover(t *testing.T) {
	for _, tt := range []struct {
		o     coord.Options
		wants string
	}{
		{coord.Options{Margin: 3 * time.Second, Grace: 13500 * time.Millisecond}, "must survive a failover"},
		{coord.Options{Margin: 4 * time.Second, Grace: 14500 * time.Millisecond, RenewEvery: time.Second, RetryEvery: 200 * time.Millisecond}, "at most a third"},
	} {
		if _, err := coord.New(t.Context(), fallback.NewMemory(), &tt.o); err == nil || !strings.Contains(err.Error(), tt.wants) {
			t.Error(err)
		}
	}
}

// mentions reports whether an error names an option.
func mentions(text, name string) bool {
	return strings.Contains(text, "Options."+name) || slices.Contains(strings.Fields(text), name)
}

// walk calls f with each field that can be set, and goes into structs.
func walk(v reflect.Value, prefix string, f func(name string, v reflect.Value)) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		if field.Type.Kind() == reflect.Struct {
			walk(v.Field(i), prefix+field.Name+".", f)
			continue
		}
		f(prefix+field.Name, v.Field(i))
	}
}

// attempt starts a coordinator with one option.
func attempt(t *testing.T, name string, value any) error {
	t.Helper()
	var o coord.Options
	v := reflect.ValueOf(&o).Elem()
	for part := range strings.SplitSeq(name, ".") {
		if part == "Cluster" && name != part {
			o.Cluster = &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0"}
			v = reflect.ValueOf(o.Cluster).Elem()
			continue
		}
		v = v.FieldByName(part)
	}
	v.Set(reflect.ValueOf(value))
	c, err := coord.New(t.Context(), fallback.NewMemory(), &o)
	if err == nil {
		err = c.Close(t.Context())
	}
	return err
}
