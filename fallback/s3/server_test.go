//go:build unix

package s3

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

const bucket = "locks"

// A gateway is some servers of the Versity S3 Gateway, which share a directory.
type gateway struct {
	t       *testing.T
	dir     string
	addrs   []string
	servers []*storetest.Process
}

func startGateway(t *testing.T, servers int) *gateway {
	t.Helper()
	program, err := filepath.Abs("../../internal/versitygw/versitygw")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Skipf("the S3 gateway is missing (make versitygw): %v", err)
	}
	dir, err := os.MkdirTemp("", "hfs3-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	g := &gateway{t: t, dir: dir}
	for i := range servers {
		own := filepath.Join(dir, "server"+string(rune('0'+i)))
		if err := os.Mkdir(own, 0o700); err != nil {
			t.Fatal(err)
		}
		addr := loopback.Address(t)
		g.addrs = append(g.addrs, addr)
		g.servers = append(g.servers, storetest.Start(t, own, nil, program, addr, filepath.Join(dir, "data")))
	}
	for i := range servers {
		g.ready(i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := g.client(0).CreateBucket(ctx, &awss3.CreateBucketInput{Bucket: aws.String(bucket)}); err != nil {
		t.Fatal(err)
	}
	return g
}

// ready waits until a server answers.
func (g *gateway) ready(i int) {
	g.t.Helper()
	client := g.client(i)
	await.Within(g.t, 2*time.Minute, "an answer", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := client.ListBuckets(ctx, nil)
		return err == nil
	})
}

// client is one of a server, with connections of its own.
func (g *gateway) client(server int) *awss3.Client {
	g.t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	g.t.Cleanup(transport.CloseIdleConnections)
	return clientOf(transport, "http://"+g.addrs[server], "holdfast", "holdfast-secret")
}

func clientOf(transport http.RoundTripper, url, user, secret string) *awss3.Client {
	return awss3.New(awss3.Options{
		BaseEndpoint: &url, UsePathStyle: true, Region: "us-east-1", HTTPClient: &http.Client{Transport: transport},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: user, SecretAccessKey: secret}, nil
		}),
	})
}

// These have no MinLease: the judge's sessions are short. Namespaces of quick are new.
var (
	quick   = &fallback.RecordsOptions{Durable: true, NoClock: true, Slow: true, ColdStart: true}
	careful = &fallback.RecordsOptions{Durable: true, NoClock: true, Slow: true}
)

func (g *gateway) store(server int) *store {
	return newStore(g.client(server), &Options{Bucket: bucket})
}

func (g *gateway) arbiter(server int) fallback.Arbiter {
	return fallback.NewRecords(g.store(server), quick)
}

// balanced asks the servers that run by a line, as a load balancer leads to them.
func (g *gateway) balanced(line *storetest.Line, opts *fallback.RecordsOptions) fallback.Arbiter {
	g.t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DialContext: line.Through(new(net.Dialer).DialContext)}
	g.t.Cleanup(transport.CloseIdleConnections)
	return fallback.NewRecords(newStore(clientOf(&balancer{transport: transport, addrs: g.addrs}, "http://the.servers", "holdfast", "holdfast-secret"),
		&Options{Bucket: bucket}), opts)
}

// kill is kill -9 of a server, which comes back.
func (g *gateway) kill(server int) {
	g.t.Helper()
	g.servers[server].Kill()
	g.servers[server].Begin()
	g.ready(server)
}

func (g *gateway) killAll() {
	g.t.Helper()
	for _, s := range g.servers {
		s.Kill()
	}
	for i, s := range g.servers {
		s.Begin()
		g.ready(i)
	}
}

func (g *gateway) injuries() arbitertest.Cluster {
	x := arbitertest.Cluster{
		New:     func(*testing.T) fallback.Arbiter { return g.arbiter(0) },
		Kill:    func(*testing.T) { g.kill(0) },
		Restart: func(*testing.T) { g.killAll() },
		Careful: func(*testing.T) fallback.Arbiter {
			return fallback.NewRecords(g.store(0), careful)
		},
		Empty:  func(*testing.T) { g.empty() },
		Delete: func(_ *testing.T, key string) { g.remove(g.store(0).recordKey(key)) },
	}
	if len(g.servers) > 1 {
		// No server leads. One that stands still while others work has nothing old to say when it
		// goes on.
		x.Old = func(*testing.T) (fallback.Arbiter, func()) { return g.arbiter(1), g.servers[1].Stop() }
		x.Cut = func(*testing.T) func() { return g.servers[1].Stop() }
	}
	return x
}

// A balancer leads each request to the next server that takes a connection.
type balancer struct {
	transport *http.Transport
	addrs     []string
}

// RoundTrip implements [http.RoundTripper].
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	var last error
	for _, addr := range b.addrs {
		x := r.Clone(r.Context())
		x.Host, x.URL.Host = r.URL.Host, addr // the signature is of the name that the client knows
		answer, err := b.transport.RoundTrip(x)
		if err == nil || r.Context().Err() != nil || !isDial(err) {
			return answer, err
		}
		last = err
	}
	return nil, last
}

// copied copies the data of now. back puts the copy in their place.
func (g *gateway) copied() (back func()) {
	g.t.Helper()
	data := filepath.Join(g.dir, "data")
	run := func(args ...string) {
		g.t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			g.t.Fatalf("%s: %v", out, err)
		}
	}
	run("cp", "-a", data, data+".old")
	return func() {
		for _, s := range g.servers {
			s.Kill()
		}
		run("rm", "-rf", data)
		run("mv", data+".old", data)
		for i, s := range g.servers {
			s.Begin()
			g.ready(i)
		}
	}
}

// empty deletes all objects.
func (g *gateway) empty() {
	g.t.Helper()
	client := g.client(0)
	list, err := client.ListObjectsV2(g.t.Context(), &awss3.ListObjectsV2Input{Bucket: aws.String(bucket)})
	if err != nil || len(list.Contents) == 0 {
		g.t.Fatalf("%v, %v", list, err)
	}
	for _, o := range list.Contents {
		g.remove(*o.Key)
	}
}

// remove deletes an object.
func (g *gateway) remove(name string) {
	g.t.Helper()
	if _, err := g.client(0).DeleteObject(g.t.Context(), &awss3.DeleteObjectInput{Bucket: aws.String(bucket), Key: &name}); err != nil {
		g.t.Fatal(err)
	}
}

// apiError is an answer of a store.
func apiError(code string) error { return &smithy.GenericAPIError{Code: code} }

var errLost = errors.New("the answer is lost")
