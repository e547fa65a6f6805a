package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-go/holdfast/internal/figures"
)

// writeTable compares the rungs.
func writeTable(w io.Writer, outcomes []outcome) {
	table := [][]string{{"", "expiries", "refreshes", "asked", "too early", "used twice", "revoked", "in doubt", "replayed", "logins", "calls", "refused"}}
	for _, o := range outcomes {
		row := []string{o.rung.title}
		c := o.counts
		for _, n := range []int{c.Expiries, c.Refreshes, c.Requests, c.Early, c.Reuses, c.Revocations, o.doubts, c.Replays, c.Logins - o.accounts, int(o.result.Calls), int(o.result.Refused)} {
			row = append(row, fmt.Sprint(n))
		}
		table = append(table, row)
	}
	figures.Align(w, table)
	for _, o := range outcomes {
		if o.killed > 0 {
			fmt.Fprintf(w, "%s: %d processes were killed between the provider's commit and its answer\n", o.rung.title, o.killed)
		}
	}
	fmt.Fprint(w, `
expiries    how many access tokens came to their end and were replaced, by a refresh or a login
refreshes   that the provider granted; asked: how often it was asked
too early   refreshes of an access token that was not near its end: somebody had refreshed it just before
used twice  refresh tokens that the provider got once more
revoked     logins that this has cost: somebody has to find the password
in doubt    nobody knows whether a refresh token was spent, and it is not sent again: somebody has to log in, before it is stolen goods
replayed    refresh tokens that were sent once more, to a provider that forgives that
logins      after the first one of each account
refused     calls of the API with a token that was not valid
`)
}

// verdict is nil if the rungs that are to be safe were.
func verdict(outcomes []outcome) error {
	var errs []error
	for _, o := range outcomes {
		if !o.rung.safe {
			continue
		}
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: %s", o.rung.title, fmt.Sprintf(format, args...)))
		}
		c := o.counts
		if c.Revocations > 0 {
			wrong("%d logins were revoked", c.Revocations)
		}
		if n := c.Reuses - c.Replays; n > 0 {
			wrong("%d refresh tokens were used twice", n)
		}
		if c.Early > 0 {
			wrong("%d tokens were refreshed twice", c.Early)
		}
		if c.Requests != c.Refreshes {
			wrong("%d requests for %d refreshes", c.Requests, c.Refreshes)
		}
		if o.doubts+c.Replays < o.killed {
			wrong("%d processes were killed, but %d doubts reported and %d tokens replayed", o.killed, o.doubts, c.Replays)
		}
		if o.doubts+c.Replays > o.killed*o.accounts { // a process may have been asking for several accounts
			wrong("%d processes were killed, and %d doubts reported and %d tokens replayed", o.killed, o.doubts, c.Replays)
		}
		if o.result.Failed > 0 {
			wrong("%d calls failed, one with: %s", o.result.Failed, o.result.Failure)
		}
		if o.result.Calls == 0 {
			wrong("the API was never called")
		}
	}
	return errors.Join(errs...)
}
