//go:build unix

package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each arbiter has a client of its own, as a process has.
func TestEtcdConforms(t *testing.T) {
	shared := startCluster(t, 1)
	status, err := shared.client().Status(t.Context(), shared.urls[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("etcd %s", status.Version)
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return New(shared.client(), isNew) },
	})
}

func TestEtcdConforms_Durable(t *testing.T) {
	takes.Seconds(t)
	members := 1
	if storetest.Full() {
		members = 3
	}
	arbitertest.RunDurable(t, func(t *testing.T) arbitertest.Cluster { return startCluster(t, members).injuries() })
}

func TestEtcd_NoTwoHoldersOverKills(t *testing.T) {
	storetest.Minutes(t)
	c := startCluster(t, 3)
	var lines storetest.Lines
	var injuries []func()
	for range 4 {
		injuries = append(injuries, c.killLeader, c.restart, func() { _, goOn := c.old(); goOn() }, func() {
			heal := c.stopFollower()
			time.AfterFunc(3*time.Second, heal)
		}, func() { lines.Cut(4 * time.Second) })
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return New(c.clientBy(lines.Another(t)), isNew) }, injuries...)
}

// Older data are put back while processes hold locks, as README.md says to do it.
func TestEtcd_NoTwoHoldersOverRestores(t *testing.T) {
	storetest.Minutes(t)
	c := startCluster(t, 1)
	var lines storetest.Lines
	var injuries []func()
	for range 4 {
		injuries = append(injuries, lines.Restored(c.copied, c.mark)...)
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return New(c.clientBy(lines.Another(t)), nil) }, injuries...)
}

func TestEtcd_WhatItCostsAtRest(t *testing.T) {
	storetest.Minutes(t)
	client := startCluster(t, 1).client()
	revision := func() int64 {
		t.Helper()
		r, err := client.Get(t.Context(), "none")
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.Revision
	}
	from := revision()
	storetest.AtRest(t, newStore(client, nil), recordsOptions(isNew))
	t.Logf("%d revisions in all", revision()-from)
}

// Old data in the cluster that wrote them are told by the processes that have seen newer ones.
func TestEtcd_ARestoredBackupIsNoticed(t *testing.T) {
	takes.Seconds(t)
	c := startCluster(t, 1)
	storetest.OldDataAreNoticed(t, New(c.client(), isNew), c.copied)
}

func TestEtcd_TokensRiseOverARestore(t *testing.T) {
	takes.Seconds(t)
	c := startCluster(t, 1)
	storetest.TokensRise(t, func() fallback.Arbiter { return New(c.client(), nil) }, c.copied, c.mark)
}

// A changingLeader is the store of a client while the leader changes: some transactions fail.
type changingLeader struct {
	clientv3.KV
	left int
	err  error
}

func (l *changingLeader) Txn(context.Context) clientv3.Txn { return changingTxn{leader: l} }

type changingTxn struct {
	clientv3.Txn
	leader *changingLeader
}

func (x changingTxn) Then(...clientv3.Op) clientv3.Txn { return x }

func (x changingTxn) Commit() (*clientv3.TxnResponse, error) {
	if x.leader.left--; x.leader.left >= 0 {
		return nil, x.leader.err
	}
	return &clientv3.TxnResponse{}, nil
}

