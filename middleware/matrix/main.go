// Command matrix sends requests of all kinds through each middleware, mounted in each router, by
// each protocol. They go to a node that owns the request's key and to one that does not. It
// compares the answers with those without the middleware: version, status, headers, body, trailers,
// errors, runs of the handler. In the end the key's lock has to be free, on both nodes.
//
//	go run ./middleware/matrix
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"
)

// cell is a place in the matrix.
type cell struct {
	router, proto, stack string
	scene                *scene
	elsewhere            bool // the other node owns the key
}

func (c cell) String() string {
	where := "owner here"
	if c.elsewhere {
		where = "owner elsewhere"
	}
	return fmt.Sprintf("%s | %s | %s | %s | %s", c.router, c.proto, where, c.scene.name, c.stack)
}

// selection names the cells to run; nil: all.
type selection struct{ routers, protos, stacks, scenes []string }

func picked(of []string, name string) bool { return len(of) == 0 || slices.Contains(of, name) }

// each runs the cells of the selection, one after another, and hands over the differences.
func each(ctx context.Context, sel selection, result func(c cell, differences []string)) (err error) {
	k, err := newCluster(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	for _, router := range routerNames {
		for _, proto := range protocols {
			if picked(sel.routers, router) && picked(sel.protos, proto) {
				cells(k, router, proto, sel, result)
			}
		}
	}
	return nil
}

func cells(k *cluster, router, proto string, sel selection, result func(c cell, differences []string)) {
	ts := &trials{}
	p := newPair(k, router, proto, ts)
	defer p.close()
	for i := range scenes {
		s := &scenes[i]
		if !picked(sel.scenes, s.name) || !s.runs(router, proto) {
			continue
		}
		bare := ts.run(p, "bare", 0, s)
		for _, name := range stackNames[1:] {
			if !picked(sel.stacks, name) {
				continue
			}
			for owner := range k.nodes {
				c := cell{router, proto, name, s, owner == 1}
				got := ts.run(p, name, owner, s)
				result(c, append(unexpected(c, bare, got), p.logs.misuse()...))
			}
		}
	}
}

func main() {
	log.SetFlags(0)
	routers, protos := flag.String("routers", "", "only these, with commas"), flag.String("protocols", "", "only these")
	stacks, only := flag.String("stacks", "", "only these"), flag.String("scenes", "", "only these")
	verbose := flag.Bool("v", false, "say each cell")
	flag.Parse()
	list := func(s *string) []string { return strings.FieldsFunc(*s, func(r rune) bool { return r == ',' }) }
	n, bad, begin := 0, 0, time.Now()
	sel := selection{list(routers), list(protos), list(stacks), list(only)}
	for _, tool := range missing(sel) {
		fmt.Printf("SKIPPED: the scenes of %s, which is not installed\n", tool)
	}
	err := each(context.Background(), sel, func(c cell, d []string) {
		n++
		if *verbose {
			fmt.Println(time.Since(begin).Round(time.Millisecond), c)
		}
		if len(d) > 0 {
			bad++
			fmt.Println(c)
			for _, line := range d {
				fmt.Println("\t" + line)
			}
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d cells, %d differ, %v\n", n, bad, time.Since(begin).Round(time.Second))
	if bad > 0 {
		os.Exit(1)
	}
}
