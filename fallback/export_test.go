package fallback

import "context"

// EpochZero is what epochs count seconds from.
const EpochZero = epochZero

// Verify is n.Verify for callers that want one error.
func Verify(ctx context.Context, n Namespace, reads []Read) ([]State, error) {
	states := n.Verify(ctx, reads)
	for _, s := range states {
		if s.Err != nil {
			return nil, s.Err
		}
	}
	return states, nil
}
