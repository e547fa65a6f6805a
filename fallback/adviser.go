package fallback

import "context"

// An Adviser is a Namespace that knows which settings of the store make locks less safe than they
// could be.
type Adviser interface {
	// Advise looks at the store's settings as they are now. Each advice names the danger and the
	// setting to use. An error that matches [ErrRefused] says that the store is not fit any more.
	Advise(ctx context.Context) (advice []string, err error)
}
