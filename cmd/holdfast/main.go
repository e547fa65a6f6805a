// Command holdfast looks at the locks of a namespace, frees them, and runs commands under them.
//
//	export HOLDFAST_URL=redis://redis:6379 HOLDFAST_NAMESPACE=shop
//	holdfast doctor                      # is all well? if not, advice
//	holdfast top                         # which locks are held for long, and waited for
//	holdfast inspect order-1             # which process has it, since when, which wait
//	holdfast lock backup -- pg_dump shop # one at a time, on all machines
//
// docs/command.md has all commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Exit statuses. Those of a command that ran are its own.
const (
	statusFailed      = 125 // holdfast itself failed
	statusNotRun      = 126 // the command could not be run
	statusNotFound    = 127 // there is no such command
	statusLost        = 124 // the command was ended, because its lock was lost
	statusNotObtained = 75  // the lock was not obtained in time: EX_TEMPFAIL of sysexits.h
	statusSignal      = 128 // plus the number of the signal
)

// A statusError ends the program with a status, and says why unless err is nil.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprint("status ", e.status)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// settings are the flags of all commands.
type settings struct {
	url, namespace, name      string
	cert, key, authority, tls string // of PeerTLS
	keys                      string // file of PeerKeys
	replicas, allReplicas     int
	margin                    time.Duration // coord.Options.Margin of member
	timeout                   time.Duration
	json                      bool
	out                       *printer
}

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	ctx, stop := signal.NotifyContext(context.Background(), heeded([]os.Signal{os.Interrupt, syscall.SIGTERM})...)
	defer stop()
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	x, ok := errors.AsType[*statusError](err)
	if !ok {
		x = &statusError{1, err}
	}
	if x.err != nil {
		fmt.Fprintln(os.Stderr, "holdfast:", printable(x.err.Error()))
	}
	if d, ok := errors.AsType[*deathError](err); ok {
		d.die()
	}
	return x.status
}

const defaultURL = "redis://127.0.0.1:6379"

func newRoot() *cobra.Command {
	s := &settings{}
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Look at distributed locks, free them, and run commands under them",
		Long: "Look at distributed locks, free them, and run commands under them.\n\n" +
			"The arbiter is given by --url or HOLDFAST_URL, the namespace by --namespace or HOLDFAST_NAMESPACE. What can write to the\n" +
			"arbiter may look at the locks and free them: the nodes trust it for that. Begin with \"holdfast doctor\".",
		Version:      version(),
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			s.out = &printer{w: cmd.OutOrStdout(), json: s.json}
			return nil
		},
	}
	f := root.PersistentFlags()
	f.StringVarP(&s.url, "url", "u", env("HOLDFAST_URL", defaultURL), "the arbiter: "+schemes()+" (HOLDFAST_URL)")
	f.Lookup("url").DefValue = defaultURL // which help prints: the environment's may have a password in it
	f.StringVarP(&s.namespace, "namespace", "N", env("HOLDFAST_NAMESPACE", "holdfast"), "coord.Options.Namespace of the application (HOLDFAST_NAMESPACE)")
	f.StringVar(&s.name, "name", env("HOLDFAST_NAME", defaultName()), "what the nodes' logs call this process (HOLDFAST_NAME)")
	f.BoolVar(&s.json, "json", false, "print JSON")
	f.DurationVar(&s.timeout, "timeout", 10*time.Second, "for how long to try; a call of the arbiter or of a node may take a quarter of it, 1 s to 5 s")
	f.IntVar(&s.replicas, "replicas", 0, "redisarbiter.Options.Replicas of the application")
	f.IntVar(&s.allReplicas, "all-replicas", 0, "redisarbiter.Options.AllReplicas of the application")
	f.StringVar(&s.cert, "peer-cert", "", "certificate, where the nodes have Cluster.PeerTLS")
	f.StringVar(&s.key, "peer-key", "", "its key")
	f.StringVar(&s.authority, "peer-ca", "", "the nodes' authority")
	f.StringVar(&s.tls, "peer-name", "", "the name in all nodes' certificates")
	f.StringVar(&s.keys, "peer-keys", env("HOLDFAST_PEER_KEYS", ""), "file with the nodes' Cluster.PeerKeys, a line in base64 each (HOLDFAST_PEER_KEYS)")
	root.AddCommand(topCommand(s), inspectCommand(s), locksCommand(s), nodesCommand(s), partitionsCommand(s), keyCommand(s),
		breakCommand(s), drainCommand(s), rotateCommand(s), doctorCommand(s), lockCommand(s), electCommand(s))
	return root
}

// version is the one that go install was asked for. Built in a clone it is "(devel)", or names the
// commit.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

func env(name, without string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return without
}

func defaultName() string {
	host, _ := os.Hostname()
	user := env("USER", "operator")
	name := []byte("holdfast-" + user + "@" + host)
	for i, c := range name {
		if c <= ' ' || c > '~' {
			name[i] = '-'
		}
	}
	return string(name[:min(len(name), 80)])
}
