package redisarbiter

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// decodeToken reads the token of Lock's usual answer.
func decodeToken(text string) (fallback.Token, error) {
	epoch, seq, _ := strings.Cut(text, " ")
	e, err := strconv.ParseUint(epoch, 10, epochBits)
	s, err2 := strconv.ParseUint(seq, 10, 32)
	if err != nil || err2 != nil {
		return 0, fmt.Errorf("fallback: a script answered %q, which is no token", text)
	}
	return fallback.MakeToken(uint32(e), uint32(s)), nil
}

// epochBits is how long an epoch may be: MaxEpoch has as many bits.
const epochBits = 31

// recordLen is the length of a verdict and a record in an answer.
const recordLen = 5

// reader takes an answer apart. It keeps the first error.
type reader struct {
	v   []any
	err error
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func (r reader) str(i int) string {
	if i < len(r.v) {
		if s, ok := r.v[i].(string); ok {
			return s
		}
	}
	return ""
}

func (r *reader) num(i int) int64 {
	if i < len(r.v) {
		if n, ok := r.v[i].(int64); ok {
			return n
		}
	}
	if r.err == nil {
		r.err = fmt.Errorf("fallback: a script's answer has no number at %d: %v", i, r.v)
	}
	return 0
}

func (r *reader) ms(i int) time.Duration { return time.Duration(r.num(i)) * time.Millisecond }

func (r *reader) verdict() fallback.Verdict {
	s := r.str(0)
	if v, ok := fallback.ParseVerdict(s); ok {
		return v
	}
	if r.err == nil {
		r.err = fmt.Errorf("fallback: a script answered %v", r.v)
	}
	return 0
}

func (r *reader) record() fallback.Record {
	return fallback.Record{Owner: r.str(1), Epoch: r.epoch(2), Grace: r.ms(3), Revoked: r.num(4) == 1}
}

func (r *reader) epoch(i int) uint32 {
	n := r.num(i)
	if n < 0 || n > fallback.MaxEpoch {
		if r.err == nil {
			r.err = fmt.Errorf("fallback: a script answered the epoch %d, above the last one, %d", n, fallback.MaxEpoch)
		}
		return 0
	}
	return uint32(n)
}

func (r *reader) row(i int) fallback.Row {
	row, err := fallback.DecodeRow(r.str(i))
	if err != nil && r.err == nil {
		r.err = err
	}
	return row
}
