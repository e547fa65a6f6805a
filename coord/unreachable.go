package coord

import "time"

// unreached is the sessions of owners that this node has no stream to, and since when. It outlives
// the single request, so that callers that wait for moments only get through in the end.
type unreached struct {
	mu mutex[leafRank] // protects m
	m  map[string]silence
}

type silence struct {
	since  time.Time
	broken bool // there was a stream
}

// lost notes that a stream has ended.
func (u *unreached) lost(session string, now time.Time) { u.put(session, silence{now, true}) }

// found notes that there is one.
func (u *unreached) found(session string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.m, session)
}

// long tells whether there has been no stream to a session for so long that its partitions should
// go key by key. After one that broke this is when a new one would have come; a node that has only
// just been heard of may still be about to connect.
func (u *unreached) long(session string, now time.Time, o *Options) bool {
	u.mu.Lock()
	s, ok := u.m[session]
	u.mu.Unlock()
	if !ok {
		s = silence{since: now}
		u.put(session, s)
	}
	if s.broken {
		return now.Sub(s.since) > o.RetryEvery
	}
	return now.Sub(s.since) > o.RenewEvery
}

// maxUnreached is when to forget those that are silent for longest: sessions end.
const maxUnreached = 256

func (u *unreached) put(session string, s silence) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.m == nil {
		u.m = make(map[string]silence)
	}
	if len(u.m) >= maxUnreached {
		oldest, since := "", s.since
		for id, x := range u.m {
			if x.since.Before(since) {
				oldest, since = id, x.since
			}
		}
		delete(u.m, oldest)
	}
	u.m[session] = s
}
