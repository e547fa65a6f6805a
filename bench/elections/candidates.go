package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
)

func keyByKey(ctx context.Context, addr string, tell teller) error {
	return campaign(ctx, addr, tell, func(client *redis.Client) (*coord.Coordinator, error) {
		return coord.New(ctx, redisarbiter.New(client, &redisarbiter.Options{ColdStart: true}), &coord.Options{Namespace: "keys"})
	})
}

func inCluster(ctx context.Context, addr string, tell teller) error {
	return campaign(ctx, addr, tell, func(client *redis.Client) (*coord.Coordinator, error) {
		return holdfast.Open(ctx, client, &holdfast.Options{Namespace: "cluster", Redis: &holdfast.RedisOptions{ColdStart: true}})
	})
}

func campaign(ctx context.Context, addr string, tell teller, open func(*redis.Client) (*coord.Coordinator, error)) error {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer client.Close()
	locks, err := open(client)
	if err != nil {
		return err
	}
	defer locks.Close(context.WithoutCancel(ctx))
	e, err := election.New(locks, "bench", nil)
	if err != nil {
		return err
	}
	tell.waits()
	return e.Run(ctx, func(ctx context.Context, _ *election.Term) error {
		tell.leads()
		<-ctx.Done()
		tell.told()
		return nil
	})
}

func openEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

func etcd(ctx context.Context, addr string, tell teller) error {
	client, err := openEtcd(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	if err != nil {
		return err
	}
	defer s.Close()
	e := concurrency.NewElection(s, "/election")
	tell.waits()
	if err := e.Campaign(ctx, fmt.Sprint(os.Getpid())); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	tell.leads()
	<-ctx.Done()
	tell.told()
	return e.Resign(context.WithoutCancel(ctx))
}

// startEtcd starts an etcd of one member.
func startEtcd(dir string) (addr string, end func(), err error) {
	var urls [2]string
	for i := range urls {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", nil, err
		}
		urls[i] = l.Addr().String()
		_ = l.Close()
	}
	client, peer := "http://"+urls[0], "http://"+urls[1]
	cmd := exec.Command("etcd", "--name", "one", "--data-dir", dir+"/etcd", "--log-level", "error", "--listen-client-urls", client,
		"--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "one="+peer)
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	return urls[0], func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }, nil
}

// clientgo campaigns with the times that client-go recommends, and gives the lease up at its end.
func clientgo(ctx context.Context, addr string, tell teller) error {
	client, err := openEtcd(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:          &lease{client: client, id: fmt.Sprint(os.Getpid()), refused: sync.OnceFunc(tell.waits)},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { tell.leads() }, OnStoppedLeading: func() {}},
	})
	return nil
}

// lease is a Lease of Kubernetes in etcd.
type lease struct {
	client  *clientv3.Client
	id      string
	refused func() // called when another one has it
	read    int64  // the revision
}

const leaseKey = "/registry/leases/default/bench"

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	got, err := l.client.Get(ctx, leaseKey)
	if err != nil {
		return nil, nil, err
	}
	if len(got.Kvs) == 0 {
		return nil, nil, apierrors.NewNotFound(leases, "bench")
	}
	l.read = got.Kvs[0].ModRevision
	var r resourcelock.LeaderElectionRecord
	if err := json.Unmarshal(got.Kvs[0].Value, &r); err != nil {
		return nil, nil, err
	}
	if r.HolderIdentity != "" && r.HolderIdentity != l.id {
		l.refused()
	}
	return &r, got.Kvs[0].Value, nil
}

func (l *lease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, r, 0)
}

func (l *lease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, r, l.read)
}

func (l *lease) write(ctx context.Context, r resourcelock.LeaderElectionRecord, revision int64) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	put, err := l.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(leaseKey), "=", revision)).Then(clientv3.OpPut(leaseKey, string(b))).Commit()
	if err != nil {
		return err
	}
	if !put.Succeeded {
		return apierrors.NewConflict(leases, "bench", errors.New("another revision"))
	}
	l.read = put.Header.Revision
	return nil
}

func (l *lease) RecordEvent(string) {}
func (l *lease) Identity() string   { return l.id }
func (l *lease) Describe() string   { return leaseKey }
