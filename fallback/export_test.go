package fallback

import "context"

// EpochZero is the date from where epochs count seconds.
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

// Stored is the part of a record that concerns time.
type Stored struct {
	Beat, Length int64            // of its Grace; Beat 0: none
	Beats        map[string]int64 // of sessions; 0: it was buried
	Born         uint32
}

// StoredTable returns the Stored of a table of sessions, and StoredPartition that of a partition.
func StoredTable(text []byte) (s Stored, err error) {
	table, g, err := decodeSessions(text)
	if err != nil {
		return s, err
	}
	s = Stored{g.Beat, g.Length, make(map[string]int64), table.Born}
	for id, x := range table.Members {
		if s.Beats[id] = x.Beat; x.TTL == 0 {
			s.Beats[id] = 0
		}
	}
	return s, nil
}

func StoredPartition(text []byte) (s Stored, err error) {
	_, g, err := decodePartition(text)
	return Stored{Beat: g.Beat, Length: g.Length}, err
}
