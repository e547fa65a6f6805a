package fallback

import (
	"fmt"
	"strconv"
	"strings"
)

// Encode returns the text of an identity, as arbiters may keep it; the zero one's is empty.
func (id Identity) Encode() string {
	if id == (Identity{}) {
		return ""
	}
	return id.Session + " " + strconv.FormatUint(id.Request, 10)
}

// Encode returns the text of a row, as arbiters may keep it.
func (r Row) Encode() string {
	b := make([]byte, 0, 64)
	b = append(append(b, r.Session...), ' ')
	b = append(strconv.AppendUint(b, r.Request, 10), ' ')
	b = append(strconv.AppendUint(b, uint64(r.Token.Epoch()), 10), ' ')
	return string(strconv.AppendUint(b, uint64(r.Token.Seq()), 10))
}

// DecodeRow is the inverse of Row.Encode. The empty text is the zero row.
func DecodeRow(text string) (r Row, err error) {
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

// epochBits is how long an epoch may be: MaxEpoch has as many bits.
const epochBits = 31
