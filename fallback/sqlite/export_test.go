package sqlite

import "github.com/holdfast-go/holdfast/fallback"

// Store is what New makes an arbiter of.
func Store(path string) fallback.Records { return &store{path: path} }
