package coord

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/peer"
)

// A respondent is a node that only answers questions.
type respondent struct{ answer func(question) reply }

func (respondent) Up(s *peer.Stream) {
	_ = s.Send(&peer.Frame{Kind: peer.Resume, Flags: flagBegin, Session: []byte("other")})
}

func (x respondent) Frame(s *peer.Stream, f *peer.Frame) {
	if f.Kind != peer.Query {
		return
	}
	var q question
	if json.Unmarshal(f.Key, &q) != nil {
		s.Close(peer.ErrProtocol)
		return
	}
	a := x.answer(q)
	_ = s.Send(&peer.Frame{Kind: peer.Answer, Request: f.Request, Key: a.encode()})
}

func (respondent) Down(*peer.Stream, error) {}

// beside starts a coordinator that has a stream to such a node.
func beside(t *testing.T, answer func(question) reply) *Coordinator {
	t.Helper()
	c, err := New(t.Context(), fallback.NewMemory(), &Options{
		SessionTTL: time.Hour, RenewEvery: 15 * time.Minute, Grace: 2 * time.Hour, CallTimeout: time.Minute, Partitions: 7,
		Cluster: &Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 10 * time.Millisecond, Keepalive: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	identity, err := peer.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	r := fallback.Registration{TTL: time.Hour, Info: card{Name: "other", Node: "other/1", Key: identity.Fingerprint(), Answers: true}.encode()}
	if _, err := c.remote.ns.Open(t.Context(), "other", r); err != nil {
		t.Fatal(err)
	}
	tr, err := peer.Start(peer.Options{
		Node: "other/1", Namespace: short(c.opts.Namespace), Version: c.opts.version(), Frames: frameVersions, TLS: identity.TLS(), Handler: respondent{answer},
		Retry: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	tr.SetPeers(map[string]string{c.cluster.self.name: c.cluster.net.Addr()})
	await.Until(t, "it is known", func() bool { return c.cluster.linkTo("other") != nil })
	return c
}

// A node had no room for a key in its answer, and does not answer about that once more: the key
// that it has told stays, and More says that there is another one.
func TestTop_ANodeThatAnswersTheFirstQuestionOnly(t *testing.T) {
	node := Process{Name: "other", ID: "other/1", Session: "other"}
	a, b := keyPart{Key: []byte("a"), Locked: true, Fence: 7, Held: 2}, keyPart{Key: []byte("b"), Locked: true, Fence: 8, Held: 1}
	c := beside(t, func(q question) reply {
		switch {
		case q.About == "top":
			return reply{Process: node, Keys: []keyPart{a, b}}
		case q.About == "keys" && len(q.Keys) == 2:
			return reply{Process: node, Keys: []keyPart{a}, More: 1}
		}
		return reply{Process: node, Error: "not again"}
	})
	top, err := c.Top(t.Context(), 10, LongestHeld)
	if err != nil || len(top.Keys) != 1 || top.Keys[0].Key != "a" || top.Keys[0].Fence != 7 || top.More != 1 || len(top.Unanswered) != 0 {
		t.Errorf("%+v, %v", top, err)
	}
}
