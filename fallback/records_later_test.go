package fallback_test

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// Members that a later version has put into records survive the writes of this one.
func TestRecords_KeepWhatALaterVersionAdds(t *testing.T) {
	for name, opts := range map[string]*fallback.RecordsOptions{"clock": {}, "NoClock": {NoClock: true}} {
		synctest.Test(t, func(t *testing.T) {
			l := newLedger()
			n := attachRecords(t, l, opts)
			reg := fallback.Registration{TTL: time.Hour}
			if _, err := n.Open(t.Context(), "alice", reg); err != nil {
				t.Fatal(err)
			}
			lock := func(key string) {
				t.Helper()
				a, err := n.Lock(t.Context(), fallback.LockRequest{Key: key, Me: id("alice", 1), Block: 1})
				if err != nil || a.Verdict != fallback.Granted {
					t.Fatalf("%s: %+v, %v", key, a, err)
				}
			}
			lock("k")
			for _, x := range [][3]string{{"ns/s", `{"format"`, `"expiry"`}, {"ns/p0", `{"epoch"`, `"session"`}} {
				r := l.records[x[0]]
				text := string(r.Value)
				for _, first := range x[1:] {
					if !strings.Contains(text, first) {
						t.Fatalf("%s: %s lacks %s", name, text, first)
					}
					text = strings.Replace(text, first, strings.Replace(first, `"`, `"later":[1],"`, 1), 1)
				}
				l.records[x[0]] = fallback.Versioned{Version: r.Version, Value: []byte(text)}
			}
			before := maps.Clone(l.records)
			time.Sleep(time.Second)
			if _, err := n.Renew(t.Context(), "alice", reg); err != nil {
				t.Fatal(err)
			}
			lock("l")
			for _, key := range []string{"ns/s", "ns/p0"} {
				now := l.records[key]
				if now.Version == before[key].Version || strings.Count(string(now.Value), `"later":[1]`) != 2 {
					t.Errorf("%s: %s became %s", name, before[key].Value, now.Value)
				}
			}
		})
	}
}
