package peer

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/tls"
	"encoding/binary"
	"fmt"
)

// records protects the bytes of a stream, with keys of the TLS connection that its handshake went
// over. docs/adr/0001-peer-records.md says why it is not that connection itself.
//
// A record is two bytes with the length of the rest, and AES-128-GCM ciphertext, with the length as
// additional data. Each direction has a key of its own; the nonce is the number of the record. So a
// record that is changed, left out, repeated, or of another stream ends the stream.
type records struct {
	in, out direction
	raw     []byte // owned by the read loop: records, the last one incomplete
	sealed  []byte // owned by the writer: the buffer of its last records
}

type direction struct {
	aead  cipher.AEAD
	nonce [12]byte // of the next record
}

const (
	recordHead = 2
	recordTag  = 16
	maxRecord  = 16 << 10 // bytes of plaintext
	keySize    = 16
)

// newRecords derives the keys of both directions from the connection.
func newRecords(conn *tls.Conn, dialler bool) (*records, error) {
	state := conn.ConnectionState()
	keys, err := state.ExportKeyingMaterial("EXPORTER-holdfast-peer-records", nil, 2*keySize)
	if err != nil {
		return nil, fmt.Errorf("peer: TLS: %w", err)
	}
	r := &records{raw: make([]byte, 0, readBuffer)}
	mine, theirs := keys[:keySize], keys[keySize:] // the dialler's first
	if !dialler {
		mine, theirs = theirs, mine
	}
	if r.out.aead, err = newAEAD(mine); err == nil {
		r.in.aead, err = newAEAD(theirs)
	}
	return r, err
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// step makes the nonce that of the next record. 2^64 are never sent.
func (d *direction) step() {
	binary.BigEndian.PutUint64(d.nonce[4:], binary.BigEndian.Uint64(d.nonce[4:])+1)
}

// seal returns the records that carry b. They are good until the next call.
func (r *records) seal(b []byte) []byte {
	to := r.sealed[:0]
	for len(b) > 0 {
		part := b[:min(len(b), maxRecord)]
		b = b[len(part):]
		at := len(to)
		to = binary.BigEndian.AppendUint16(to, uint16(len(part)+recordTag))
		to = r.out.aead.Seal(to, r.out.nonce[:], part, to[at:at+recordHead])
		r.out.step()
	}
	if cap(to) <= keepBuffer {
		r.sealed = to
	} else {
		r.sealed = nil
	}
	return to
}

// read opens records into buf, which has room for one, until at least one has arrived. more reads
// from the socket.
func (r *records) read(buf []byte, more func([]byte) (int, error)) (int, error) {
	for {
		n, err := r.open(buf)
		if n > 0 || err != nil {
			return n, err
		}
		got, err := more(r.raw[len(r.raw):cap(r.raw)])
		r.raw = r.raw[:len(r.raw)+got]
		if err != nil && got == 0 {
			return 0, err
		}
	}
}

// open opens the records that have arrived and fit into buf.
func (r *records) open(buf []byte) (n int, err error) {
	used := 0
	for {
		rest := r.raw[used:]
		if len(rest) < recordHead {
			break
		}
		size := int(binary.BigEndian.Uint16(rest))
		if size <= recordTag || size > maxRecord+recordTag {
			return n, fmt.Errorf("%w: a record of %d bytes", ErrProtocol, size)
		}
		if len(rest) < recordHead+size || len(buf)-n < size-recordTag {
			break
		}
		plain, err := r.in.aead.Open(buf[n:n:n+size-recordTag], r.in.nonce[:], rest[recordHead:recordHead+size], rest[:recordHead])
		if err != nil {
			return n, fmt.Errorf("%w: a record that the other side has not sent here", ErrProtocol)
		}
		r.in.step()
		n += len(plain)
		used += recordHead + size
	}
	r.raw = r.raw[:copy(r.raw, r.raw[used:])]
	return n, nil
}
