package main

import (
	"context"
	"database/sql"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"sync"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// The embedded database is a network hop away, as it is in earnest: the parent serves an SQLite
// database over TCP to its workers. (If the processes shared an SQLite file, the run would measure
// how they poll for the file's lock.) The protocol: gob-coded requests and answers, in turn, on
// each connection.

type request struct {
	Query bool // the answer has rows; else the number of rows changed
	SQL   string
	Args  []any // int64 or string
}

type answer struct {
	Rows    [][]any
	Changed int64
	Error   string
}

// A storeServer owns the database. Statements run one after another, on one connection.
type storeServer struct {
	addr     string
	db       *sql.DB
	listener net.Listener
	serving  sync.WaitGroup

	mu         sync.Mutex // guards the fields below
	closed     bool
	conns      map[net.Conn]struct{}
	statements map[string]*sql.Stmt // prepared once, kept until Close
}

// startStore serves an empty database, which lives in memory, on a free port of the loopback
// interface.
func startStore() (*storeServer, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // another connection would open another database
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		db.Close()
		return nil, err
	}
	s := &storeServer{
		addr:       listener.Addr().String(),
		db:         db,
		listener:   listener,
		conns:      make(map[net.Conn]struct{}),
		statements: make(map[string]*sql.Stmt),
	}
	s.serving.Go(s.accept)
	return s, nil
}

// Close ends the connections and drops the database.
func (s *storeServer) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
	for _, stmt := range s.statements {
		err = errors.Join(err, stmt.Close())
	}
	return errors.Join(err, s.db.Close())
}

func (s *storeServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			conn.Close()
		} else {
			s.conns[conn] = struct{}{}
			s.serving.Go(func() { s.serve(conn) })
		}
		s.mu.Unlock()
	}
}

func (s *storeServer) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	decoder, encoder := gob.NewDecoder(conn), gob.NewEncoder(conn)
	for {
		var req request
		if decoder.Decode(&req) != nil {
			return
		}
		if encoder.Encode(s.do(req)) != nil {
			return
		}
	}
}

func (s *storeServer) do(req request) answer {
	a, err := s.execute(req)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return a
}

func (s *storeServer) execute(req request) (a answer, err error) {
	stmt, err := s.prepare(req.SQL)
	if err != nil {
		return answer{}, err
	}
	if !req.Query {
		result, err := stmt.Exec(req.Args...)
		if err != nil {
			return answer{}, err
		}
		a.Changed, err = result.RowsAffected()
		return a, err
	}

	rows, err := stmt.Query(req.Args...)
	if err != nil {
		return answer{}, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return answer{}, err
	}
	for rows.Next() {
		row := make([]any, len(columns))
		targets := make([]any, len(columns))
		for i := range row {
			targets[i] = &row[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return answer{}, err
		}
		a.Rows = append(a.Rows, row)
	}
	return a, rows.Err()
}

func (s *storeServer) prepare(text string) (*sql.Stmt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stmt, ok := s.statements[text]; ok {
		return stmt, nil
	}
	stmt, err := s.db.Prepare(text)
	if err == nil {
		s.statements[text] = stmt
	}
	return stmt, err
}

// A store is a worker's client of the database, with as many connections as it has needed at once.
type store struct {
	addr string

	mu     sync.Mutex // guards the fields below
	closed bool
	idle   []*storeConn
}

type storeConn struct {
	net.Conn
	encoder *gob.Encoder
	decoder *gob.Decoder
}

var errStoreClosed = errors.New("store: closed")

func newStore(addr string) *store { return &store{addr: addr} }

// Close closes the idle connections.
func (s *store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, conn := range s.idle {
		conn.Close()
	}
	s.idle = nil
}

func (s *store) Query(ctx context.Context, text string, args ...any) ([][]any, error) {
	a, err := s.call(ctx, request{Query: true, SQL: text, Args: args})
	return a.Rows, err
}

func (s *store) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	a, err := s.call(ctx, request{SQL: text, Args: args})
	return a.Changed, err
}

func (s *store) call(ctx context.Context, req request) (answer, error) {
	if ctx.Err() != nil {
		return answer{}, context.Cause(ctx)
	}
	conn, err := s.conn(ctx)
	if err != nil {
		return answer{}, fmt.Errorf("store: %w", err)
	}
	var a answer
	if err = conn.encoder.Encode(req); err == nil {
		err = conn.decoder.Decode(&a)
	}
	if err != nil {
		conn.Close() // its stream may be in the middle of a message
		return answer{}, fmt.Errorf("store: %w", err)
	}
	s.release(conn)
	if a.Error != "" {
		return answer{}, errors.New("store: " + a.Error)
	}
	return a, nil
}

func (s *store) conn(ctx context.Context) (*storeConn, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errStoreClosed
	}
	if n := len(s.idle); n > 0 {
		conn := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		return conn, nil
	}
	s.mu.Unlock()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	return &storeConn{conn, gob.NewEncoder(conn), gob.NewDecoder(conn)}, nil
}

func (s *store) release(conn *storeConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return
	}
	s.idle = append(s.idle, conn)
}
