package fallback

import (
	"context"
	"maps"
	"slices"
)

// EpochZero is what epochs count seconds from.
const EpochZero = epochZero

// Verify is n.Verify for those who want one error.
func Verify(ctx context.Context, n Namespace, reads []Read) ([]State, error) {
	states := n.Verify(ctx, reads)
	for _, s := range states {
		if s.Err != nil {
			return nil, s.Err
		}
	}
	return states, nil
}

// LuaFile is the text of a script's file.
func LuaFile(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// LuaFiles are the names of all.
func LuaFiles() (names []string) {
	all := make(map[string]bool)
	for _, s := range sources {
		for _, name := range s {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// ReplaceLua gives what attaches from now on another text of a file, until the function that it returns is called.
func ReplaceLua(name, text string) (undo func()) {
	readLua = func(path string) ([]byte, error) {
		if path == "lua/"+name+".lua" {
			return []byte(text), nil
		}
		return lua.ReadFile(path)
	}
	return func() { readLua = lua.ReadFile }
}
