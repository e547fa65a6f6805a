package fallback

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrWait: the session was not opened, because it needs a longer Grace than others use. They take
// it over with their next renewals, and those that have ended are gone after their time to live,
// which is less than Grace. To be tried again, after a second: by then a server's replicas know of
// it. It is also matched by the error of a table that is too large, until this process knows that
// none of its sessions has ended.
var ErrWait = fmt.Errorf("fallback: sessions of the namespace use a shorter Grace than this process needs, and take the longer one over " +
	"with their next renewals: the session is opened then")

// Terms is a session's statement about the length of Grace, in milliseconds. The zero Terms is that
// of a session of an earlier version: it uses the Grace that the namespace was formatted with.
type Terms struct {
	Uses  int64 // the calls of its process go by a Grace that is not shorter
	Needs int64 // its leases end within a Grace of this length
}

// An Agreement is a process's part in a change of Grace, in milliseconds. A longer Grace is used
// first, and stated by the next renewal; a shorter one is stated first.
type Agreement struct {
	Needs int64 // the Grace that the process asks for
	Uses  int64 // the Grace that its calls go by
	Plans int64 // the Grace that its renewals state, if that is less
}

// Terms returns the Terms that a renewal states, if no call with less is on its way.
func (a *Agreement) Terms() Terms { return Terms{min(a.Uses, a.Plans), a.Needs} }

// Told heeds the answer to a renewal that stated terms, and returns the Grace that calls are to use
// from now on. alone says that no other renewal, which may state more, is on its way.
func (a *Agreement) Told(r Renewal, stated Terms, alone bool) (use int64) {
	told := max(a.Needs, r.Length)
	switch {
	case r.Length == 0 || told < a.Uses && (r.Grace != 0 || !r.Alive):
	case told > a.Uses:
		return told
	default:
		a.Plans = told
		if stated.Uses == told && alone {
			return told
		}
	}
	return a.Uses
}

// Use makes calls use a Grace from now on.
func (a *Agreement) Use(ms int64) { a.Uses, a.Plans = ms, ms }

// Encode returns the text that arbiters keep: each number after a semicolon. The zero Terms is "".
func (t Terms) Encode() string {
	if t == (Terms{}) {
		return ""
	}
	return fmt.Sprintf(";%d;%d", t.Uses, t.Needs)
}

// Grace is the one of the mark, which all sessions that are opened use, in milliseconds; 0 without
// a mark.
func (s *Sessions) Grace() int64 { return markGrace(s.Format, " grace=") }

// formattedWith is the Grace that sessions of earlier versions use.
func (s *Sessions) formattedWith() int64 {
	if was := markGrace(s.Format, " was="); was > 0 {
		return was
	}
	return s.Grace()
}

func markGrace(mark, field string) int64 {
	_, rest, ok := strings.Cut(mark, field)
	if !ok {
		return 0
	}
	text, _, _ := strings.Cut(rest, " ")
	d, _ := time.ParseDuration(text) // 0 if it is none
	return d.Milliseconds()
}

// setGrace changes the mark's Grace. The mark keeps the one that the namespace was formatted with,
// and when it was raised last, in Unix milliseconds; 0: it was lowered after that.
func (s *Sessions) setGrace(ms, raised int64) {
	was := s.formattedWith()
	mark, _, _ := strings.Cut(s.Format, " was=")
	f := strings.Fields(mark)
	for i := range f {
		if strings.HasPrefix(f[i], "grace=") {
			f[i] = fmt.Sprintf("grace=%dms", ms)
		}
	}
	s.Format = fmt.Sprintf("%s was=%dms raised=%d", strings.Join(f, " "), was, raised)
}

// raised is when the mark's Grace was raised last. A session that it was raised for may not be open
// yet.
func (s *Sessions) raised() int64 {
	_, at, _ := strings.Cut(s.Format, " raised=")
	ms, _ := strconv.ParseInt(at, 10, 64) // 0 if there is none
	return ms
}

// OpenWith is [SessionStore.Open] by a session that states terms. wait says that it was not opened:
// see ErrWait. Such a call raises the mark's Grace; a later one opens the session, when no other
// session uses a shorter Grace than it needs. In the table's Grace sessions may be missing that use
// less, so no session is opened that needs more than the mark.
func (s *Sessions) OpenWith(m Moment, id string, ttl int64, info string, t Terms) (r Renewal, wait, ok bool) {
	if !s.enter(m) {
		return Renewal{}, false, false
	}
	if _, exists := s.Members[id]; exists {
		r, ok = s.RenewWith(m, id, ttl, info, t)
		return r, false, ok
	}
	if s.GraceEnd == 0 {
		s.sweep(m)
	}
	least, most := s.survey()
	if t.Needs > s.Grace() || t.Uses < s.Grace() || least < t.Needs {
		if s.GraceEnd == 0 && t.Needs >= s.Grace() {
			s.setGrace(t.Needs, m.Now)
		}
		return Renewal{Server: s.Name, Grace: s.grace(m), Length: s.Grace()}, true, true
	}
	s.lower(m, max(most, t.Needs))
	r, ok = s.Open(m, id, ttl, info)
	s.state(id, t)
	r.Length = s.Grace()
	return r, false, ok
}

// RenewWith is [SessionStore.Renew] by a session that states terms.
func (s *Sessions) RenewWith(m Moment, id string, ttl int64, info string, t Terms) (r Renewal, ok bool) {
	r, ok = s.Renew(m, id, ttl, info)
	if r.Alive {
		s.state(id, t)
		s.tidy(m)
		r.Sessions = len(s.Members)
		switch {
		case t.Needs > s.Grace():
			s.setGrace(t.Needs, m.Now)
		case t.Needs < s.Grace() && s.GraceEnd == 0: // another session needs more, or none does any more
			s.sweep(m)
			_, most := s.survey()
			s.lower(m, most)
			r.Sessions = len(s.Members)
		}
	}
	r.Length = s.Grace()
	return r, ok
}

func (s *Sessions) state(id string, t Terms) {
	x := s.Members[id]
	x.Terms = t
	s.Members[id] = x
}

// survey returns the shortest Grace that a session uses, and the longest that one needs; without
// sessions, the longest there is, and 0.
func (s *Sessions) survey() (least, most int64) {
	least = maxAge
	for _, x := range s.Members {
		t := x.Terms
		if t == (Terms{}) {
			t = Terms{s.formattedWith(), s.formattedWith()}
		}
		least, most = min(least, t.Uses), max(most, t.Needs)
	}
	return least, most
}

// lower makes the mark's Grace the longest that a session needs. It does not in the table's Grace,
// as the table may not have all sessions. Nor does it for as long as a Grace after a raise: a
// session may not be open yet.
func (s *Sessions) lower(m Moment, needs int64) {
	if q := s.Grace(); s.GraceEnd == 0 && needs > 0 && needs < q && m.Now >= s.raised()+q {
		s.setGrace(needs, 0)
	}
}
