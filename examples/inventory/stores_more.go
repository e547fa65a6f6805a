//go:build stores

package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/hashicorp/consul/api"
	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/consul"
	"github.com/holdfast-go/holdfast/fallback/kubernetes"
	"github.com/holdfast-go/holdfast/fallback/mongodb"
	"github.com/holdfast-go/holdfast/fallback/s3"
	"github.com/holdfast-go/holdfast/internal/consulfake"
	"github.com/holdfast-go/holdfast/internal/dbserver"
	"github.com/holdfast-go/holdfast/internal/repo"
	"github.com/holdfast-go/holdfast/internal/standin"
)

// These have many requirements, and their servers are compiled: a build of its own has them.
func init() {
	arbiterStores = append(arbiterStores,
		arbiterStore{"s3", startGateway, openS3},
		arbiterStore{"kubernetes", startKubernetes, openKubernetes},
		arbiterStore{"mongodb", startFerretDB, openMongoDB},
		arbiterStore{"consul", startConsul, openConsul},
	)
}

// compiled compiles a server with one of the Makefile's targets, and returns its program. The first
// time takes minutes.
func compiled(ctx context.Context, target string) (string, error) {
	root, err := repo.Root()
	if err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "make", "-s", "-C", root, target).CombinedOutput(); err != nil {
		return "", fmt.Errorf("make %s: %w\n%s", target, err, out)
	}
	return filepath.Join(root, "internal", target, target), nil
}

// bucket is the name of the workers' bucket at the gateway.
const bucket = "locks"

func bucketClient(addr string) (*awss3.Client, func()) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	return awss3.New(awss3.Options{
		BaseEndpoint: aws.String("http://" + addr), UsePathStyle: true, Region: "us-east-1", HTTPClient: &http.Client{Transport: transport},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "holdfast", SecretAccessKey: "holdfast-secret"}, nil
		}),
	}), transport.CloseIdleConnections
}

