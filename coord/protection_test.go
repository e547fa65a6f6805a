package coord_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/ring"
)

// nodeTLS makes a configuration for PeerTLS, with a certificate that signs itself.
func nodeTLS(t *testing.T) *tls.Config {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"node"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		RootCAs:      pool, ClientCAs: pool, ServerName: "node",
	}
}

// The start of a node logs once the protection of the cluster from strangers.
func TestLog_WhatProtectsTheCluster(t *testing.T) {
	const (
		secret  = "gossip by the namespace's secret"
		own     = "gossip by GossipKeys"
		listed  = "streams by keys that the arbiter lists"
		peerTLS = "streams by PeerTLS, of nodes that the arbiter lists"
		both    = "streams by PeerKeys and by keys that the arbiter lists"
	)
	keys, shared := [][]byte{[]byte("16 bytes of keys")}, [][]byte{make([]byte, 32)}
	for want, set := range map[string]func(*coord.Cluster){
		secret + ", " + listed:  func(*coord.Cluster) {},
		own + ", " + listed:     func(o *coord.Cluster) { o.GossipKeys = keys },
		secret + ", " + peerTLS: func(o *coord.Cluster) { o.PeerTLS = nodeTLS(t) },
		own + ", " + peerTLS:    func(o *coord.Cluster) { o.GossipKeys, o.PeerTLS = keys, nodeTLS(t) },
		secret + ", " + both:    func(o *coord.Cluster) { o.PeerKeys = shared },
		own + ", " + both:       func(o *coord.Cluster) { o.GossipKeys, o.PeerKeys = keys, shared },
		"GOSSIP OPEN TO ALL, " + listed: func(o *coord.Cluster) { // of another membership
			o.Membership = func(r ring.Options) (ring.Membership, error) {
				r.Keys = nil
				return gossip.Start(r)
			}
		},
	} {
		h := newRecords()
		o := unhurried()
		o.Logger = slog.New(h)
		set(o.Cluster)
		start(t, fallback.NewMemory(), o)
		got := h.about("holdfast: listening to other nodes")
		if len(got) != 1 || got[0].level != slog.LevelInfo || got[0].attrs["protection"].String() != want {
			t.Errorf("got %v, want one record with %q", got, want)
		}
		half := h.about("holdfast: only gossip or only streams have keys of your own: what the arbiter keeps protects the other side")
		ownStreams := o.Cluster.PeerTLS != nil || o.Cluster.PeerKeys != nil
		if one := (o.Cluster.GossipKeys != nil) != ownStreams; len(half) > 0 != one || one && half[0].level != slog.LevelWarn {
			t.Errorf("%s: %v, one side is set: %t", want, half, one)
		}
	}
}
