// Judge reads histories that clients have written down, as lines of JSON, and says whether locks
// could have behaved like that.
//
//	go run ./internal/history/judge file...
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
)

func main() {
	limit := flag.Duration("limit", time.Minute, "for how long to think about each key")
	flag.Parse()
	if err := judge(flag.Args(), *limit); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func judge(paths []string, limit time.Duration) error {
	var files []io.Reader
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		files = append(files, f)
	}
	records, err := history.Read(files...)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := history.Check(records, limit); err != nil {
		return err
	}
	fmt.Printf("%d records: fenced locks could have behaved like that (%v)\n", len(records), time.Since(begun).Round(time.Millisecond))
	return nil
}
