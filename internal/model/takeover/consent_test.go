package takeover

import "testing"

const (
	alone    = 0b110 // a speaks to the old store, b and c to the promoted one
	noLinks  = 0
	bcLinked = 0b100 // b and c reach each other, and none reaches a
	bridged  = 0b101 // b reaches both
	linked   = 0b111
)

// TestConsent shows the guarantees of consent, and their limits:
// docs/adr/0003-early-grace-and-consent.md.
func TestConsent(t *testing.T) {
	for _, tt := range []struct {
		name  string
		m     Consent
		steps int // 0: it holds
	}{
		{"cut off with the old store", Consent{Stores: alone, Links: bcLinked, Agreed: true}, 0},
		{"the same, with the key", Consent{Stores: alone, Links: bcLinked, Agreed: true, Held: true}, 0},
		{"without consent", Consent{Stores: alone, Links: bcLinked}, 8},
		{"a newcomer beside the old store", Consent{Stores: alone, Links: bcLinked, Agreed: true, Restarts: 1}, 8},
		{"a newcomer, and a quorum", Consent{Stores: alone, Links: bcLinked, Agreed: true, Quorum: 2, Restarts: 2}, 0},
		{"the same, with the key", Consent{Stores: alone, Links: bcLinked, Agreed: true, Quorum: 2, Restarts: 2, Held: true}, 0},
		{"a bridge", Consent{Stores: alone, Links: bridged, Agreed: true, Quorum: 2}, 12},
		{"members reach each other, and different stores", Consent{Stores: alone, Links: linked, Agreed: true, Quorum: 2, Held: true}, 11},
		{"the same, and expiry is not death", Consent{Stores: alone, Links: linked, Agreed: true, Buried: true, Quorum: 2, Held: true}, 0},
		{"the same, and the key is free", Consent{Stores: alone, Links: linked, Agreed: true, Buried: true, Quorum: 2}, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.m.Limit = 2_000_000
			r := tt.m.Explore()
			if tt.steps == 0 {
				holds(t, r, true)
			} else {
				breaks(t, r, tt.steps)
			}
		})
	}
}
