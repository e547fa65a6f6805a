package fallback

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Records are kept as JSON in ASCII, so that an operator can read them. Their strings may have any
// bytes: each byte is one character there.

// anyBytes is a string that JSON keeps as it is. As the key of a map JSON would not: inJSON makes
// one of it.
type anyBytes string

// MarshalText implements [encoding.TextMarshaler].
func (s anyBytes) MarshalText() ([]byte, error) { return []byte(inJSON(string(s))), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *anyBytes) UnmarshalText(text []byte) error {
	*s = anyBytes(fromJSON(string(text)))
	return nil
}

// inJSON returns a text with a character for each byte.
func inJSON(s string) string {
	if isASCII(s) {
		return s
	}
	text := make([]byte, 0, len(s))
	for i := range len(s) {
		text = utf8.AppendRune(text, rune(s[i]))
	}
	return string(text)
}

// fromJSON is the inverse of inJSON.
func fromJSON(text string) string {
	if isASCII(text) {
		return text
	}
	b := make([]byte, 0, len(text))
	for _, r := range text {
		b = append(b, byte(r))
	}
	return string(b)
}

type (
	storedPartition struct {
		Owner    anyBytes `json:"owner,omitempty"`
		Epoch    uint32   `json:"epoch"`
		Seq      uint32   `json:"seq,omitempty"`
		From     uint32   `json:"from,omitempty"`
		Revoked  uint32   `json:"revoked,omitempty"`
		Server   anyBytes `json:"server"`
		Process  anyBytes `json:"process,omitempty"`
		GraceEnd int64    `json:"graceEnd,omitempty"`
		storedGrace
		Rows   map[string]storedRow      `json:"rows,omitempty"`
		Names  map[string][]anyBytes     `json:"names,omitempty"`
		Queues map[string][]storedWaiter `json:"queues,omitempty"`
	}
	storedRow struct {
		Session anyBytes `json:"session"`
		Request uint64   `json:"request"`
		Token   uint64   `json:"token"`
	}
	storedWaiter struct {
		Session  anyBytes `json:"session"`
		Request  uint64   `json:"request"`
		Spec     anyBytes `json:"spec,omitempty"`
		Promised int64    `json:"promised,omitempty"`
	}
	storedSessions struct {
		Format   anyBytes `json:"format"`
		Server   anyBytes `json:"server"`
		Process  anyBytes `json:"process,omitempty"`
		Name     anyBytes `json:"name"`
		GraceEnd int64    `json:"graceEnd,omitempty"`
		storedGrace
		Born    uint32                  `json:"born,omitempty"`
		Made    []byte                  `json:"made,omitempty"` // in base64
		Secrets anyBytes                `json:"secrets"`
		Members map[string]storedMember `json:"members,omitempty"`
	}
	storedMember struct {
		Expiry  int64      `json:"expiry"`
		TTL     int64      `json:"ttl,omitempty"`
		Info    anyBytes   `json:"info,omitempty"`
		Beat    int64      `json:"beat,omitempty"`
		Version uint32     `json:"version,omitempty"`
		Set     []anyBytes `json:"set,omitempty"`
		Uses    int64      `json:"uses,omitempty"`
		Needs   int64      `json:"needs,omitempty"`
	}
	storedMessage struct {
		Kind      string   `json:"kind"`
		Key       anyBytes `json:"key,omitempty"`
		Request   uint64   `json:"request,omitempty"`
		Session   anyBytes `json:"session,omitempty"`
		Partition uint32   `json:"partition,omitempty"`
		Epoch     uint32   `json:"epoch,omitempty"`
	}
)

// mapped returns a map with its keys and values changed, nil for none.
func mapped[V, W any](m map[string]V, key func(string) string, value func(V) W) map[string]W {
	if len(m) == 0 {
		return nil
	}
	c := make(map[string]W, len(m))
	for k, v := range m {
		c[key(k)] = value(v)
	}
	return c
}

// listed is mapped for slices.
func listed[V, W any](s []V, value func(V) W) []W {
	if len(s) == 0 {
		return nil
	}
	c := make([]W, len(s))
	for i, v := range s {
		c[i] = value(v)
	}
	return c
}

func toBytes(s string) anyBytes  { return anyBytes(s) }
func toString(s anyBytes) string { return string(s) }

// encode returns the JSON of a stored type, which always has one.
func encode(x any) []byte {
	text, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	if isASCII(text) {
		return text
	}
	var ascii []byte
	for _, r := range string(text) {
		if r < utf8.RuneSelf {
			ascii = append(ascii, byte(r))
		} else {
			ascii = fmt.Appendf(ascii, `\u%04x`, r)
		}
	}
	return ascii
}

