package leasetest

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// ignoredFields do not change the further course of a world: memory that is kept to be used again,
// counters for reports, and fields for tests.
var ignoredFields = map[string]bool{
	"unused": true, "spare": true, "spares": true, "out": true, "peak": true, "grants": true, "seen": false, "Quiet": true, "log": true, "cfg": true,
	"granted": true, "broken": true, "newest": true, "lookedAt": true, "quickUntil": true, "QuickUntil": true,
	"shelf": true, "shelfNext": true, "shelved": true,
}

// printer makes a fingerprint of all that is reachable from a world, whatever it is called.
// Pointers are numbered in the order in which they are found.
type printer struct {
	h    maphash.Hash
	seen map[unsafe.Pointer]uint64
}

var printSeed = maphash.MakeSeed()

// fingerprint is equal for worlds that cannot be told apart.
func fingerprint(w *World) uint64 {
	var p printer
	p.h.SetSeed(printSeed)
	p.seen = make(map[unsafe.Pointer]uint64)
	p.value(reflect.ValueOf(w))
	return p.h.Sum64()
}

func (p *printer) number(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	p.h.Write(b[:])
}

var timeType, sessionType = reflect.TypeFor[time.Time](), reflect.TypeFor[*lease.Session]()

func (p *printer) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			p.number(1)
		} else {
			p.number(0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		p.number(v.Uint())
	case reflect.String:
		p.number(uint64(v.Len()))
		p.h.WriteString(v.String())
	case reflect.Slice, reflect.Array:
		p.number(uint64(v.Len()))
		for i := range v.Len() {
			p.value(v.Index(i))
		}
	case reflect.Map:
		p.entries(v)
	case reflect.Interface:
		if v.IsNil() {
			p.number(0)
			return
		}
		p.h.WriteString(v.Elem().Type().String())
		p.value(v.Elem())
	case reflect.Pointer:
		p.pointer(v)
	case reflect.Struct:
		p.fields(v)
	case reflect.Func, reflect.Chan, reflect.UnsafePointer: // no state of a world
	default:
		panic("leasetest: a field of kind " + v.Kind().String())
	}
}

// entries writes a map with strings as keys, as all are, in order.
func (p *printer) entries(v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
	p.number(uint64(len(keys)))
	for _, k := range keys {
		p.value(k)
		p.value(v.MapIndex(k))
	}
}

func (p *printer) pointer(v reflect.Value) {
	at := v.UnsafePointer()
	if n, ok := p.seen[at]; ok || at == nil {
		p.number(n)
		return
	}
	p.seen[at] = uint64(len(p.seen) + 1)
	if v.Type() == sessionType {
		s := (*lease.Session)(at)
		p.h.WriteString(s.ID)
		p.number(uint64(s.Deadline().UnixNano()))
		return
	}
	p.value(v.Elem())
}

func (p *printer) fields(v reflect.Value) {
	t := v.Type()
	if t == timeType { // there are no monotonic readings here
		p.value(v.Field(0))
		p.value(v.Field(1))
		return
	}
	for i := range t.NumField() {
		if !ignoredFields[t.Field(i).Name] {
			p.value(v.Field(i))
		}
	}
}
