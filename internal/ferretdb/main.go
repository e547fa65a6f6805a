// Command ferretdb is FerretDB on SQLite, which listens at the address of its argument and has its
// data in the directory "data". FerretDB finds a document and updates it in two steps, where
// MongoDB does that in one: so it is sent one command that writes at a time. The tests of
// fallback/mongodb run it, and examples/inventory.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/FerretDB/FerretDB/ferretdb"
)

// socket is where FerretDB itself listens.
const socket = "socket"

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(addr string) error {
	_ = os.Remove(socket) // of a process that was killed
	f, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{Unix: socket},
		Handler:   "sqlite",
		SQLiteURL: "file:data/",
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = serve(conn) // the client has ended, or notices
			}()
		}
	}()
	return f.Run(context.Background())
}

var writing sync.Mutex

// serve passes the commands of a connection on, one after another, and their answers back.
func serve(client net.Conn) error {
	server, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer server.Close()
	for {
		command, err := message(client)
		if err != nil {
			return err
		}
		answer, err := ask(server, command)
		if err != nil {
			return err
		}
		if _, err := client.Write(answer); err != nil {
			return err
		}
	}
}

func ask(server net.Conn, command []byte) ([]byte, error) {
	if writes(command) {
		writing.Lock()
		defer writing.Unlock()
	}
	if _, err := server.Write(command); err != nil {
		return nil, err
	}
	return message(server)
}

// message reads one message of MongoDB's protocol, which begins with its length.
func message(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n < 16 || n > 48_000_000 {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	m := append(head[:], make([]byte, n-4)...)
	_, err := io.ReadFull(r, m[4:])
	return m, err
}

// writes reports whether a message is a command that writes: an OP_MSG, of which the first field
// has the command's name. It follows the header of 16 bytes, the flags, the kind of the section,
// the length of the document, and the field's type.
func writes(m []byte) bool {
	const opMsg, at = 2013, 16 + 4 + 1 + 4 + 1
	if len(m) <= at || binary.LittleEndian.Uint32(m[12:]) != opMsg {
		return false
	}
	name, _, _ := strings.Cut(string(m[at:min(at+20, len(m))]), "\x00")
	switch name {
	case "insert", "update", "delete", "findAndModify", "drop":
		return true
	}
	return false
}