func isASCII[T string | []byte](text T) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// encodePartition returns the text of a partition; that of one that is lost is empty.
func encodePartition(p *Partition, g storedGrace) []byte {
	if p.Server == "" {
		return nil
	}
	return encode(storedPartition{
		Owner: anyBytes(p.Owner), Epoch: p.Epoch, Seq: p.Seq, From: p.From, Revoked: p.Revoked,
		Server: anyBytes(p.Server), Process: anyBytes(p.Process), GraceEnd: p.GraceEnd, storedGrace: g,
		Rows: mapped(p.Rows, inJSON, func(r Row) storedRow {
			return storedRow{anyBytes(r.Session), r.Request, uint64(r.Token)}
		}),
		Names: mapped(p.Names, inJSON, func(specs []string) []anyBytes { return listed(specs, toBytes) }),
		Queues: mapped(p.Queues, inJSON, func(q []Waiter) []storedWaiter {
			return listed(q, func(w Waiter) storedWaiter {
				return storedWaiter{anyBytes(w.Session), w.Request, anyBytes(w.Spec), w.Promised}
			})
		}),
	})
}

// decodePartition is the inverse of encodePartition.
func decodePartition(text []byte) (*Partition, storedGrace, error) {
	if len(text) == 0 {
		return new(Partition), storedGrace{}, nil
	}
	var s storedPartition
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, storedGrace{}, fmt.Errorf("%w: the record of a partition is malformed: %w", ErrRefused, err)
	}
	p := &Partition{
		Owner: string(s.Owner), Epoch: s.Epoch, Seq: s.Seq, From: s.From, Revoked: s.Revoked,
		Server: string(s.Server), Process: string(s.Process), GraceEnd: s.GraceEnd,
		Rows: mapped(s.Rows, fromJSON, func(r storedRow) Row {
			return Row{Identity: Identity{string(r.Session), r.Request}, Token: Token(r.Token)}
		}),
		Names: mapped(s.Names, fromJSON, func(specs []anyBytes) []string { return listed(specs, toString) }),
		Queues: mapped(s.Queues, fromJSON, func(q []storedWaiter) []Waiter {
			return listed(q, func(w storedWaiter) Waiter {
				return Waiter{Identity{string(w.Session), w.Request}, string(w.Spec), w.Promised}
			})
		}),
	}
	p.enterNames() // also those of rows that a process has written which knows of no names
	return p, s.storedGrace, nil
}

// encodeSessions is as encodePartition.
func encodeSessions(s *Sessions, g storedGrace) []byte {
	if s.Format == "" {
		return nil
	}
	return encode(storedSessions{
		Format: anyBytes(s.Format), Server: anyBytes(s.Server), Process: anyBytes(s.Process), Name: anyBytes(s.Name),
		GraceEnd: s.GraceEnd, storedGrace: g, Born: s.Born, Made: s.Made, Secrets: anyBytes(s.Secrets),
		Members: mapped(s.Members, inJSON, func(x Member) storedMember {
			return storedMember{
				x.Expiry, x.TTL, anyBytes(x.Info), x.Beat, x.Guardians.Version, listed(x.Guardians.Set, toBytes), x.Terms.Uses, x.Terms.Needs,
			}
		}),
	})
}

// decodeSessions is the inverse of encodeSessions.
func decodeSessions(text []byte) (*Sessions, storedGrace, error) {
	if len(text) == 0 {
		return new(Sessions), storedGrace{}, nil
	}
	var s storedSessions
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, storedGrace{}, fmt.Errorf("%w: the table of sessions is malformed: %w", ErrRefused, err)
	}
	return &Sessions{
		Format: string(s.Format), Server: string(s.Server), Process: string(s.Process), Name: string(s.Name),
		GraceEnd: s.GraceEnd, Born: s.Born, Made: s.Made, Secrets: string(s.Secrets),
		Members: mapped(s.Members, fromJSON, func(x storedMember) Member {
			return Member{
				Expiry: x.Expiry, TTL: x.TTL, Info: string(x.Info), Beat: x.Beat,
				Guardians: Guardians{x.Version, listed(x.Set, toString)}, Terms: Terms{x.Uses, x.Needs},
			}
		}),
	}, s.storedGrace, nil
}

func encodeMessage(m Message) string {
	return string(encode(storedMessage{string(rune(m.Kind)), anyBytes(m.Key), m.Request, anyBytes(m.Session), m.Partition, m.Epoch}))
}

// decodeMessage is the inverse of encodeMessage. A stranger may have sent the text, so it may be
// anything.
func decodeMessage(text string) (Message, bool) {
	var s storedMessage
	if err := json.Unmarshal([]byte(text), &s); err != nil || len(s.Kind) != 1 {
		return Message{}, false
	}
	switch kind := MessageKind(s.Kind[0]); kind {
	case Wake, Ask, Revoked, Freed, Changed:
		return Message{kind, string(s.Key), s.Request, string(s.Session), s.Partition, s.Epoch}, true
	default:
		return Message{}, false
	}
}