func TestEtcd_AReadIsAskedAgainWhenTheLeaderChanged(t *testing.T) {
	for _, err := range []error{rpctypes.ErrLeaderChanged, errors.New("rpc error: code = Unknown desc = context deadline exceeded")} {
		s := newStore(&clientv3.Client{KV: &changingLeader{left: 3, err: err}}, nil)
		if r, err := s.read(t.Context(), nil); err != nil || r == nil {
			t.Errorf("got %v, %v, want an answer", r, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newStore(&clientv3.Client{KV: &changingLeader{left: 3, err: rpctypes.ErrLeaderChanged}}, nil)
	if _, err := s.read(ctx, nil); !errors.Is(err, rpctypes.ErrLeaderChanged) {
		t.Errorf("after the end of ctx: %v", err)
	}
}

// A read of more records than a transaction has room for is as of one moment. A write of as many is
// done in parts.
func TestEtcd_ManyRecordsAtOnce(t *testing.T) {
	s := newStore(startCluster(t, 1).client(), &Options{Prefix: "many/"})
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.Many(t, s, storetest.Names("k", 300), 10_000, nil)
	if done, err := s.Swap(t.Context(), "1-another", []fallback.Change{{Key: "new"}}); err != nil || done[0] {
		t.Errorf("a swap at another server: %v, %v", done, err)
	}
	storetest.TooManySessions(t, s, 1<<21-1<<16) // above 1.5 MiB, and below the client's limit
}

// Records that a server takes one at a time are written so, where its limit is lower than the
// default.
func TestEtcd_ALowerLimit(t *testing.T) {
	s := newStore(startCluster(t, 1, "--max-request-bytes", "100000").client(), &Options{Prefix: "lower/"})
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.Many(t, s, storetest.Names("k", 60), 40_000, nil)
	storetest.TooManySessions(t, s, 200_000)
}

// A cluster that is at its quota takes no new prefix, and says so. Records go on, as servers do not
// count operations that are nested in a transaction. One that did would execute the first
// transaction beyond the quota, and answer as if it had not: of that it is not known whether it was
// executed.
func TestEtcd_AFullCluster(t *testing.T) {
	c := startCluster(t, 1, "--quota-backend-bytes", "2000000")
	client := c.client()
	s := newStore(client, &Options{Prefix: "full/"})
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	look, err := s.Load(t.Context(), []string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	change := []fallback.Change{{Key: "k", Value: []byte("v")}}
	executed := newStore(&clientv3.Client{KV: &beyondQuota{client.KV}}, &Options{Prefix: "full/"})
	if _, err := executed.Swap(t.Context(), look.Server, change); err == nil || errors.Is(err, fallback.ErrRefused) || errors.Is(err, fallback.ErrNotSent) {
		t.Errorf("executed, and answered as beyond the quota: %v", err)
	}
	await.Until(t, "the cluster is full", func() bool {
		_, err := client.Put(t.Context(), "other", strings.Repeat("v", 200_000))
		return errors.Is(err, rpctypes.ErrNoSpace)
	})
	if look, err = s.Load(t.Context(), []string{"k"}); err != nil || string(look.Values[0].Value) != "v" {
		t.Fatal(look, err)
	}
	change[0].Version = look.Values[0].Version
	if done, err := s.Swap(t.Context(), look.Server, change); err != nil && !errors.Is(err, fallback.ErrFull) || err == nil && !done[0] {
		t.Errorf("got %v, %v: servers of today do not count what is nested in a transaction", done, err)
	}
	if err := newStore(client, &Options{Prefix: "another/"}).Open(t.Context()); !errors.Is(err, fallback.ErrFull) {
		t.Errorf("a new prefix: got %v, want ErrFull", err)
	}
}

// beyondQuota executes transactions that write, and answers as a cluster does that is beyond its
// quota with them.
type beyondQuota struct{ clientv3.KV }

func (k beyondQuota) Txn(ctx context.Context) clientv3.Txn { return &beyondTxn{Txn: k.KV.Txn(ctx)} }

type beyondTxn struct {
	clientv3.Txn
	compares bool
}

func (x *beyondTxn) If(all ...clientv3.Cmp) clientv3.Txn {
	x.Txn, x.compares = x.Txn.If(all...), true
	return x
}

func (x *beyondTxn) Then(all ...clientv3.Op) clientv3.Txn {
	x.Txn = x.Txn.Then(all...)
	return x
}

func (x *beyondTxn) Commit() (*clientv3.TxnResponse, error) {
	r, err := x.Txn.Commit()
	if err == nil && x.compares {
		return nil, rpctypes.ErrNoSpace
	}
	return r, err
}

func TestEtcd_Refuses(t *testing.T) {
	takes.Seconds(t)
	storetest.Refused(t, New(nil, nil), "client")
	c := startCluster(t, 1)
	admin := c.client()
	ctx := context.Background()
	steps := []func() error{
		func() error { _, err := admin.RoleAdd(ctx, "root"); return err },
		func() error { _, err := admin.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := admin.RoleAdd(ctx, "app"); return err },
		func() error {
			_, err := admin.RoleGrantPermission(ctx, "app", "holdfast/", clientv3.GetPrefixRangeEnd("holdfast/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := admin.UserAdd(ctx, "app", "secret"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "app", "app"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Refused(t, New(c.client(), isNew), "let the client in")
	app, err := clientv3.New(clientv3.Config{Endpoints: c.urls, Username: "app", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	storetest.Refused(t, New(app, &Options{Prefix: "other/"}), "rights")
	if _, err := New(app, &Options{Prefix: "other/"}).Attach(t.Context(), storetest.Settings); !errors.Is(err, fallback.ErrDenied) {
		t.Errorf("%v, want ErrDenied", err)
	}
	storetest.Lock(t, storetest.Attach(t, New(app, isNew)), "k", storetest.Alice) // with the rights to the prefix
}

func TestEtcd_Row(t *testing.T) {
	storetest.Minutes(t)
	client := func(address string) *clientv3.Client {
		return (&cluster{t: t, urls: []string{address}}).client()
	}
	owners.Row(t, owners.Store{
		Name:    "etcd",
		Options: coord.Options{Partitions: 31},
		Serve:   func() string { return startCluster(t, 1).urls[0] },
		Open:    func(address string) fallback.Arbiter { return New(client(address), isNew) },
		Usual: func(address string) func(context.Context, string) (func() error, error) {
			session, err := concurrency.NewSession(client(address))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = session.Close() })
			return func(ctx context.Context, key string) (func() error, error) {
				m := concurrency.NewMutex(session, key)
				return func() error { return m.Unlock(ctx) }, m.Lock(ctx)
			}
		},
	})
}
