package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

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
