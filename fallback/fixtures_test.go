package fallback_test

import "github.com/holdfast-go/holdfast/internal/spacetest"

var plain, id, lock, open = spacetest.Plain, spacetest.ID, spacetest.Lock, spacetest.Open
