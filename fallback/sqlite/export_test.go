package sqlite

import "github.com/holdfast-go/holdfast/fallback"

// Store is the store of New's arbiter.
func Store(path string) fallback.Records { return &store{path: path} }
