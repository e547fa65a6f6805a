package periodic

import "time"

// now returns the record of a run that begins now, with the time of the job, and by how much this
// process sets that time. The time of the job is that of this process's clock. If that differs too
// much from the clock of the last run, which the arbiter's clock has carried on, it is the latter.
func (j *job) now(s seen) (r record, set time.Duration) {
	now := j.clock().Round(0)
	r = s.record
	r.At, r.Ran, r.Done, r.Of, r.Host = now, 0, false, j.machine.id, j.machine.host
	r.Differs, r.By, r.From = 0, "", ""
	if s.Due.IsZero() {
		return r, 0
	}
	theirs := s.carried().At
	differs := now.Sub(theirs)
	switch {
	case differs.Abs() <= j.opts.MaxSkew:
		r.Firm = s.Firm || s.Of != "" && s.Of != r.Of && j.witnessed(s)
		return r, 0
	case j.seconds(s, differs): // two against one: an earlier process's clock was wrong
		r.Firm = true
	case s.Of != r.Of || s.Firm || s.Set != 0 && !s.aged():
		r.At, r.Of, r.Host = theirs, s.Of, s.Host
		r.Differs, r.By, r.From = differs, j.id, j.machine.id
		return r, 0
	}
	// Also without a second: the time of the job is of this machine's clock alone, which was set.
	// That counts once per tick or minute, should two machines have the same name.
	r.Set = differs
	if differs < 0 {
		r.back(now)
	}
	return r, differs
}

// witnessed reports whether the record was written since this process began. Else that of another
// machine does not count as one: it may have been this machine, before a reboot.
func (j *job) witnessed(s seen) bool { return !s.written.Before(j.began) }

// seconds reports whether another machine has found that difference. A difference that a process of
// an earlier release found does not count, as it does not name its machine.
func (j *job) seconds(s seen, differs time.Duration) bool {
	return s.By != "" && s.By != j.id && s.From != "" && s.From != j.machine.id &&
		j.witnessed(s) && (differs-s.Differs).Abs() <= j.opts.MaxSkew
}

// news reports whether r is to be written though no tick is due: the time of the job is set, or a
// second machine's clock says the same for the first time. Otherwise a tick brings word of a clock
// that differs; but while the time of the job is behind ticks that were run, none may come.
func news(s seen, r record, set time.Duration) bool {
	confirms := r.Firm && !s.Firm
	differs := r.By != "" && r.From != s.From && r.At.Before(r.Due) && s.aged()
	return set != 0 || s.Done && (confirms || differs)
}

// aged reports whether the record was written some time ago: so clocks that differ do not write it
// over and over.
func (s seen) aged() bool { return time.Since(s.written) >= lookEvery }

// carried is the record as if it began now, with the time of the job carried on. A note of a clock
// that differs is left out: it would look new.
func (s seen) carried() record {
	r := s.record
	r.At, r.Ran = s.At.Add(s.Ran).Add(time.Since(s.written)).Round(0), 0
	r.Differs, r.By, r.From = 0, "", ""
	return r
}
