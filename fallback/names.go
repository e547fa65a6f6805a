package fallback

import (
	"slices"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// put writes a row. A name that is no key is entered at its key as well, and stays there as long as
// it has a row.
func (p *Partition) put(name string, row Row) {
	if p.Rows == nil {
		p.Rows = make(map[string]Row)
	}
	p.Rows[name] = row
	p.enterName(name)
}

func (p *Partition) enterName(name string) {
	key, spec := split(name)
	if spec == "" || slices.Contains(p.Names[key], spec) {
		return
	}
	if p.Names == nil {
		p.Names = make(map[string][]string)
	}
	p.Names[key] = append(p.Names[key], spec)
}

// remove removes a row.
func (p *Partition) remove(name string) {
	delete(p.Rows, name)
	key, spec := split(name)
	if spec == "" {
		return
	}
	if p.Names[key] = slices.DeleteFunc(p.Names[key], func(s string) bool { return s == spec }); len(p.Names[key]) == 0 {
		delete(p.Names, key)
	}
	if len(p.Names) == 0 {
		p.Names = nil
	}
}

// replace replaces all rows.
func (p *Partition) replace(rows map[string]Row) {
	p.Rows, p.Names = rows, nil
	p.enterNames()
}

func (p *Partition) enterNames() {
	var names []string
	for name := range p.Rows {
		if IsName(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		p.enterName(name)
	}
}

// inTheWay returns the names of the holds that a hold of the name must not be granted beside: the
// hold of that name; and holds of the key's other names with modes that do not let it in. These are
// in order of arrival, an exclusive one first. The exclusive hold of the session itself is not in
// the way of a Downgraded one.
func (p *Partition) inTheWay(name, session string) (names []string) {
	if _, held := p.Rows[name]; held {
		names = append(names, name)
	}
	key, spec := split(name)
	if spec == "" && len(p.Names) == 0 {
		return names // as a rule
	}
	mine := modeOf(spec)
	var others []string
	var modes []Mode
	for _, s := range append([]string{""}, p.Names[key]...) {
		if _, held := p.Rows[named(key, s)]; held && s != spec && (s != "" || !p.downgrades(key, mine, session)) {
			others, modes = append(others, named(key, s)), append(modes, modeOf(s))
		}
	}
	if mine.Beside(modes...) {
		return names
	}
	for i, m := range modes {
		if mine.Kind == Permits || !mine.Beside(m) {
			names = append(names, others[i])
		}
	}
	return names
}

// downgrades reports whether a hold of the mode is for a session that has the key's exclusive one.
func (p *Partition) downgrades(key string, m Mode, session string) bool {
	row, held := p.Rows[key]
	return m.Kind == Downgraded && held && (row.Session == session || !guard.Downgrades)
}

// before reports whether a hold is granted before those that wait: the session has the exclusive
// one, or the holder more permits of the same block.
func (p *Partition) before(key, spec, session string) bool {
	mine := modeOf(spec)
	if mine.Block == "" {
		return p.downgrades(key, mine, session)
	}
	return slices.ContainsFunc(p.Names[key], func(s string) bool { return mine.Shrinks(modeOf(s)) })
}

// otherSize returns the number of permits in the first name of way that has another number than
// the name. It is 0 if there is none. Only names of Permits have a number.
func otherSize(name string, way []string) uint32 {
	_, mine := Split(name)
	for _, w := range way {
		if _, m := Split(w); mine.Kind == Permits && m.Kind == Permits && m.Of != mine.Of {
			return m.Of
		}
	}
	return 0
}

// SetRows makes these the rows.
func (p *Partition) SetRows(rows map[string]Row) { p.replace(rows) }
