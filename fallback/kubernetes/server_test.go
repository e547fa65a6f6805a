//go:build unix

package kubernetes

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A cluster is real API servers on a real etcd, without nodes. Clients are led to one of the
// servers, as by a load balancer.
type cluster struct {
	t       *testing.T
	dir     string
	etcd    *storetest.Process
	servers []*storetest.Process
	addrs   []string
	ca      []byte
	to      atomic.Int32 // the server that new connections lead to

	mu    sync.Mutex            // protects conns
	conns map[net.Conn]struct{} // of clients
}

// Users, and their rights.
const (
	admin    = "admin"    // everything
	app      = "app"      // those of rights.yaml
	readOnly = "readonly" // get and list of that
)

// startCluster starts API servers with their defaults, but for the network.
func startCluster(t *testing.T, servers int) *cluster {
	t.Helper()
	program, err := filepath.Abs("../../internal/kubeapiserver/kubeapiserver")
	etcd := filepath.Join(filepath.Dir(program), "etcd", "etcd")
	for _, file := range []string{program, etcd} {
		if err == nil {
			_, err = os.Stat(file)
		}
	}
	if err != nil {
		t.Skipf("the API server or its etcd is missing (make kubeapiserver): %v", err)
	}
	dir, err := os.MkdirTemp("", "hfkube-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{t: t, dir: dir, conns: make(map[net.Conn]struct{})}
	sub := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	clients, peers := "http://"+loopback.Address(t), "http://"+loopback.Address(t)
	c.etcd = storetest.Start(t, sub("etcd"), nil, etcd, "--data-dir", "data", "--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--log-level", "error")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	private := write("sa.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	tokens := write("tokens.csv", fmt.Appendf(nil, "%s,%[1]s,1,system:masters\n%s,system:serviceaccount:orders:orders,2,system:serviceaccounts\n"+
		"%s,%[3]s,3\n", admin, app, readOnly))
	certs := sub("certs")
	for i := range servers {
		addr := loopback.Address(t)
		host, port, _ := net.SplitHostPort(addr)
		c.addrs = append(c.addrs, addr)
		c.servers = append(c.servers, storetest.Start(t, sub(fmt.Sprint("server", i)), nil, program,
			"--etcd-servers", clients, "--bind-address", host, "--secure-port", port, "--advertise-address", host, "--cert-dir", certs,
			"--endpoint-reconciler-type", "none", "--service-cluster-ip-range", "10.0.0.0/24", "--authorization-mode", "RBAC",
			"--token-auth-file", tokens, "--disable-admission-plugins", "ServiceAccount", "--service-account-issuer", "https://kubernetes.default.svc",
			"--service-account-key-file", private, "--service-account-signing-key-file", private, "-v", "0"))
		c.ready(i) // the first one makes the certificate
		if i == 0 {
			if c.ca, err = os.ReadFile(filepath.Join(certs, "apiserver.crt")); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := os.ReadFile("rights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c.create(string(text))
	c.create(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: look, namespace: orders-locks},
rules: [{apiGroups: [""], resources: [secrets], verbs: [get, list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: look, namespace: orders-locks},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: look}, subjects: [{kind: User, name: readonly}]}`)
	return c
}

// ready waits until a server takes requests.
func (c *cluster) ready(i int) {
	c.t.Helper()
	config := c.config(admin)
	config.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, c.addrs[i])
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		c.t.Fatal(err)
	}
	defer utilnet.CloseIdleConnectionsFor(client.Transport)
	await.Within(c.t, 3*time.Minute, "the API server is ready", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", http.NoBody)
		if err != nil {
			c.t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

// config is a user's, which leads to the present server.
func (c *cluster) config(user string) *rest.Config {
	return &rest.Config{
		Host: "https://kubernetes.default.svc", BearerToken: user, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, c.addrs[c.to.Load()])
			if err != nil {
				return nil, err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.conns[conn] = struct{}{}
			return conn, nil
		},
	}
}

// create creates the objects of a manifest as the administrator. The server refuses fields that it
// does not know.
func (c *cluster) create(manifest string) {
	c.t.Helper()
	s := c.storeOf(c.config(admin), nil)
	if err := s.connect(); err != nil {
		c.t.Fatal(err)
	}
	for _, text := range strings.Split(manifest, "\n---\n") {
		object, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			c.t.Fatal(err)
		}
		var x metav1.PartialObjectMetadata
		if err := json.Unmarshal(object, &x); err != nil {
			c.t.Fatal(err)
		}
		path := "/apis/" + x.APIVersion
		if x.APIVersion == "v1" {
			path = "/api/v1"
		}
		if x.Namespace != "" {
			path += "/namespaces/" + x.Namespace
		}
		err = s.client.Post().AbsPath(path, strings.ToLower(x.Kind)+"s").Param("fieldValidation", "Strict").
			SetHeader("Content-Type", "application/json").Body(object).Do(c.t.Context()).Error()
		if err != nil {
			c.t.Fatalf("%s: %v", text, err)
		}
	}
}

// storeOf is a store with connections of its own.
func (c *cluster) storeOf(config *rest.Config, opts *Options) *store {
	if opts == nil {
		opts = &Options{Namespace: "orders-locks"}
	}
	s := newStore(config, opts)
	c.t.Cleanup(func() {
		if s.client != nil {
			utilnet.CloseIdleConnectionsFor(s.client.Client.Transport)
		}
	})
	return s
}

func (c *cluster) store() *store { return c.storeOf(c.config(app), nil) }

// isNew says that namespaces are new.
var isNew = &Options{ColdStart: true}

func (c *cluster) arbiter() fallback.Arbiter {
	return fallback.NewRecords(c.store(), recordsOptions(isNew))
}

// arbiterBy is one by a line.
func (c *cluster) arbiterBy(line *storetest.Line, opts *Options) fallback.Arbiter {
	config := c.config(app)
	config.Dial = line.Through(config.Dial)
	return fallback.NewRecords(c.storeOf(config, nil), recordsOptions(opts))
}

// other leads new connections to another server. Those that there are stay.
func (c *cluster) other() (was int) {
	was = int(c.to.Load())
	c.to.Store(int32((was + 1) % len(c.servers)))
	return was
}

// kill is kill -9 of the server that clients are at, which comes back.
func (c *cluster) kill() {
	c.t.Helper()
	i := c.other()
	c.servers[i].Kill()
	c.servers[i].Begin()
	if len(c.servers) == 1 {
		c.ready(i)
	}
}

// restart is kill -9 of etcd and of all servers at once.
func (c *cluster) restart() {
	c.t.Helper()
	for _, s := range c.servers {
		s.Kill()
	}
	c.etcd.Kill()
	c.etcd.Begin()
	for _, s := range c.servers {
		s.Begin()
	}
	for i := range c.servers {
		c.ready(i)
	}
}

// stop makes the server stand still that clients are at, with their connections. New ones are led
// to another one.
func (c *cluster) stop() (heal func()) {
	c.t.Helper()
	goOn := c.servers[c.other()].Stop()
	return goOn
}

// cut ends the connections of all clients.
func (c *cluster) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.Close()
	}
	clear(c.conns)
}

func (c *cluster) injuries() arbitertest.Cluster {
	x := arbitertest.Cluster{
		New:     func(*testing.T) fallback.Arbiter { return c.arbiter() },
		Kill:    func(*testing.T) { c.kill() },
		Restart: func(*testing.T) { c.restart() },
		Careful: func(*testing.T) fallback.Arbiter { return fallback.NewRecords(c.store(), recordsOptions(nil)) },
		Empty:   func(*testing.T) { c.clear() },
		Delete:  func(_ *testing.T, key string) { c.remove(c.store().recordName(key)) },
	}
	if len(c.servers) > 1 {
		x.Cut = func(*testing.T) func() { return c.stop() }
	}
	return x
}

// copied stops the cluster, copies its data, and starts it again. back puts the copy in their
// place.
func (c *cluster) copied() (back func()) {
	c.t.Helper()
	data := filepath.Join(c.dir, "etcd", "data")
	run := func(args ...string) {
		c.t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			c.t.Fatalf("%s: %v", out, err)
		}
	}
	change := func(f func()) {
		c.t.Helper()
		for _, s := range c.servers {
			s.Kill()
		}
		c.etcd.Kill()
		f()
		c.etcd.Begin()
		for i, s := range c.servers {
			s.Begin()
			c.ready(i)
		}
	}
	change(func() { run("cp", "-a", data, data+".old") })
	return func() {
		change(func() {
			run("rm", "-rf", data)
			run("mv", data+".old", data)
		})
	}
}

// clear deletes all records, the mark, too.
func (c *cluster) clear() {
	c.t.Helper()
	s := c.storeOf(c.config(admin), nil)
	if err := s.connect(); err != nil {
		c.t.Fatal(err)
	}
	var all corev1.SecretList
	if err := s.client.Get().Namespace("orders-locks").Resource(resource).Do(c.t.Context()).Into(&all); err != nil {
		c.t.Fatal(err)
	}
	for _, x := range all.Items {
		c.remove(x.Name)
	}
}

// remove deletes the record of a name.
func (c *cluster) remove(name string) {
	c.t.Helper()
	s := c.storeOf(c.config(admin), nil)
	err := s.connect()
	if err == nil {
		err = s.client.Delete().Namespace("orders-locks").Resource(resource).Name(name).Do(c.t.Context()).Error()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
