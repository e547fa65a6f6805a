package ring

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden vectors anew: a new algorithm, incompatible with the old one")

func names(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("node-%d", i)
	}
	return s
}

func place(t testing.TB, members []string, partitions int) *Placement {
	t.Helper()
	p, err := Place(members, partitions)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The placement is part of the protocol between nodes of different builds: no dependency may move
// it silently.
func TestGoldenVectors(t *testing.T) {
	var b strings.Builder
	for _, n := range []int{0, 1, 2, 3, 8, 50} {
		for _, partitions := range []int{1, 7, 271, 1021} {
			p := place(t, names(n), partitions)
			fmt.Fprintf(&b, "%d members, %d partitions, fingerprint %016x:", n, partitions, p.Fingerprint())
			for i := range uint32(min(partitions, 40)) {
				owner, _ := p.Owner(i)
				fmt.Fprint(&b, " ", strings.TrimPrefix(owner, "node-"))
			}
			fmt.Fprintln(&b)
		}
	}
	p := place(t, []string{"shop/c", "shop/a", "shop/b", "a/b/x", "depot/y"}, 271)
	fmt.Fprintf(&b, "processes of the same name, fingerprint %016x:", p.Fingerprint())
	for i := range uint32(40) {
		owner, _ := p.Owner(i)
		fmt.Fprint(&b, " ", owner)
	}
	fmt.Fprintln(&b)
	const file = "testdata/placement.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the placement moved:\n%s", b.String())
	}
}

func TestTheOrderOfMembersDoesNotMatter(t *testing.T) {
	members := names(9)
	want := place(t, members, 1021)
	for range 20 {
		rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		got := place(t, members, 1021)
		if got.Fingerprint() != want.Fingerprint() {
			t.Fatal("another fingerprint")
		}
		for i := range uint32(1021) {
			a, _ := got.Owner(i)
			if b, _ := want.Owner(i); a != b {
				t.Fatalf("partition %d: %s or %s", i, a, b)
			}
		}
	}
}

func TestNobodyOwnsMuchMoreThanItsShare(t *testing.T) {
	t.Parallel() // the longest ones
	for n := 1; n <= 40; n++ {
		for _, partitions := range []int{1, 5, 16, 271, 1021} {
			p := place(t, names(n), partitions)
			count := map[string]int{}
			for i := range uint32(partitions) {
				owner, ok := p.Owner(i)
				if !ok {
					t.Fatalf("%d members: nobody owns partition %d", n, i)
				}
				count[owner]++
			}
			most := int(math.Ceil(float64(partitions) / float64(n) * load))
			for owner, k := range count {
				if k > most {
					t.Errorf("%d members, %d partitions: %s owns %d, more than %d", n, partitions, owner, k, most)
				}
			}
		}
	}
}

func TestAMemberThatComesMovesLittle(t *testing.T) {
	before, after := place(t, names(8), 1021), place(t, names(9), 1021)
	moved := 0
	for i := range uint32(1021) {
		a, _ := before.Owner(i)
		if b, _ := after.Owner(i); a != b {
			moved++
		}
	}
	// A ninth has to move. Bounded loads push some more around.
	if moved > 1021/4 {
		t.Errorf("%d of 1021 partitions moved", moved)
	}
}

// A process that starts again under its name, as the replicas of a StatefulSet do, gets back its
// partitions, and nothing else moves.
func TestPlace_AProcessComesBackToItsPlace(t *testing.T) {
	before := place(t, []string{"shop-0/QX", "shop-1/AB", "shop-2/MM"}, 271)
	after := place(t, []string{"shop-0/QX", "shop-1/ZZ", "shop-2/MM"}, 271)
	if before.Fingerprint() == after.Fingerprint() {
		t.Error("other members have the same fingerprint")
	}
	for i := range uint32(271) {
		was, _ := before.Owner(i)
		if is, _ := after.Owner(i); is != strings.Replace(was, "/AB", "/ZZ", 1) {
			t.Fatalf("partition %d has moved from %s to %s", i, was, is)
		}
	}
	// Where processes have the same name, one that comes moves as little as any.
	few, more := place(t, []string{"shop/a", "shop/b", "shop/c"}, 271), place(t, []string{"shop/0", "shop/a", "shop/b", "shop/c"}, 271)
	moved := 0
	for i := range uint32(271) {
		was, _ := few.Owner(i)
		if is, _ := more.Owner(i); is != was {
			moved++
		}
	}
	if moved == 0 || moved > 271*2/5 {
		t.Errorf("%d of 271 partitions have moved to a fourth process of the same name", moved)
	}
}

func TestPlaceRefusesWhatMakesNoSense(t *testing.T) {
	for name, x := range map[string]struct {
		members    []string
		partitions int
	}{
		"no partitions":       {names(1), 0},
		"too many partitions": {names(1), 1<<16 + 1},
		"the same name twice": {[]string{"a", "b", "a"}, 7},
	} {
		if _, err := Place(x.members, x.partitions); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	p := place(t, nil, 7)
	if owner, ok := p.Owner(3); ok {
		t.Errorf("nobody is there, and %q owns a partition", owner)
	}
	if owner, ok := place(t, names(2), 7).Owner(7); ok {
		t.Errorf("%q owns a partition that does not exist", owner)
	}
}

func TestFingerprintsTellMembersApart(t *testing.T) {
	seen := map[uint64]string{}
	for _, x := range [][]string{nil, {"a"}, {"b"}, {"a", "b"}, {"ab"}, {"a", "bc"}, {"ab", "c"}, {""}} {
		for _, partitions := range []int{7, 8} {
			f := place(t, x, partitions).Fingerprint()
			if other, ok := seen[f]; ok {
				t.Errorf("%q in %d has the fingerprint of %s", x, partitions, other)
			}
			seen[f] = fmt.Sprintf("%q in %d", x, partitions)
		}
	}
}

func TestLookUpAllocatesNothing(t *testing.T) {
	p := place(t, names(8), 1021)
	if n := testing.AllocsPerRun(100, func() { p.Owner(17) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOwner(b *testing.B) {
	p := place(b, names(8), 1021)
	var i uint32
	b.ReportAllocs()
	for b.Loop() {
		p.Owner(i % 1021)
		i++
	}
}

func BenchmarkPlace(b *testing.B) {
	members := names(8)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = Place(members, 1021)
	}
}
