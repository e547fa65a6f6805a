// Package standin tells arbiters that this program runs them on what stands for their store, in
// tests and examples of this repository.
package standin

import "sync/atomic"

// MongoDB says that a server need be no replica set, and may be FerretDB: that of
// internal/ferretdb, which writes one record at a time.
var MongoDB atomic.Bool
