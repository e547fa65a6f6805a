package fallback

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// A Mode is the way in which a hold shares its key: it decides which other holds of the key it
// stands beside. The zero Mode is exclusive: it stands beside none.
type Mode struct {
	Kind ModeKind
	N    uint32 // Permits: so many
	Of   uint32 // Permits: of so many; all holds of the key have the same

	// Block is the block that the permits are of, "" if they are of none. A holder that needs fewer
	// of a block gets another hold of it, of fewer, and then gives the first one back: holds of one
	// block count as the largest of them.
	Block string
}

// A ModeKind is the kind of a Mode.
type ModeKind byte

// The kinds of modes.
const (
	Exclusive ModeKind = 0   // stands beside no other hold
	Shared    ModeKind = 's' // stands beside other Shared ones
	Permits   ModeKind = 'p' // stands beside other Permits, as long as their sum is at most Of
	unknown   ModeKind = '?' // of a later version of this package; stands beside none

	// Downgraded is Shared, for a session that has the exclusive hold. It is granted beside that
	// one, and before the holds that wait. The session then gives the exclusive hold back. No other
	// hold is granted until it has: both are in the way.
	Downgraded ModeKind = 'd'
)

// The name of a hold says its mode. An exclusive one has the key as its name. Any other has a name
// of its own, which begins with the key: so two holds of one name exclude each other, as ever. Only
// the grant of a hold looks at the key's other names.
//
//	key NUL mode holder NUL 0xff
//
// The mode is "s", "d", or "p", n, "/", N and "/". A text of that form must not be used as a key.
const nameEnd = "\x00\xff"

// NameLen is by how many bytes a name is longer than its key, at most, if the holder has MaxHolder
// bytes.
const (
	MaxHolder = 24
	NameLen   = 1 + len("p4294967295/4294967295/") + MaxHolder + len(nameEnd)
)

// IsName reports whether a text is the name of a hold that is not exclusive. It must not be used as
// a key.
func IsName(name string) bool {
	if len(name) == 0 || name[len(name)-1] != 0xff { // as a rule
		return false
	}
	_, spec := split(name)
	return spec != ""
}

// SharedName is the name of a shared hold of the key. A holder is 1 to MaxHolder letters, digits
// and slashes. Each process uses holders of its own, and another one for each hold that it has of
// the key at the same time.
func SharedName(key, holder string) string { return key + "\x00s" + holder + nameEnd }

// DowngradedName is the name of a hold for a holder that has the key's exclusive one. See
// [Downgraded].
func DowngradedName(key, holder string) string { return key + "\x00d" + holder + nameEnd }

// PermitsName is the name of a hold of n permits of the key's N.
func PermitsName(key string, n, of uint32, holder string) string {
	return key + "\x00p" + strconv.FormatUint(uint64(n), 10) + "/" + strconv.FormatUint(uint64(of), 10) + "/" + holder + nameEnd
}

// BlockName is the name of a hold of n permits of the key's N that are a block of its holder's. A
// holder uses another number for each of its blocks, of ten digits at most: below 36^10.
func BlockName(key string, n, of uint32, holder string, number uint64) string {
	return PermitsName(key, n, of, holder+"/"+strconv.FormatUint(number, 36))
}

// Split returns the key and the mode that a name says.
func Split(name string) (key string, m Mode) {
	key, spec := split(name)
	return key, modeOf(spec)
}

// split returns the key, and the rest of the name, "" for the name of an exclusive hold.
func split(name string) (key, spec string) {
	inner, ok := strings.CutSuffix(name, nameEnd)
	if !ok { // as a rule
		return name, ""
	}
	i := strings.LastIndexByte(inner, 0)
	if i < 0 || i+1 == len(inner) || strings.ContainsFunc(inner[i+1:], notInName) {
		return name, ""
	}
	return inner[:i], inner[i+1:]
}

func notInName(r rune) bool {
	return r != '/' && (r < '0' || '9' < r) && (r < 'A' || 'Z' < r) && (r < 'a' || 'z' < r)
}

func named(key, spec string) string {
	if spec == "" {
		return key
	}
	return key + "\x00" + spec + nameEnd
}

func modeOf(spec string) Mode {
	if spec == "" {
		return Mode{}
	}
	switch ModeKind(spec[0]) {
	case Shared, Downgraded:
		return Mode{Kind: ModeKind(spec[0])}
	case Permits:
		f := strings.SplitN(spec[1:], "/", 3)
		if len(f) < 3 {
			break
		}
		n, err := strconv.ParseUint(f[0], 10, 32)
		of, err2 := strconv.ParseUint(f[1], 10, 32)
		if err == nil && err2 == nil && 0 < n && n <= of {
			m := Mode{Kind: Permits, N: uint32(n), Of: uint32(of)}
			if strings.IndexByte(f[2], '/') >= 0 {
				m.Block = f[2]
			}
			return m
		}
	}
	return Mode{Kind: unknown}
}

// Reads reports whether the holder may only read.
func (m Mode) Reads() bool { return m.Kind == Shared || m.Kind == Downgraded }

// Beside reports whether a hold of the mode may be granted beside holds of other names of the key.
func (m Mode) Beside(others ...Mode) bool {
	if !guard.Modes {
		return true
	}
	if m.Kind == Downgraded {
		m.Kind = Shared
	}
	sum := uint64(m.N)
	for _, o := range others {
		if o.Kind == Downgraded {
			o.Kind = Shared
		}
		sum += uint64(o.N)
		if m.Kind != o.Kind || m.Of != o.Of || m.Kind != Shared && m.Kind != Permits {
			return false
		}
	}
	return len(others) == 0 || sum <= uint64(m.Of) || m.Kind == Shared || m.Kind == Permits && m.sum(others) <= uint64(m.Of)
}

// sum returns how many permits the holds are together: those of one block are as many as the
// largest of them.
func (m Mode) sum(others []Mode) (sum uint64) {
	largest := map[string]uint32{m.Block: m.N}
	if m.Block == "" {
		sum = uint64(m.N)
	}
	for _, o := range others {
		if o.Block == "" {
			sum += uint64(o.N)
		} else {
			largest[o.Block] = max(largest[o.Block], o.N)
		}
	}
	delete(largest, "")
	for _, n := range largest {
		if !guard.Blocks {
			return uint64(m.N)
		}
		sum += uint64(n)
	}
	return sum
}

// Shrinks reports whether a hold of the mode is one of fewer permits, or as many, of the block that
// another hold is of.
func (m Mode) Shrinks(o Mode) bool {
	return m.Block != "" && m.Block == o.Block && m.N <= o.N && m.Of == o.Of
}
