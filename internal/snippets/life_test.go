package snippets

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// life returns the section of DESIGN.md about the life of a key, and the files of its tables, in
// order.
func life(t *testing.T) (section string, files []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ = strings.Cut(string(text), "\n## The life of a key, call by call\n")
	section, _, _ = strings.Cut(section, "\n## ")
	where := []string{"coord", "internal/lease", ""} // the table's columns
	for _, row := range regexp.MustCompile(`(?m)^\| [^|-][^|]*\|([^|]*)\|([^|]*)\|([^|]*)\|$`).FindAllStringSubmatch(section, -1) {
		if strings.HasPrefix(row[0], "| event |") {
			continue
		}
		for i, cell := range row[1:] {
			for _, m := range span.FindAllStringSubmatch(cell, -1) {
				files = append(files, filepath.Join(where[i], m[1]))
			}
		}
	}
	return section, files
}

// The life of a key in DESIGN.md names files that exist, each once, and they have the functions
// that it names: nothing sends a reader to a file that is not in the table.
func TestDesign_TheLifeOfAKey(t *testing.T) {
	dir := root(t)
	section, files := life(t)
	functions := make(map[string]bool)
	for i, file := range files {
		if slices.Contains(files[:i], file) {
			t.Errorf("%s is there twice", file)
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Recv != nil {
				add(functions, &ast.File{Name: f.Name, Decls: []ast.Decl{d}})
			}
		}
	}
	named := 0
	for _, m := range span.FindAllStringSubmatch(section, -1) {
		if strings.Count(m[1], ".") != 2 {
			continue
		}
		if named++; !functions[m[1]] {
			t.Errorf("%s is in no file of the table", m[1])
		}
	}
	if len(files) < 40 || named < 50 {
		t.Errorf("%d files, %d functions", len(files), named)
	}
}

// One key's life, at its owner and at another node, is in five packages. Three of them have one
// file each.
func TestDesign_OneKeyIsInFiveRooms(t *testing.T) {
	_, files := life(t)
	end := slices.Index(files, "internal/lease/wanted.go")
	if end < 0 || end > 41 {
		t.Fatalf("the part that ends with wanted.go has %d files", end+1)
	}
	rooms := make(map[string]int)
	for _, file := range files[:end+1] {
		rooms[filepath.Dir(file)]++
	}
	for _, room := range []string{"handoff", "fallback", "peer"} {
		if rooms[room] != 1 {
			t.Errorf("%d files of %s, want 1", rooms[room], room)
		}
	}
	if len(rooms) != 5 {
		t.Errorf("the rooms are %v, want 5", rooms)
	}
}

// elsewhere are the files that those of the table use and that a reader of a key's life need not
// open, with the reasons. The functions used there are explained by their names, and decide nothing
// about a key.
var elsewhere = map[string]string{

	"coord/addresses.go":        "where a node listens",
	"coord/advice.go":           "what operators are told of the arbiter's settings",
	"coord/caller.go":           "callers in the log",
	"coord/cluster_options.go":  "the options of the API",
	"coord/errors.go":           "the errors of the API",
	"coord/failure.go":          "calls of the arbiter that failed, for operators",
	"coord/fence.go":            "a token, for callers",
	"coord/flights.go":          "an early end of Grace: the calls that are under way",
	"coord/hasten.go":           "an early end of Grace",
	"coord/histogram.go":        "durations, for operators",
	"coord/journal.go":          "events, for operators",
	"coord/label.go":            "labels of callers",
	"coord/locker.go":           "callers that share locks",
	"coord/nested.go":           "callers that have locks",
	"coord/news.go":             "results that are shared: what changes",
	"coord/observe.go":          "nodes that only look",
	"coord/options.go":          "the options of the API",
	"coord/peerkeys.go":         "keys of a node, and of streams",
	"coord/pool.go":             "permits",
	"coord/publish.go":          "nodes that only look: how they are listed, and what they may call",
	"coord/question.go":         "questions of other nodes, for operators",
	"coord/quota.go":            "how many keys another node may have",
	"coord/rank.go":             "the order of mutexes",
	"coord/reach.go":            "nodes out of reach, for operators",
	"coord/read.go":             "read locks",
	"coord/reading.go":          "read locks: the turn that readers share",
	"coord/reads.go":            "read locks: those of a process, by their keys",
	"coord/ready.go":            "whether the node is ready, for operators",
	"coord/report.go":           "losses in the log",
	"coord/rounds.go":           "an early end of Grace",
	"coord/secret.go":           "the secret of the namespace",
	"coord/semaphore.go":        "permits",
	"coord/share_flights.go":    "results that are shared",
	"coord/simulated.go":        "what the simulation sees",
	"coord/stats.go":            "counts, for operators",
	"coord/stuck.go":            "callers that wait for each other in a circle",
	"coord/trace.go":            "the functions of Options.Trace",
	"coord/unguarded.go":        "a node that no other guards, for operators",
	"internal/lease/assert.go":  "nothing, but in the simulation",
	"internal/lease/group.go":   "keys that are wanted in several modes",
	"internal/lease/inspect.go": "what is told of keys",
	"internal/lease/pledge.go":  "read locks: the turn that readers share",
	"internal/lease/report.go":  "what is told of keys",
	"internal/lease/sight.go":   "what the simulation sees",
}

