package peer

import "fmt"

// Kind is the meaning of a frame. The zero Kind is not valid.
type Kind uint8

// The kinds of frames, in the words of the lock protocol. This package only knows that they
// exist: a frame of any other kind is a protocol error and closes the stream.
const (
	Request Kind = iota + 1 // asks for a key
	Grant                   // gives a key with a block of tokens
	Recall                  // asks for a key back
	Release                 // gives a key back
	Cancel                  // a wait is given up
	Moved                   // not the owner; or, by its flags, the partition should be the receiver's
	Ping                    // asks for the owner's deadline
	Pong                    // answers a Ping
	Resume                  // a hold, stated on a new stream or offered to its owner; flags mark begin and end
	Frozen                  // announced deadlines of an epoch are not extended any more
	Ask                     // do you have this hold?
	Deny                    // no, to a Request, a Recall or an Ask
	Guard                   // a ping, promise or vote of takeover by guardians; only to nodes that take part
	Query                   // a part of a question about keys; only to nodes that answer questions
	Answer                  // a part of the answer
	Hint                    // a message of an arbiter that delivers none; only to nodes that take such frames

	kinds // their number and one
)

var kindNames = [kinds]string{
	Request: "Request", Grant: "Grant", Recall: "Recall", Release: "Release", Cancel: "Cancel", Moved: "Moved",
	Ping: "Ping", Pong: "Pong", Resume: "Resume", Frozen: "Frozen", Ask: "Ask", Deny: "Deny", Guard: "Guard",
	Query: "Query", Answer: "Answer", Hint: "Hint",
}

// String returns the kind's name, or Kind(n) for one that does not exist.
func (k Kind) String() string {
	if !k.valid() {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

func (k Kind) valid() bool { return k > 0 && k < kinds }

// Bounds of a frame, in bytes.
const (
	MaxSession = 64   // of Frame.Session
	MaxKey     = 1088 // of Frame.Key: the longest key, and the rest of a hold's name
	MaxFrame   = 2048 // of an encoded frame without its length
)

// Frame is a message between two nodes. There is one struct for all kinds, so that frames
// are decoded without allocation; which fields a kind uses is up to the package above. A
// field that is zero takes no room on the wire.
type Frame struct {
	Kind      Kind
	Flags     uint8  // meaning depends on Kind
	Request   uint64 // request ID: with Session, the identity of a hold or a wait
	Partition uint32
	Epoch     uint32
	Token     uint64
	Count     uint32 // size of a block of tokens, or some number
	Left      uint32 // milliseconds
	Ping      uint32 // number of the ping that Left counts from

	// Session is the session that the identity belongs to, Key the key. In a frame that was
	// decoded both are part of the read buffer: valid until the handler returns, and not to
	// be written to. Empty and nil are the same.
	Session []byte
	Key     []byte
}

// Check reports whether f can be sent: nil, or an error that matches [ErrFrame].
func (f *Frame) Check() error {
	switch {
	case !f.Kind.valid():
		return fmt.Errorf("%w: unknown kind %d", ErrFrame, uint8(f.Kind))
	case len(f.Session) > MaxSession:
		return fmt.Errorf("%w: session of %d bytes, at most %d", ErrFrame, len(f.Session), MaxSession)
	case len(f.Key) > MaxKey:
		return fmt.Errorf("%w: key of %d bytes, at most %d", ErrFrame, len(f.Key), MaxKey)
	}
	return nil
}