// startGateway starts the Versity S3 Gateway with a bucket.
func startGateway(ctx context.Context) ([]string, func() error, error) {
	program, err := compiled(ctx, "versitygw")
	if err != nil {
		return nil, nil, err
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	script := dbserver.Script{Start: fmt.Sprintf("\n\"$1/versitygw\" %s \"$2/data\" >&2 &\nall=$!", addr), End: killAll}
	server, err := startServer(ctx, script, program, "make versitygw", func(ctx context.Context, _ string) error {
		client, closeIdle := bucketClient(addr)
		defer closeIdle()
		_, err := client.CreateBucket(ctx, &awss3.CreateBucketInput{Bucket: aws.String(bucket)})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return []string{addr}, server.Stop, nil
}

func openS3(_ redis.UniversalClient, o order) (fallback.Arbiter, func() error, error) {
	client, closeIdle := bucketClient(o.Store[0])
	return s3.New(client, &s3.Options{Bucket: bucket, ColdStart: true}), func() error { closeIdle(); return nil }, nil
}

// orders is the namespace of Kubernetes that has the records, and the name of its user.
const orders = "orders"

func kubernetesConfig(addr, certs string) *rest.Config {
	return &rest.Config{Host: "https://" + addr, BearerToken: orders, TLSClientConfig: rest.TLSClientConfig{
		CAFile: filepath.Join(certs, "apiserver.crt"), ServerName: "kubernetes.default.svc",
	}}
}

// startKubernetes starts Kubernetes's API server and its etcd, without nodes.
func startKubernetes(ctx context.Context) ([]string, func() error, error) {
	program, err := compiled(ctx, "kubeapiserver")
	if err != nil {
		return nil, nil, err
	}
	var addrs [3]string
	for i := range addrs {
		if addrs[i], err = freeAddress(); err != nil {
			return nil, nil, err
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, nil, err
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	host, port, _ := net.SplitHostPort(addrs[0])
	script := dbserver.Script{Start: fmt.Sprintf(`
echo '%[1]s' >sa.key
echo '%[2]s,%[2]s,1,system:masters' >tokens.csv
"$1/etcd/etcd" --data-dir data --listen-client-urls http://%[3]s --advertise-client-urls http://%[3]s --log-level error \
  --listen-peer-urls http://%[4]s --initial-advertise-peer-urls http://%[4]s --initial-cluster default=http://%[4]s >&2 &
all=$!
"$1/kubeapiserver" --etcd-servers http://%[3]s --bind-address %[5]s --secure-port %[6]s --advertise-address %[5]s --cert-dir certs \
  --endpoint-reconciler-type none --service-cluster-ip-range 10.0.0.0/24 --authorization-mode RBAC --token-auth-file tokens.csv \
  --disable-admission-plugins ServiceAccount --service-account-issuer https://kubernetes.default.svc \
  --service-account-key-file sa.key --service-account-signing-key-file sa.key -v 0 >&2 &
all="$all $!"`, private, orders, addrs[1], addrs[2], host, port), End: killAll}
	certs := ""
	server, err := startServer(ctx, script, program, "make kubeapiserver", func(ctx context.Context, dir string) error {
		certs = filepath.Join(dir, "certs")
		return makeNamespace(ctx, kubernetesConfig(addrs[0], certs))
	})
	if err != nil {
		return nil, nil, err
	}
	return []string{addrs[0], certs}, server.Stop, nil
}

// makeNamespace makes it once the server is ready.
func makeNamespace(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer utilnet.CloseIdleConnectionsFor(client.Transport)
	for _, ask := range []struct{ method, path, body string }{
		{http.MethodGet, "/readyz", ""},
		{http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "` + orders + `"}}`},
	} {
		request, err := http.NewRequestWithContext(ctx, ask.method, config.Host+ask.path, strings.NewReader(ask.body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode >= 300 && answer.StatusCode != http.StatusConflict {
			return fmt.Errorf("%s %s: %s", ask.method, ask.path, answer.Status)
		}
	}
	return nil
}

func openKubernetes(_ redis.UniversalClient, o order) (fallback.Arbiter, func() error, error) {
	return kubernetes.New(kubernetesConfig(o.Store[0], o.Store[1]), &kubernetes.Options{Namespace: orders, ColdStart: true}), nil, nil
}

func mongoClient(addr string) (*mongo.Client, func() error, error) {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + addr + "/?directConnection=true"))
	if err != nil {
		return nil, nil, err
	}
	return client, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		return client.Disconnect(ctx)
	}, nil
}

// startFerretDB starts the substitute for MongoDB: FerretDB, which is sent one command that writes
// at a time.
func startFerretDB(ctx context.Context) ([]string, func() error, error) {
	program, err := compiled(ctx, "ferretdb")
	if err != nil {
		return nil, nil, err
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	script := dbserver.Script{Start: fmt.Sprintf("\nmkdir data && \"$1/ferretdb\" %s >&2 &\nall=$!", addr), End: killAll}
	server, err := startServer(ctx, script, program, "make ferretdb", func(ctx context.Context, _ string) error {
		client, end, err := mongoClient(addr)
		if err != nil {
			return err
		}
		return errors.Join(client.Database("admin").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err(), end())
	})
	if err != nil {
		return nil, nil, err
	}
	return []string{addr}, server.Stop, nil
}

func openMongoDB(_ redis.UniversalClient, o order) (fallback.Arbiter, func() error, error) {
	standin.MongoDB.Store(true)
	client, end, err := mongoClient(o.Store[0])
	if err != nil {
		return nil, nil, err
	}
	return mongodb.New(client, &mongodb.Options{ColdStart: true}), end, nil
}

// startConsul starts a fake of Consul: there is no server of it to be had.
func startConsul(context.Context) ([]string, func() error, error) {
	f := consulfake.Start(nil, func(string) {})
	return []string{f.URL}, func() error { f.Close(); return nil }, nil
}

func openConsul(_ redis.UniversalClient, o order) (fallback.Arbiter, func() error, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}
	client, err := api.NewClient(&api.Config{Address: o.Store[0], HttpClient: &http.Client{Transport: transport}})
	if err != nil {
		return nil, nil, err
	}
	return consul.New(client, &consul.Options{ColdStart: true}), func() error { transport.CloseIdleConnections(); return nil }, nil
}
