package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"
)

// A balancer is an HTTP server as in front of most services: it sends each request to the next
// process, whatever the request is about.
type balancer struct {
	url       string
	server    *http.Server
	transport *http.Transport
	served    chan struct{} // closed when the server has ended
}

// startBalancer serves on a free port of the loopback interface, and keeps up to clients
// connections to each process.
func startBalancer(processes []string, clients int) (*balancer, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	handler, err := roundRobin(processes, transport)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("balancer: %w", err)
	}
	b := &balancer{
		url:       "http://" + listener.Addr().String(),
		server:    &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second},
		transport: transport,
		served:    make(chan struct{}),
	}
	go func() {
		defer close(b.served)
		_ = b.server.Serve(listener) // until close
	}()
	return b, nil
}

func (b *balancer) close() {
	b.server.Close()
	<-b.served
	b.transport.CloseIdleConnections()
}

// roundRobin sends each request to the next of the processes, by their base URLs. It is answered
// with 502 if that one does not answer: the next one might repeat the work of this one.
func roundRobin(processes []string, transport http.RoundTripper) (http.Handler, error) {
	var targets []*url.URL
	for _, p := range processes {
		u, err := url.Parse(p)
		if err != nil {
			return nil, fmt.Errorf("balancer: %w", err)
		}
		targets = append(targets, u)
	}
	var turn atomic.Uint64
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(targets[(turn.Add(1)-1)%uint64(len(targets))])
			r.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "balancer: "+err.Error(), http.StatusBadGateway)
		},
	}, nil
}
