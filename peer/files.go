package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Files returns a configuration for [Options].TLS from PEM files: a node's certificate with
// its chain, its key, and the roots that sign all nodes' certificates. name is the DNS name
// or IP that all these certificates carry. A certificate must be good for a client and for a
// server.
//
// The files are read again in the next handshake after one of them has changed: certificates and
// roots can be renewed while the process runs. If they cannot be read then, the ones read before
// stay in use. The error says which file cannot be used now.
func Files(certificate, key, roots, name string) (*tls.Config, error) {
	if name == "" {
		return nil, errors.New("peer: Files: the name that all nodes' certificates carry is empty")
	}
	f := &files{paths: [3]string{certificate, key, roots}}
	if err := f.load(f.stamps()); err != nil {
		return nil, fmt.Errorf("peer: Files: %w", err)
	}
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			cert, _ := f.current()
			return cert, nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, _ := f.current()
			return cert, nil
		},
		InsecureSkipVerify: true, // VerifyConnection verifies, by the roots of the moment
		VerifyConnection: func(state tls.ConnectionState) error {
			_, pool := f.current()
			return verifyChain(state.PeerCertificates, pool, name)
		},
	}, nil
}

// verifyChain verifies a node's certificate for both of its roles.
func verifyChain(chain []*x509.Certificate, roots *x509.CertPool, name string) error {
	if len(chain) == 0 {
		return errors.New("peer: the other side sent no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := chain[0].Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: between, DNSName: name, KeyUsages: []x509.ExtKeyUsage{use},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// files has the contents of the files as read last.
type files struct {
	paths [3]string // certificate, key, roots

	mu    sync.Mutex
	read  [3]stamp // protected by mu: of the files when they were read
	cert  *tls.Certificate
	roots *x509.CertPool
}

// stamp changes with a file.
type stamp struct {
	at   time.Time
	size int64
}

func (f *files) stamps() (all [3]stamp) {
	for i, path := range f.paths {
		if info, err := os.Stat(path); err == nil {
			all[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return all
}

// current returns the contents of the files, as of the last time that they could be read.
func (f *files) current() (*tls.Certificate, *x509.CertPool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.stamps(); now != f.read {
		_ = f.load(now) // a file that is half written is read in a later handshake
	}
	return f.cert, f.roots
}

// load reads the files. f.mu is held, or f is new.
func (f *files) load(now [3]stamp) error {
	cert, err := tls.LoadX509KeyPair(f.paths[0], f.paths[1])
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(f.paths[2])
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s has no certificate in PEM form", f.paths[2])
	}
	f.read, f.cert, f.roots = now, &cert, pool
	return nil
}
