package peer

import "errors"

// Errors of frames.
var (
	// ErrFrame: a frame that cannot be sent, because its kind is unknown or its session or
	// key too long.
	ErrFrame = errors.New("peer: not a valid frame")
	// ErrProtocol: the other side sent bytes that are no frame. The stream is closed.
	ErrProtocol = errors.New("peer: protocol error")
)

// Errors of streams: why one was closed, as Send and Handler.Down report it.
var (
	// ErrClosed matches the error of Send on a stream that is closed; the cause matches too.
	ErrClosed = errors.New("peer: stream closed")
	// ErrLost: the connection ended or failed. The system's error is wrapped too.
	ErrLost = errors.New("peer: connection lost")
	// ErrSilent: nothing arrived for 2.5 keepalives.
	ErrSilent = errors.New("peer: nothing heard from the node")
	// ErrStalled: bytes were waiting and none was taken for 2.5 keepalives.
	ErrStalled = errors.New("peer: the node does not read")
	// ErrQueueFull: more than Options.MaxQueue bytes were waiting.
	ErrQueueFull = errors.New("peer: too much is waiting for the node to read")
	// ErrReplaced: the two nodes have agreed on a newer connection.
	ErrReplaced = errors.New("peer: replaced by a newer stream")
	// ErrRemoved: SetPeers was called without the node.
	ErrRemoved = errors.New("peer: the node was removed")
	// ErrTransportClosed: Transport.Close was called.
	ErrTransportClosed = errors.New("peer: transport closed")
)
