package peer

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/holdfast-go/holdfast/internal/unit"
)

// MaxName is the greatest length of a node's name and of a namespace, in bytes.
const MaxName = 128

// Options are a transport's settings. Those of one cluster must agree where it says so.
type Options struct {
	// Node is this node's name, 1..128 bytes. It must be unique per process start: a node
	// that starts again under its old name would be taken for the old one. Required.
	Node string

	// Namespace is the cluster's name, 0..128 bytes. A peer of another one is refused.
	Namespace string

	// Version is a fingerprint of the settings that the package above must agree on. A peer with
	// another one is refused.
	Version uint64

	// Frames are the versions of the frames' meaning that the package above speaks. A stream uses
	// the newest one that both nodes speak: see [Stream.Frames]. A peer without a common one is
	// refused. So a version can be changed by a rolling deployment, if each release speaks its own
	// and the one before.
	Frames Versions

	// Listen is the host and port to listen on. Default: "127.0.0.1:0", any free port, to
	// be had from this machine only.
	Listen string

	// TLS makes all streams mutual TLS 1.3, with this one configuration for dialling and
	// listening. Certificates, or the two Get functions, which may reload, must be good for a
	// client and a server. A certificate must be verified as well as its chain: either
	// ServerName is the name that all nodes' certificates carry, which both sides check,
	// with RootCAs (and ClientCAs, RootCAs if nil); or VerifyConnection checks all that
	// matters, and then InsecureSkipVerify may be set. MaxVersion has to permit TLS 1.3. [Files]
	// makes such a configuration. Nil: no TLS, and any host that reaches the port is believed.
	TLS *tls.Config

	// Verify returns an error if the name does not belong to the certificate of the connection; the
	// error is for the log. It is called in each handshake under TLS, from several
	// goroutines, and may block for as long as a handshake may take, 2 s. Nil: a node with a
	// valid certificate may use any name.
	Verify func(node string, state *tls.ConnectionState) error

	// Keepalive is the longest time without sending. A stream is closed after 2.5 of them (at most
	// 2.75) if nothing arrived, or if bytes were waiting and the peer took none. It must be about
	// the same on all nodes, unless [Transport.SetKeepalive] tells theirs. Default: 1 s. At least
	// 10 ms.
	Keepalive time.Duration

	// Retry is the first pause between two attempts to reach a node; it doubles up to 20
	// times the value, with jitter. After a refusal because of settings it is 100 times the
	// value. Default: 50 ms, so at most 1 s, and 5 s. At least 1 ms.
	Retry time.Duration

	// MaxQueue is the number of bytes that may wait for one peer before its stream is closed with
	// [ErrQueueFull], besides the frames of Handler.Up. The memory taken may be about three times
	// as much. Default: 16 MiB. At least 64 KiB.
	MaxQueue int

	// Listener is used in the place of one on Listen, and closed with the transport. Nil: TCP on
	// Listen.
	Listener net.Listener

	// Dial connects to other nodes' addresses, until ctx ends. Nil: by TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Handler gets the streams and frames. Required.
	Handler Handler

	// Logger gets the errors that have no caller to return them to: refusals, on both sides where
	// possible, each once a minute. Nodes that cannot be reached are told by [Transport.Failing].
	// Nil: silent.
	Logger *slog.Logger
}

// Versions are all from Oldest to Newest.
type Versions struct{ Oldest, Newest uint16 }

// common returns the newest version that both have.
func (v Versions) common(other Versions) (newest uint16, ok bool) {
	newest = min(v.Newest, other.Newest)
	return newest, newest >= max(v.Oldest, other.Oldest)
}

// Handler is the package above, as a stream's transport calls it.
//
// Calls for one stream come one after another, from one goroutine; those of different streams at
// the same time. A call must not wait for the result of another call for the same stream. It must
// not call [Transport.Close], which waits for it.
type Handler interface {
	// Up is called when a stream is established, before any frame of it is delivered and before
	// [Transport.Stream] returns it. Frames that are sent in Up go ahead of all else.
	Up(s *Stream)

	// Frame is called for each frame, in the order sent. It must not block: nothing else is read
	// from this stream meanwhile. f, with the bytes of its Session and Key, is only valid until
	// Frame returns. Frames that it sends on s are written when the batch that was read is used up,
	// or once 64 KiB of them wait.
	Frame(s *Stream, f *Frame)

	// Down is called once for each Up, after the last Frame; err matches [ErrClosed] and
	// says why. The next stream with the same node is up only after Down has returned.
	Down(s *Stream, err error)
}

// An OptionError is the error of a field of Options.
type OptionError struct {
	Option string // the field
	Err    error
}

// Error names the field and its error.
func (e *OptionError) Error() string { return "peer: Options." + e.Option + " " + e.Err.Error() }

// Unwrap returns Err.
func (e *OptionError) Unwrap() error { return e.Err }

func wrong(option, format string, args ...any) error {
	return &OptionError{option, fmt.Errorf(format, args...)}
}

// validate returns o with defaults filled in, or the error in it.
func (o Options) validate() (Options, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Keepalive == 0 {
		o.Keepalive = time.Second
	}
	if o.Retry == 0 {
		o.Retry = 50 * time.Millisecond
	}
	if o.MaxQueue == 0 {
		o.MaxQueue = 16 << 20
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Node == "" || len(o.Node) > MaxName:
		return o, wrong("Node", "%q: 1 to %d bytes are needed", o.Node, MaxName)
	case len(o.Namespace) > MaxName:
		return o, wrong("Namespace", "%q: more than %d bytes", o.Namespace, MaxName)
	case o.Handler == nil:
		return o, wrong("Handler", "is missing")
	case o.Frames.Oldest > o.Frames.Newest:
		return o, wrong("Frames", "are from %d to %d: Oldest must not be above Newest", o.Frames.Oldest, o.Frames.Newest)
	case o.Keepalive < leastKeepalive:
		return o, wrong("Keepalive", "is %v, must be at least 10ms", o.Keepalive)
	case o.Verify != nil && o.TLS == nil:
		return o, wrong("Verify", "is set, but TLS is not: nothing proves a name")
	case o.Retry < 0:
		return o, wrong("Retry", "is %v, must not be negative", o.Retry)
	case o.MaxQueue < 64<<10:
		return o, wrong("MaxQueue", "is %d, must be at least 64 KiB", o.MaxQueue)
	}
	if err := unit.Short(o.Retry, time.Millisecond, "50 * time.Millisecond"); err != nil {
		return o, &OptionError{"Retry", err}
	}
	if o.TLS != nil {
		if err := checkTLS(o.TLS); err != nil {
			return o, &OptionError{"TLS", err}
		}
	}
	return o, nil
}
