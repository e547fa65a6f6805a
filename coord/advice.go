package coord

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/fallback"
)

// adviseEvery is the number of renewals between two looks at the arbiter's settings, which an
// operator may change while the server runs.
const adviseEvery = 12

// advised is the logged advice on the arbiter's settings.
type advised struct {
	mu       mutex[leafRank] // protects said and unfit
	said     map[string]bool // the last look's texts; they are not logged again while they stay
	unfit    string          // why the arbiter is not fit for locks, as the last look says; empty: it is
	renewals int             // since the last look; used by one goroutine
}

// advise logs, in the background, advice on the arbiter's settings: when this process starts, when
// another server has taken over, and every adviseEvery renewals.
func (c *Coordinator) advise() {
	c.remote.advised.renewals = 0
	ns, ok := c.remote.ns.(fallback.Adviser)
	if !ok {
		return
	}
	c.background(func() {
		ctx, cancel := context.WithTimeout(c.life.ctx, c.opts.CallTimeout)
		defer cancel()
		sent := c.now()
		advice, err := ns.Advise(ctx)
		unfit := errors.Is(err, fallback.ErrRefused)
		if err != nil && !unfit {
			c.called(OpAdvise, sent, err)
			return // the settings are not known
		}
		c.called(OpAdvise, sent, nil) // that they are refused is an answer
		texts, why := advice, ""
		if unfit {
			why = err.Error()
			texts = append(texts, why)
		}
		for i, fresh := range c.remote.advised.fresh(texts, why) {
			switch {
			case !fresh:
			case i == len(advice):
				c.opts.Logger.Error("holdfast: the arbiter is not fit for locks any more", "error", err)
			default:
				c.opts.Logger.Warn("holdfast: the arbiter's settings make locks less safe", "advice", texts[i])
			}
		}
	})
}

// notFit returns why the arbiter is not fit for locks any more, empty if it is.
func (x *advised) notFit() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.unfit
}

// fresh reports for each text whether the last look did not give it. It keeps the texts for the
// next look, and the reason why the arbiter is not fit.
func (x *advised) fresh(texts []string, unfit string) []bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unfit = unfit
	was, fresh := x.said, make([]bool, len(texts))
	x.said = make(map[string]bool, len(texts))
	for i, text := range texts {
		x.said[text], fresh[i] = true, !was[text]
	}
	return fresh
}

// adviseNowAndThen looks at the settings again when it is time to. One goroutine calls it at a
// time.
func (c *Coordinator) adviseNowAndThen() {
	if c.remote.advised.renewals++; c.remote.advised.renewals >= adviseEvery {
		c.advise()
	}
}
