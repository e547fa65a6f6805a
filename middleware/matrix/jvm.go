package main

import (
	"bufio"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed java/Client.java
var javaSource []byte

// jvm is a process that runs java/Client.java. It starts with the first request.
type jvm struct {
	mu  sync.Mutex // one command at a time
	cmd *exec.Cmd  // guarded by mu, as all below
	dir string
	in  io.WriteCloser
	out *bufio.Reader
}

// send has HttpClient send n requests at once, and returns their responses. A client that does not
// answer is ended, and the next request starts another one. After "Expect: 100-continue" HttpClient
// of JDK 17.0.15 waits for ever in two cases, whatever its limit. In the first the answer comes in
// the place of 100 (JDK-8286171), in the second 100 comes twice.
func (j *jvm) send(n int, fields ...string) ([]*seen, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cmd == nil {
		if err := j.start(); err != nil {
			return nil, err
		}
	}
	if _, err := fmt.Fprintln(j.in, strings.Join(fields, "\t")); err != nil {
		return nil, err
	}
	all := make([]*seen, n)
	process := j.cmd.Process
	limit := time.AfterFunc(4*patience, func() { _ = process.Kill() })
	defer limit.Stop()
	for i := range all {
		line, err := j.out.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("HttpClient has not answered within %v: %w", 4*patience, errors.Join(err, j.end()))
		}
		if all[i], err = parseJava(strings.TrimSpace(line)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (j *jvm) start() error {
	dir, err := os.MkdirTemp("", "matrix")
	if err != nil {
		return err
	}
	j.dir = dir
	source := filepath.Join(dir, "Client.java")
	if err := os.WriteFile(source, javaSource, 0o600); err != nil {
		return err
	}
	cmd := exec.Command("java", "-XX:TieredStopAtLevel=1", source)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	j.cmd, j.in, j.out = cmd, in, bufio.NewReader(out)
	if line, err := j.out.ReadString('\n'); err != nil || line != "ready\n" {
		return fmt.Errorf("java/Client.java does not start: %q, %w", line, err)
	}
	return nil
}

// close ends the process, if it was started.
func (j *jvm) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.end()
}

func (j *jvm) end() error {
	var err error
	if j.cmd != nil {
		j.in.Close() // HttpClient has threads, but only daemons
		err = j.cmd.Wait()
	}
	if j.dir != "" {
		err = errors.Join(err, os.RemoveAll(j.dir))
	}
	j.cmd, j.dir = nil, ""
	return err
}

// parseJava takes a response as java/Client.java writes it.
func parseJava(line string) (*seen, error) {
	f := strings.Split(line, "\t")
	s := &seen{}
	if f[0] == "error" {
		s.Err = "broken"
		s.note("java: %s", line)
		return s, nil
	}
	for len(f) < 4 { // an empty body
		f = append(f, "")
	}
	status, err := strconv.Atoi(f[1])
	head, err2 := base64.StdEncoding.DecodeString(f[2])
	body, err3 := base64.StdEncoding.DecodeString(f[3])
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	var fields strings.Builder // HTTP/2's pseudo-headers are none
	for field := range strings.Lines(string(head)) {
		if !strings.HasPrefix(field, ":") {
			fields.WriteString(field)
		}
	}
	s.dump(fmt.Sprintf("%s %d\n%s\n", strings.Replace(f[0], "HTTP_", "HTTP/", 1), status, fields.String()))
	s.Body = string(body)
	return s, nil
}
