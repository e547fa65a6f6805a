package fallback

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// encode is the text of an identity; the zero one's is empty.
func (id Identity) encode() string {
	if id == (Identity{}) {
		return ""
	}
	return id.Session + " " + strconv.FormatUint(id.Request, 10)
}

// encode is the text of a row.
func (r Row) encode() string {
	b := make([]byte, 0, 64)
	b = append(append(b, r.Session...), ' ')
	b = append(strconv.AppendUint(b, r.Request, 10), ' ')
	b = append(strconv.AppendUint(b, uint64(r.Token.Epoch()), 10), ' ')
	return string(strconv.AppendUint(b, uint64(r.Token.Seq()), 10))
}

// decodeRow is the inverse of encode. The empty text is the zero row.
func decodeRow(text string) (r Row, err error) {
	if text == "" {
		return Row{}, nil
	}
	f := strings.Split(text, " ")
	if len(f) != 4 || f[0] == "" {
		return Row{}, fmt.Errorf("fallback: %q is not a row", text)
	}
	r.Session = f[0]
	var n [3]uint64
	for i, bits := range [3]int{64, epochBits, 32} {
		if n[i], err = strconv.ParseUint(f[i+1], 10, bits); err != nil {
			return Row{}, fmt.Errorf("fallback: %q is not a row", text)
		}
	}
	r.Request, r.Token = n[0], MakeToken(uint32(n[1]), uint32(n[2]))
	return r, nil
}

// decodeToken reads the token of Lock's usual answer.
func decodeToken(text string) (Token, error) {
	epoch, seq, _ := strings.Cut(text, " ")
	e, err := strconv.ParseUint(epoch, 10, epochBits)
	s, err2 := strconv.ParseUint(seq, 10, 32)
	if err != nil || err2 != nil {
		return 0, fmt.Errorf("fallback: a script answered %q, which is no token", text)
	}
	return MakeToken(uint32(e), uint32(s)), nil
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

func (r *reader) verdict() Verdict {
	s := r.str(0)
	for i, text := range verdicts {
		if i != 0 && text == s {
			return Verdict(i)
		}
	}
	if r.err == nil {
		r.err = fmt.Errorf("fallback: a script answered %v", r.v)
	}
	return 0
}

func (r *reader) record() Record {
	return Record{Owner: r.str(1), Epoch: r.epoch(2), Grace: r.ms(3), Revoked: r.num(4) == 1}
}

func (r *reader) epoch(i int) uint32 {
	n := r.num(i)
	if n < 0 || n > MaxEpoch {
		if r.err == nil {
			r.err = fmt.Errorf("fallback: a script answered the epoch %d, above the last one, %d", n, MaxEpoch)
		}
		return 0
	}
	return uint32(n)
}

func (r *reader) row(i int) Row {
	row, err := decodeRow(r.str(i))
	if err != nil && r.err == nil {
		r.err = err
	}
	return row
}
