//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
)

// The resource is the data that the locks protect: two counters per key. A critical section reads
// both at its beginning and writes both, one higher, at its end. One looks at the tokens, the other
// one does not. It is a process of its own, which nodes reach by a socket in the file system: no
// cut and no fault affects it.
type resource struct {
	mu   sync.Mutex // protects the fields below
	keys map[string]*register
	sum  tally
}

// register is the resource's data of a key.
type register struct {
	highest uint64 // token
	by      string // the client that came with it
	guarded uint64
	plain   uint64
	open    map[*visitor]bool // sections that are under way
	last    map[string]int64  // when each node began its last section that was not refused
	read    map[string]int64  // the same of those that only read
}

// request is a client's request to the resource.
type request struct {
	Op    string // begin, end, sum
	Key   string
	Fence uint64
	Node  string
	Read  bool // the section only reads
}

// reply is the answer.
type reply struct {
	Refused bool
	Tally   *tally `json:",omitempty"`
}

// tally is the counts of the resource. Bad must stay empty, whatever happens.
type tally struct {
	Sections   int      // begun and not refused
	Ended      int      // those of them that ended
	Refused    int      // requests with a token that is not the highest
	Bad        []string // faults that the fence must prevent
	Overlaps   int      // sections that began while another one was under way, if tokens were not looked at
	PlainLost  int      // updates of the counters without a fence that were lost
	PlainEnded int      // updates of the same
	Reads      int      // sections that only read, and ended
	Torn       int      // those of them that found another value at their end, and were not refused: a lost writer had come between

	Last map[string]map[string]int64 // by key and node: when it began its last section that was not refused
	Read map[string]map[string]int64 // the same of those that only read
}

// visitor is one client.
type visitor struct {
	key     string
	fence   uint64
	read    bool
	refused bool
	guarded uint64 // as read
	plain   uint64
}

// serveResource is main of the resource's process. It ends when its standard input does.
func serveResource(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	r := &resource{keys: make(map[string]*register)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	_, err = os.Stdin.Read(make([]byte, 1))
	_ = l.Close()
	_ = err // it has ended
	return nil
}

func (r *resource) serve(c net.Conn) {
	defer c.Close()
	in, out := json.NewDecoder(c), json.NewEncoder(c)
	v := &visitor{}
	defer r.leave(v) // of a process that was killed
	for {
		var q request
		if in.Decode(&q) != nil || out.Encode(r.answer(v, q)) != nil {
			return
		}
	}
}

func (r *resource) leave(v *visitor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.keys[v.key]; k != nil {
		delete(k.open, v)
	}
}

func (r *resource) answer(v *visitor, q request) reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch q.Op {
	case "begin":
		return reply{Refused: !r.begin(v, q)}
	case "end":
		return reply{Refused: !r.end(v, q)}
	}
	t := r.sum
	t.Last, t.Read = make(map[string]map[string]int64), make(map[string]map[string]int64)
	for name, k := range r.keys {
		if strings.HasPrefix(name, "once-") {
			continue
		}
		t.Last[name], t.Read[name] = maps.Clone(k.last), maps.Clone(k.read)
	}
	return reply{Tally: &t}
}

func (r *resource) begin(v *visitor, q request) bool {
	k := r.keys[q.Key]
	if k == nil {
		k = &register{open: make(map[*visitor]bool), last: make(map[string]int64), read: make(map[string]int64)}
		r.keys[q.Key] = k
	}
	*v = visitor{key: q.Key, fence: q.Fence, read: q.Read, guarded: k.guarded, plain: k.plain}
	if q.Read {
		return r.beginReading(v, q, k)
	}
	if len(k.open) > 0 {
		r.sum.Overlaps++
	}
	k.open[v] = true
	if q.Fence == k.highest {
		r.sum.Bad = append(r.sum.Bad, fmt.Sprintf("%s: token %s for %s and for %s", q.Key, token(q.Fence), k.by, q.Node))
	}
	if v.refused = q.Fence < k.highest; v.refused {
		r.sum.Refused++
		return false
	}
	k.highest, k.by = q.Fence, q.Node
	k.last[q.Node] = int64(now())
	r.sum.Sections++
	return true
}

// beginReading refuses a reader if a later writer was here. Its token is no writer's, and refuses
// none.
func (r *resource) beginReading(v *visitor, q request, k *register) bool {
	if q.Fence == k.highest {
		r.sum.Bad = append(r.sum.Bad, fmt.Sprintf("%s: token %s for %s, which writes, and for %s, which reads", q.Key, token(q.Fence), k.by, q.Node))
	}
	if v.refused = q.Fence < k.highest; v.refused {
		r.sum.Refused++
		return false
	}
	k.read[q.Node] = int64(now())
	return true
}

func (r *resource) endReading(v *visitor, k *register) bool {
	if v.refused || v.fence < k.highest {
		r.sum.Refused++
		return false
	}
	r.sum.Reads++
	if k.guarded != v.guarded {
		r.sum.Torn++
	}
	return true
}

func (r *resource) end(v *visitor, q request) bool {
	k := r.keys[v.key]
	if v.read {
		return r.endReading(v, k)
	}
	delete(k.open, v)
	r.sum.PlainEnded++
	if k.plain != v.plain {
		r.sum.PlainLost++ // of the writer since v has read
	}
	k.plain = v.plain + 1
	if v.refused || v.fence < k.highest {
		r.sum.Refused++
		return false
	}
	r.sum.Ended++
	if k.guarded != v.guarded {
		r.sum.Bad = append(r.sum.Bad, fmt.Sprintf("%s: %s with token %s overwrites %d, and has read %d", q.Key, q.Node, token(v.fence),
			k.guarded, v.guarded))
	}
	k.guarded = v.guarded + 1
	return true
}

func token(f uint64) string { return fmt.Sprintf("%d.%d", f>>32, uint32(f)) }

// access is a client's connection to the resource.
type access struct {
	c   net.Conn
	in  *json.Decoder
	out *json.Encoder
}

func openResource(socket string) (*access, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return &access{c, json.NewDecoder(c), json.NewEncoder(c)}, nil
}

func (a *access) ask(q request) (r reply, err error) {
	if err := a.out.Encode(q); err != nil {
		return r, err
	}
	err = a.in.Decode(&r)
	return r, err
}
