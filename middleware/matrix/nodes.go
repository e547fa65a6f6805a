package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/middleware"
)

const partitions = 61

// cluster is two coordinators of one cluster, in this process.
type cluster struct {
	nodes [2]*coord.Coordinator
	next  [2]atomic.Int64 // index into orders
	order [2][]string     // orders by the node that owns their key
	jvm   jvm
}

func newCluster(ctx context.Context) (*cluster, error) {
	k := &cluster{}
	a := fallback.NewMemory()
	for i := range k.nodes {
		c, err := coord.New(ctx, a, &coord.Options{
			Partitions: partitions,
			Cluster: &coord.Cluster{
				Membership: gossip.Start,
				Gossip:     "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 200 * time.Millisecond, Service: fmt.Sprint(i),
			},
		})
		if err != nil {
			return nil, errors.Join(err, k.close())
		}
		k.nodes[i] = c
	}
	for _, c := range k.nodes {
		if err := c.Settled(ctx, len(k.nodes)); err != nil {
			return nil, errors.Join(err, k.close())
		}
	}
	for i := range 20000 {
		order := fmt.Sprint(i)
		n, ok := k.nodes[0].Owner(middleware.JoinKey("order", order))
		if !ok {
			return nil, errors.Join(errors.New("a key without an owner"), k.close())
		}
		owner := 0
		if !n.Self {
			owner = 1
		}
		k.order[owner] = append(k.order[owner], order)
	}
	return k, nil
}

// fresh returns an order that no trial has used, with a key that the node owns.
func (k *cluster) fresh(owner int) string { return k.order[owner][k.next[owner].Add(1)] }

func (k *cluster) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	all := []error{k.jvm.close()}
	for _, c := range k.nodes {
		if c != nil {
			all = append(all, c.Close(ctx))
		}
	}
	return errors.Join(all...)
}

// protocols are the ones that clients speak to the servers.
var protocols = []string{"HTTP/1.1", "h2c", "h2"}

// pair is two servers with the same routes, one on each node.
type pair struct {
	k       *cluster
	router  string
	proto   string
	servers [2]*httptest.Server
	logs    logs
	hop     *middleware.Transport
	client  *http.Client // speaks proto
	upgrade *http.Client // speaks HTTP/1.1
	tls     *tls.Config
}

func newPair(k *cluster, router, proto string, trials *trials) *pair {
	p := &pair{k: k, router: router, proto: proto, hop: middleware.NewTransport()}
	for i, c := range k.nodes {
		s := httptest.NewUnstartedServer(routers[router](stacks(c, p, trials), func(w http.ResponseWriter, r *http.Request) { trials.serve(i, w, r) }))
		s.Config.ErrorLog = log.New(&p.logs, "", 0)
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		switch proto {
		case "HTTP/1.1":
			s.Start()
		case "h2c":
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			s.Start()
		case "h2":
			s.Config.Protocols.SetHTTP2(true)
			s.EnableHTTP2 = true
			s.StartTLS()
			if p.tls == nil {
				p.tls = &tls.Config{RootCAs: x509.NewCertPool()}
			}
			p.tls.RootCAs.AddCert(s.Certificate())
		}
		p.servers[i] = s
	}
	p.hop.TLSClientConfig = p.tls.Clone()
	p.client, p.upgrade = p.newClient(proto), p.newClient("HTTP/1.1")
	return p
}

func (p *pair) newClient(proto string) *http.Client {
	t := &http.Transport{TLSClientConfig: p.tls.Clone(), Protocols: new(http.Protocols), DisableCompression: true}
	switch proto {
	case "HTTP/1.1":
		t.Protocols.SetHTTP1(true)
	case "h2c":
		t.Protocols.SetUnencryptedHTTP2(true)
	case "h2":
		t.Protocols.SetHTTP2(true)
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// url is for RouteOptions.URL.
func (p *pair) url(n coord.NodeInfo) (*url.URL, error) {
	i := strings.Index("01", n.Service)
	if i < 0 {
		return nil, errors.New("not a node of ours")
	}
	return url.Parse(p.servers[i].URL)
}

// at is where requests are sent to: the first node.
func (p *pair) at() string { return p.servers[0].URL }

func (p *pair) addr() string { return p.servers[0].Listener.Addr().(*net.TCPAddr).String() }

func (p *pair) close() {
	p.client.CloseIdleConnections()
	p.upgrade.CloseIdleConnections()
	p.hop.CloseIdleConnections()
	for _, s := range p.servers {
		s.CloseClientConnections() // a trial that failed may have left some
		s.Close()
	}
}

// logs keeps the lines that servers log.
type logs struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

// misuse returns the lines logged since its last call about handlers that use net/http wrongly.
func (l *logs) misuse() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for _, line := range l.lines {
		own := strings.Contains(line, "labstack/echo") // Echo does so by itself
		if strings.Contains(line, "superfluous") && !own || strings.Contains(line, "invalid concurrent Body.Read") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	l.lines = nil
	return found
}
