package fallback

// Durability says which acknowledged writes a store may lose.
type Durability int

// The degrees of durability.
const (
	// Unguarded: a store that has lost something is not noticed, and believed.
	Unguarded Durability = iota

	// Guarded: it may lose the last writes in a failover, or everything. That is noticed, and
	// Grace begins. (Guardians of sessions are something else: see Burier.)
	Guarded

	// Durable: an acknowledged write is never lost. No failure begins Grace. Two actions of
	// operators do. They delete a namespace: one that is missing may have been. Or they put an
	// older backup in its place: a process that has seen newer data notices that.
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
