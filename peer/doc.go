// Package peer carries frames between the nodes of a cluster, over one ordered stream per pair of
// nodes. The meaning of the frames is the business of the package above.
//
// One frame's journey: [Stream.Send] encodes it onto the end of the stream's outgoing buffer. If
// there is no writer, the sender becomes the writer: it yields once, so that others can append to
// the same write, and hands the buffer to the socket. A socket that does not take it all at once is
// left to the stream's own goroutine, so a sender never waits for the network. On the other side
// the stream's read loop reads as much as there is, and decodes frame by frame in place. It gives
// each to [Handler.Frame], in the order sent. The handler's answers are written when the batch is
// used up.
//
// A stream lives as long as its connection. Between Up and Down a frame arrives once and in
// order or not at all; those under way when a stream breaks may or may not have arrived,
// and no later stream repeats them. The package above has to settle that with the first
// frames of a new stream.
//
// # One stream per pair
//
// Both nodes of a pair dial. Of each pair the node with the smaller name decides, on every
// connection that either of them made: the last word of the handshake is its "go". The decider says
// go on another connection only after it has closed the one before. The other side follows: it
// brings a stream up when it reads go, and takes an older one down then. So there is nothing that
// the two could judge differently. Each go carries a number that rises; a follower that asks for a
// connection says which number it saw last and whether that stream still lives. Thus the decider
// can tell a second dial (refused) from a peer that lost its stream (replaced at once). A peer that
// never saw the go of a half-open connection is refused until the keepalive has ended that one.
//
// # Protection
//
// With [Options.TLS] both sides prove that they have the key of their certificate, in a handshake
// of TLS 1.3. The bytes of the stream are then encrypted and authenticated with keys of that
// connection. [Options.Verify] decides whether a name belongs to a certificate. Without TLS nothing
// is protected.
package peer
