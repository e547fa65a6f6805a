package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// WriteTo returns a Put for a [Recorder] that writes records as lines of JSON. Each line is one
// Write, so that none is lost when the process is killed, if w does not buffer them. The first
// error of w is told to failed, and ends it.
func WriteTo(w io.Writer, failed func(error)) func(Record) {
	var mu sync.Mutex
	var stop bool
	return func(r Record) {
		line, err := json.Marshal(r)
		if err != nil {
			panic(err) // a record has nothing that JSON cannot say
		}
		mu.Lock()
		defer mu.Unlock()
		if stop {
			return
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			stop = true
			failed(err)
		}
	}
}

// Read reads the output of [WriteTo], of any number of processes. A last line that is not complete
// is that of a process that was killed while it wrote it, and is left out.
func Read(files ...io.Reader) ([]Record, error) {
	log := NewLog()
	for i, f := range files {
		in := bufio.NewReader(f)
		for n := 1; ; n++ {
			line, err := in.ReadBytes('\n')
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("history: file %d, line %d: %w", i, n, err)
			}
			var r Record
			if err := json.Unmarshal(line, &r); err != nil {
				return nil, fmt.Errorf("history: file %d, line %d: %w", i, n, err)
			}
			log.Put(r)
		}
	}
	return log.Records(), nil
}
