package middleware_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/middleware"
)

// processEnv makes the test binary a service with all four middlewares. It tells the test its steps
// by HTTP, and goes on when the test has answered.
const processEnv = "HOLDFAST_MIDDLEWARE_PROCESS"

// processOrder has the settings of a service.
type processOrder struct {
	Redis  string
	Tell   string // base URL of the test
	Number int
	Rerun  bool
	Nodes  int // of the cluster; 0: there is none
}

// The services that tests use are over before the arbiter takes their locks for those of a process
// that still lives.
const processTTL = 3 * time.Second

func (o processOrder) coordinator() (*coord.Coordinator, *redis.Client, error) {
	client := redis.NewClient(&redis.Options{Addr: o.Redis, ContextTimeoutEnabled: true})
	opts := &coord.Options{SessionTTL: processTTL, Grace: processTTL + time.Second, Partitions: partitions}
	if o.Nodes > 0 {
		opts.Cluster = &coord.Cluster{
			Membership: gossip.Start,
			Gossip:     "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 200 * time.Millisecond, Service: os.Getenv("SERVICE"),
		}
	}
	c, err := coord.New(context.Background(), redisarbiter.New(client, &redisarbiter.Options{ColdStart: true}), opts)
	return c, client, err
}

// handler is the service.
func (o processOrder) handler(c *coord.Coordinator, client *redis.Client) http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, _ := middleware.Lock(r.Context())
		if err := o.tell(r.Context(), "handler"); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "by process %d with fence %d", o.Number, l.Fence())
	})
	h = middleware.Serialize(c, byOrder, nil)(h)
	h = middleware.Idempotent(c, telling{middleware.NewRedisStore(client, nil), o}, middleware.Unscoped,
		&middleware.IdempotentOptions{Rerun: o.Rerun})(h)
	h = middleware.Coalesce(nil, byOrder, nil)(h)
	inner := h
	h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var once sync.Once // to tell takes its time: not before the request has joined
		ctx := asking{r.Context(), func() { once.Do(func() { _ = o.tell(context.WithoutCancel(r.Context()), "arrived") }) }}
		inner.ServeHTTP(w, r.WithContext(ctx))
	})
	mux := http.NewServeMux()
	mux.Handle("/", middleware.Route(c, byOrder, nil)(h))
	mux.Handle("/stream", middleware.Route(c, byOrder, nil)(http.HandlerFunc(o.stream)))
	mux.HandleFunc("/owner", func(w http.ResponseWriter, r *http.Request) {
		n, _ := c.Owner("order/" + r.FormValue("order"))
		_, _ = io.WriteString(w, n.Service)
	})
	return mux
}

// stream begins a response, or another protocol, and does not end it before the test has answered.
func (o processOrder) stream(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	if protocol := r.Header.Get("Upgrade"); protocol != "" {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", protocol)
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, _, err := rc.Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
	} else {
		_, _ = io.WriteString(w, "begun")
		_ = rc.Flush()
	}
	_ = o.tell(context.WithoutCancel(r.Context()), "handler")
}

// tell tells the test the service's next step, and waits for the answer.
func (o processOrder) tell(ctx context.Context, what string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/%s?process=%d", o.Tell, what, o.Number), nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// telling is a store that tells before and after each Put.
type telling struct {
	middleware.Store
	o processOrder
}

func (s telling) Put(ctx context.Context, key string, record []byte, fence uint64, ttl time.Duration) error {
	if err := s.o.tell(ctx, "put"); err != nil {
		return err
	}
	if err := s.Store.Put(ctx, key, record, fence, ttl); err != nil {
		return err
	}
	return s.o.tell(ctx, "stored")
}

// processMain is the life of a service. It ends with its stdin, so none outlives the test.
func processMain(text string) int {
	var o processOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	// A server has an address before it has a handler.
	var h http.Handler
	ready := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-ready; h.ServeHTTP(w, r) }))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	if err := os.Setenv("SERVICE", s.URL); err != nil {
		panic(err)
	}
	c, client, err := o.coordinator()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	h = o.handler(c, client)
	close(ready)
	if err := c.Settled(context.Background(), o.Nodes); err != nil {
		panic(err)
	}
	fmt.Println(s.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.CloseClientConnections()
	s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.Close(ctx)
	return 0
}

// A process is a service, as the test sees it.
type process struct {
	url   string
	order processOrder
	cmd   *exec.Cmd
	ended chan struct{}
}

// launch starts a service and waits until it serves.
func launch(t *testing.T, o processOrder) *process {
	t.Helper()
	return spawn(t, o)()
}

// spawn starts a service. The returned function waits until it serves: in a cluster that needs the
// others.
func spawn(t *testing.T, o processOrder) (ready func() *process) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{order: o, cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), processEnv+"="+string(text), "GORACE=atexit_sleep_ms=0") // else it ends a second later
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hello := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		hello <- strings.TrimSpace(line)
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		<-p.ended
	})
	return func() *process {
		t.Helper()
		if p.url = from(t, hello, "a process that serves"); p.url == "" {
			t.Fatalf("process %d does not serve", o.Number)
		}
		return p
	}
}

// kill ends the process as a power failure would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// send sends a request to the process.
func (p *process) send(ctx context.Context, method, path string, headers ...string) <-chan reply {
	ch := make(chan reply, 1)
	go func() {
		tr := &http.Transport{}
		defer tr.CloseIdleConnections()
		ch <- exchangeBy(ctx, &http.Client{Transport: tr}, method, p.url+path, "", headers...)
	}()
	return ch
}

// A told is a step that a service has told. The service goes on once proceed is closed.
type told struct {
	process int
	what    string
	proceed chan struct{}
}

// listener returns the base URL for services to tell, and their steps.
func listener(t *testing.T) (base string, all <-chan told) {
	ch := make(chan told)
	s := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		x := told{what: strings.TrimPrefix(r.URL.Path, "/"), proceed: make(chan struct{})}
		_, _ = fmt.Sscan(r.FormValue("process"), &x.process)
		select {
		case ch <- x:
		case <-r.Context().Done():
			return
		}
		select {
		case <-x.proceed:
		case <-r.Context().Done(): // it was killed
		}
	}))
	return s.URL, ch
}