// The files of the table use types and functions of each other, and of elsewhere: a reader who
// opens them in order has no other to open.
func TestDesign_TheLifeOfAKeyNeedsNoOtherFile(t *testing.T) {
	x := &sources{
		dir: root(t), fset: token.NewFileSet(),
		done: make(map[string]*types.Package), uses: make(map[*ast.Ident]types.Object), files: make(map[string][]*ast.File),
	}
	if _, err := x.Import(module + "coord"); err != nil {
		t.Fatal(err)
	}
	_, listed := life(t)
	needed, used := make(map[string]bool), 0
	for _, in := range []string{"coord", "internal/lease"} {
		for _, f := range x.files[in] {
			file := x.file(f.Name.Pos())
			if !slices.Contains(listed, file) {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				id, _ := n.(*ast.Ident)
				from := x.declared(id)
				if from == "" {
					return true
				}
				used++
				if needed[from] = true; !slices.Contains(listed, from) && elsewhere[from] == "" {
					t.Errorf("%s uses %s of %s, which is not in the table", x.fset.Position(id.Pos()), id.Name, from)
				}
				return true
			})
		}
	}
	for file := range elsewhere {
		if !needed[file] || slices.Contains(listed, file) {
			t.Errorf("%s need not be in elsewhere", file)
		}
	}
	if used < 2000 {
		t.Errorf("%d uses", used)
	}
}

// The table of docs/map.md has each file of the two packages that decide and carry out: none gets
// lost when it is added.
func TestMap_HasEachFile(t *testing.T) {
	dir := root(t)
	text, err := os.ReadFile(filepath.Join(dir, "docs", "map.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"coord", "internal/lease"} {
		files, err := filepath.Glob(filepath.Join(dir, in, "*.go"))
		if err != nil || len(files) < 30 {
			t.Fatal(len(files), err)
		}
		for _, file := range files {
			name := in + "/" + filepath.Base(file)
			if !strings.HasSuffix(name, "_test.go") && !strings.Contains(string(text), "](../"+name+")") {
				t.Errorf("no row has %s", name)
			}
		}
	}
}

const module = "github.com/holdfast-go/holdfast/"

// sources checks the types of packages of the repository, and takes other packages for empty: the
// mistakes that follow do not matter, as only names of the repository are looked for.
type sources struct {
	dir   string
	fset  *token.FileSet
	done  map[string]*types.Package
	uses  map[*ast.Ident]types.Object
	files map[string][]*ast.File // by package
}

// Import implements [types.Importer].
func (x *sources) Import(path string) (*types.Package, error) {
	if p := x.done[path]; p != nil {
		return p, nil
	}
	in, ok := strings.CutPrefix(path, module)
	if !ok {
		p := types.NewPackage(path, path[strings.LastIndexByte(path, '/')+1:])
		p.MarkComplete()
		x.done[path] = p
		return p, nil
	}
	at, err := build.ImportDir(filepath.Join(x.dir, in), 0)
	if err != nil {
		return nil, err
	}
	for _, name := range at.GoFiles {
		f, err := parser.ParseFile(x.fset, filepath.Join(at.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		x.files[in] = append(x.files[in], f)
	}
	c := types.Config{Importer: x, Error: func(error) {}}
	x.done[path], _ = c.Check(path, x.fset, x.files[in], &types.Info{Uses: x.uses})
	return x.done[path], nil
}

// file returns the file of a position, below the root.
func (x *sources) file(at token.Pos) string {
	file, err := filepath.Rel(x.dir, x.fset.Position(at).Filename)
	if err != nil {
		return ""
	}
	return filepath.ToSlash(file)
}

// declared returns the file that declares the type or function of coord or lease that a name is of,
// "" if it is of none.
func (x *sources) declared(id *ast.Ident) string {
	o := x.uses[id]
	switch o.(type) {
	case *types.TypeName, *types.Func:
	default:
		return ""
	}
	if o.Pkg() == nil || !slices.Contains([]string{module + "coord", module + "internal/lease"}, o.Pkg().Path()) {
		return ""
	}
	return x.file(o.Pos())
}
