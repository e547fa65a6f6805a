package fallback

// Durability is what a store may lose of what it has acknowledged.
type Durability int

// The degrees of durability.
const (
	// Unguarded: a store that has lost something is not noticed, and believed.
	Unguarded Durability = iota

	// Guarded: it may lose the last writes in a failover, or everything. That is noticed, and
	// Grace begins. (Guardians of sessions are something else: see Burier.)
	Guarded

	// Durable: what was acknowledged is never lost. There is no Grace over any failure. What begins
	// it is what operators do: a namespace that is missing may have been deleted, and an older
	// backup that is put in its place is noticed by a process that has seen newer data.
	Durable
)

// String returns the name of the degree.
func (d Durability) String() string {
	switch d {
	case Unguarded:
		return "unguarded"
	case Guarded:
		return "guarded"
	default:
		return "durable"
	}
}

// A Keeper is a Namespace that tells how durable its store is. One that is none is Guarded, or
// Unguarded, as its method says.
type Keeper interface {
	Durability() Durability
}

// DurabilityOf returns how durable the store of a namespace is.
func DurabilityOf(n Namespace) Durability {
	if k, ok := n.(Keeper); ok {
		return k.Durability()
	}
	if n.Guarded() {
		return Guarded
	}
	return Unguarded
}
