package rivals

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// ZookeeperRW is a lock for readers and writers by ZooKeeper's recipe, as Curator has it: each caller makes an ephemeral node with the next
// number. A reader waits for the last writer before it, a writer for the last caller before it. Who waits watches one node.
type ZookeeperRW struct {
	conn *zk.Conn
	dir  string
}

// OpenZookeeperRW opens one, with a connection for the process.
func OpenZookeeperRW(e Environment, key string) (*ZookeeperRW, error) {
	conn, err := zookeeperConn(e)
	if err != nil {
		return nil, err
	}
	z := &ZookeeperRW{conn, "/" + e.Namespace + "/" + key}
	for _, path := range []string{"/" + e.Namespace, z.dir} {
		if _, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			conn.Close()
			return nil, err
		}
	}
	return z, nil
}

// RLock waits for the lock for reading, and returns what unlocks it.
func (z *ZookeeperRW) RLock(ctx context.Context) (unlock func() error, err error) {
	return z.lock(ctx, "read-", "write-")
}

// Lock waits for the lock for writing, and returns what unlocks it.
func (z *ZookeeperRW) Lock(ctx context.Context) (unlock func() error, err error) {
	return z.lock(ctx, "write-", "")
}

// lock waits for nodes of a kind, "" for all.
func (z *ZookeeperRW) lock(ctx context.Context, mine, others string) (unlock func() error, err error) {
	path, err := z.conn.CreateProtectedEphemeralSequential(z.dir+"/"+mine, nil, zk.WorldACL(zk.PermAll))
	if err != nil {
		return nil, err
	}
	unlock = func() error { return z.conn.Delete(path, -1) }
	for {
		before, err := z.before(path, others)
		if err == nil && before == "" {
			return unlock, nil
		}
		var gone <-chan zk.Event
		if err == nil {
			_, _, gone, err = z.conn.GetW(z.dir + "/" + before)
		}
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err == nil {
			select {
			case e := <-gone:
				err = e.Err
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			return nil, errors.Join(err, unlock())
		}
	}
}

// before returns the last node before a path's that is of a kind, "" if there is none.
func (z *ZookeeperRW) before(path, kind string) (node string, err error) {
	nodes, _, err := z.conn.Children(z.dir)
	if err != nil {
		return "", err
	}
	nodes = slices.DeleteFunc(nodes, func(n string) bool { return number(n) >= number(path) || !strings.Contains(n, kind) })
	if len(nodes) == 0 {
		return "", nil
	}
	return slices.MaxFunc(nodes, func(a, b string) int { return cmp.Compare(number(a), number(b)) }), nil
}

// number returns the number of a node in sequence, which has ten digits.
func number(node string) string { return node[max(0, len(node)-10):] }

// Close ends the session.
func (z *ZookeeperRW) Close() error {
	z.conn.Close()
	return nil
}
