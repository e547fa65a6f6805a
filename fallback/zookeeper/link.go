package zookeeper

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// A link is a connection.
type link struct {
	ready chan struct{} // closed: the connection is made, or it failed
	conn  *zk.Conn
	err   error

	failing time.Time // since when it has given no answer, zero if it has; the store's mu protects it
}

// use returns the connection, and makes one if there is none.
func (s *store) use(ctx context.Context) (*link, error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	s.mu.Lock()
	if s.opened < 1 {
		s.mu.Unlock()
		return nil, notSent(errors.New("zookeeper: the store is closed"))
	}
	if s.link == nil {
		l := &link{ready: make(chan struct{})}
		s.link = l
		go func() {
			defer close(l.ready)
			l.conn, l.err = s.connect()
		}()
	}
	l := s.link
	s.mu.Unlock()
	select {
	case <-l.ready:
	case <-ctx.Done():
		s.heard(l, ctx.Err())
		return nil, notSent(ctx.Err())
	}
	if l.err != nil {
		s.drop(l)
		return nil, notSent(l.err)
	}
	return l, nil
}

// drop has the next call take another connection.
func (s *store) drop(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.leave()
	}
}

// leave closes the connection, if there is one. The caller holds mu.
func (s *store) leave() {
	l := s.link
	if l == nil {
		return
	}
	s.link = nil
	select {
	case <-l.ready:
		if l.conn != nil {
			s.leaving.Go(l.conn.Close)
		}
	default:
		go func() {
			<-l.ready // which may take long
			if l.conn != nil {
				l.conn.Close()
			}
		}()
	}
}

// heard notes whether the ensemble has answered.
func (s *store) heard(l *link, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, zk.ErrNoAuth):
		l.failing = time.Time{}
	case l.failing.IsZero():
		l.failing = time.Now()
	case time.Since(l.failing) > silentFor && s.link == l:
		s.leave()
	}
}

// ask waits for the result of f until ctx ends. The request of f may be executed later.
func ask[T any](ctx context.Context, f func() (T, error)) (answer T, err error) {
	if err := ctx.Err(); err != nil {
		return answer, notSent(err)
	}
	type result struct {
		answer T
		err    error
	}
	got := make(chan result, 1)
	go func() {
		answer, err := f()
		got <- result{answer, err}
	}()
	select {
	case r := <-got:
		return r.answer, r.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// A mark tells the data of this ensemble from those of another one, and from those that came after
// it was emptied.
type mark struct {
	server  string // a znode below the root, with the records below it; the root has its name
	version int32  // of the root
}

const markPrefix = "records-"

// barrier returns once the ensemble has agreed on a transaction that changes nothing, with the mark
// as of that.
func (s *store) barrier(ctx context.Context, conn *zk.Conn) (mark, error) {
	for {
		s.mu.Lock()
		m := s.mark
		s.mu.Unlock()
		if m.server == "" {
			var err error
			if m, err = s.prepare(ctx, conn); err != nil {
				return mark{}, err
			}
		}
		_, err := ask(ctx, func() (any, error) {
			return conn.Multi(&zk.CheckVersionRequest{Path: s.root, Version: m.version},
				&zk.CheckVersionRequest{Path: s.root + "/" + m.server, Version: -1})
		})
		again := errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion)
		if again {
			m = mark{}
		}
		if err == nil || again {
			s.mu.Lock()
			s.mark = m
			s.mu.Unlock()
		}
		if !again {
			return m, err
		}
	}
}

// node is the content of a znode.
type node struct {
	data    []byte
	version int32
}

func get(ctx context.Context, conn *zk.Conn, path string) (node, error) {
	return ask(ctx, func() (node, error) {
		data, stat, err := conn.Get(path)
		if err != nil {
			return node{}, err
		}
		return node{data, stat.Version}, nil
	})
}

// prepare reads the mark, and makes it if it is missing. It may read old data: the barrier comes
// after it, and writes go by the root's version.
func (s *store) prepare(ctx context.Context, conn *zk.Conn) (mark, error) {
	for {
		root, err := get(ctx, conn, s.root)
		if errors.Is(err, zk.ErrNoNode) {
			if err := s.makeRoot(ctx, conn); err != nil {
				return mark{}, err
			}
			continue
		}
		if err != nil {
			return mark{}, err
		}
		if name := string(root.data); strings.HasPrefix(name, markPrefix) {
			_, err := get(ctx, conn, s.root+"/"+name)
			if !errors.Is(err, zk.ErrNoNode) {
				return mark{name, root.version}, err
			}
		} else if name != "" {
			return mark{}, refusal("the znode %s has data of another program: set Root", s.root)
		}
		name := markPrefix + rand.Text()
		_, err = ask(ctx, func() (any, error) {
			return conn.Multi(&zk.SetDataRequest{Path: s.root, Data: []byte(name), Version: root.version},
				&zk.CreateRequest{Path: s.root + "/" + name, Acl: s.acl})
		})
		switch {
		case err == nil:
			return mark{name, root.version + 1}, nil
		case !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode):
			return mark{}, err
		}
	}
}

// makeRoot makes the root and those above it.
func (s *store) makeRoot(ctx context.Context, conn *zk.Conn) error {
	for i := 1; i <= len(s.root); i++ {
		if i < len(s.root) && s.root[i] != '/' {
			continue
		}
		path := s.root[:i]
		_, err := get(ctx, conn, path)
		if errors.Is(err, zk.ErrNoNode) {
			_, err = ask(ctx, func() (any, error) { return conn.Create(path, nil, zk.FlagPersistent, s.acl) })
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}
