package redisarbiter_test

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// some is all that is compared of a duration.
func some(d time.Duration) time.Duration {
	switch {
	case d < 0:
		return -1
	case d > 2*diffSettings.Grace:
		return 2 // too much
	case d > 0:
		return 1
	}
	return 0
}

func plainRecord(r fallback.Record) fallback.Record { r.Grace = some(r.Grace); return r }

func plainAcquisition(a fallback.Acquisition) fallback.Acquisition {
	a.Record = plainRecord(a.Record)
	if len(a.Rows) == 0 {
		a.Rows = nil
	}
	return a
}

func plainRestored(r fallback.Restored) fallback.Restored { r.Grace = some(r.Grace); return r }

func plainDemotion(d fallback.Demotion) fallback.Demotion { d.Record = plainRecord(d.Record); return d }

func plainAnswer(a fallback.LockAnswer) fallback.LockAnswer {
	a.Record, a.Retry = plainRecord(a.Record), some(a.Retry)
	return a
}

func plainStates(states []fallback.State) []fallback.State {
	for i := range states {
		states[i].Record = plainRecord(states[i].Record)
	}
	return states
}

func plainRenewal(r fallback.Renewal) fallback.Renewal {
	r.Grace = some(r.Grace)
	r.Expiry = min(r.Expiry, 1)
	if r.Server != "" {
		r.Server = "its name"
	}
	for i, x := range r.Secrets { // each server has secrets of its own: how many there are, and how old
		if x != (fallback.Secret{}) {
			x = fallback.Secret{Key: [32]byte{1}, Age: x.Age.Truncate(24 * time.Hour)}
		}
		r.Secrets[i] = x
	}
	return r
}

func plainListing(l fallback.Listing) fallback.Listing { l.Grace = some(l.Grace); return l }

func plainLiveness(l fallback.Liveness) fallback.Liveness {
	l.Left, l.Grace = some(l.Left), some(l.Grace)
	return l
}

func identity[T any](v T) T { return v }

// done is for operations that answer nothing.
func done(err error) (struct{}, error) { return struct{}{}, err }
