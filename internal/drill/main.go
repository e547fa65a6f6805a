//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-go/holdfast/internal/lan"
)

func main() {
	if mine, err := child(); mine {
		if err != nil {
			fmt.Fprintln(os.Stderr, "drill: node:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.BoolVar(&o.short, "short", false, "as in make test")
	flag.StringVar(&o.only, "only", "", "one `scene`")
	flag.Parse()
	o.out = os.Stdout
	if err := play(&o); err != nil {
		fmt.Fprintln(os.Stderr, "drill:", err)
		os.Exit(1)
	}
}

func play(o *options) error {
	if err := lan.Needs(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, o)
}
