package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

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
