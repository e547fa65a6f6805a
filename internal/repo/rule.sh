#!/bin/sh
# What is known of a rule, for `make rule`: its text, the functions that keep it, its transcripts or stories, the tests, guards and comments that name it.
# sh internal/repo/rule.sh N, from the root: N is 1 to 17, I1 to I8 (docs/protocol.md), G1 to G8 (docs/takeover.md) or E1 to E8 (docs/protocol.md).
n=$1
transcripts=internal/lease/leasetest/testdata
most=12 # tests that name it in passing

case $n in
I*) text=$(awk '/^- \*\*/{p=/^- \*\*'"$n"'\*\*/} /^$/{p=0} p' docs/protocol.md) table=DESIGN.md ;;
G*) text=$(awk '/^G[0-9]+\. /{p=/^'"$n"'\. /} /^$/{p=0} p' docs/takeover.md) table=docs/takeover.md ;;
E*) text=$(awk '/^- \*\*E[0-9]+\*\*/{p=/^- \*\*'"$n"'\*\*/} /^$/{p=0} p' docs/protocol.md) table=docs/adr/0023-grace-ends-by-rounds.md ;;
*) text=$(awk '/^## /{rules=/^## Rules/} rules&&/^[0-9]+\. /{p=/^'"$n"'\. /} /^$/{p=0} rules&&p' docs/protocol.md) table=DESIGN.md ;;
esac
if [ -z "$text" ]; then
	echo "There is no rule $n: there are N=1 to 17, I1 to I8, G1 to G8 and E1 to E8." >&2
	exit 1
fi
printf '%s\n' "$text"

case $n in
[IGE]*) words=$n ;;
*) words="[Rr]ules? ([0-9]+(,| and| to) )*$n" ;;
esac
named="\\b$words\\b"
names() { grep -rnE --include='*.go' "$named" "$@"; }
or_none() { grep . || echo "$1"; }

printf '\nkept by (%s)\n' "$table"
row=$(grep -E "^\\| $n[. ]" "$table" | head -1)
kept=$(echo "$row" | cut -d'|' -f3 | grep -oE '`[a-z]+(\.[A-Za-z]+)+`' | tr -d '`')
[ -n "$kept" ] || echo "$row" | cut -d'|' -f3 | sed 's/^ *//'
for name in $kept; do
	echo "$name" | {
		IFS=. read -r dir type f
		# shellcheck disable=SC2046
		grep -nE "^func (\\([^)]*\\b$type\\b[^)]*\\) $f|${f:-$type})\\(|^	$type += " $(ls -d "$dir" "internal/$dir" "fallback/$dir" 2>/dev/null | sed 's|$|/*.go|') /dev/null | grep -v _test.go:
	}
done

found=$({
	grep -lE "$named" "$transcripts"/*
	case $n in [0-9]*) ls "$transcripts/rule$(printf %02d "$n" 2>/dev/null)_"* 2>/dev/null ;; esac
} | sort -u)
if [ -n "$found" ]; then
	printf '\ntranscripts in %s: go test -run Transcripts/NAME ./internal/lease/leasetest\n' "$transcripts"
	for file in $found; do
		echo "$(basename "$file" .txt): $(head -1 "$file" | cut -c3-)"
	done
fi

# The guards whose comments name it, in one file, as names with | between them.
without() { grep -E "^	[A-Z][A-Za-z]+ .*//.*$named" "$1" | sed -E 's/^	([A-Za-z]+).*/\1/' | paste -sd'|' -; }
printf '\nstories\n'
told=$(
	guards=$(without internal/model/guard.go)
	[ -z "$guards" ] || echo "go test -v -run '(Guards|Progress)\$/^($guards)\$' ./internal/model: the shortest that happens without each of these guards"
	case $n in I[3567]) echo "go test -v -run 'Invariants_CanFail/$n' ./internal/model: the shortest that breaks $n, without one guard" ;; esac
	for off in $(echo "$guards" | tr '|' ' '); do
		head -qn 1 "internal/model/testdata/stories/$off.txt" 2>/dev/null | sed 's/^# /  /'
	done
	guards=$(without internal/model/takeover/guardians.go)
	[ -z "$guards" ] || echo "go test -v -run 'Guardians_EachGuardPrevents/^($guards)\$' ./internal/model/takeover"
	guards=$(without internal/model/takeover/rounds.go)
	[ -z "$guards" ] || echo "go test -v -run 'Rounds_EachGuardPrevents/^($guards)\$' ./internal/model/takeover"
	guards=$(without internal/guard/guard.go)
	[ -z "$guards" ] || echo "go test -tags simulation,mutants -run 'Mutants\$/^($guards)\$' ./internal/sim: the simulation without each of these guards"
	grep -E "^	\{\"[^\"]*\".* // .*$named" internal/sim/scenarios.go | sed -E 's/^	\{"([^"]*)".*/\1/' | while IFS= read -r scenario; do
		echo "go test -tags simulation -run 'Scenarios/$(echo "$scenario" | sed 's/[ ,]/./g')' ./internal/sim"
	done
)
echo "$told" | or_none 'none of its own: the simulation looks for what breaks it, and the model explores it (docs/verification.md)'

# The tests of the table first, then those with a comment that names it, then some of those that name it inside.
printf '\ntests about it\n'
about=$(
	echo "$row" | cut -d'|' -f4 | grep -oE '`(Test|Fuzz)[A-Za-z0-9_]+`' | tr -d '`' | while read -r test; do
		grep -rnE --include='*_test.go' "^func $test\\(" . | sed "s/:func .*/: $test/"
	done
	find . -name '*_test.go' -exec awk -v named="(^|[^A-Za-z0-9])$words([^A-Za-z0-9]|\$)" 'FNR == 1 { doc = "" } /^\/\// { doc = doc $0 "\n"; next }
		/^func (Test|Fuzz|Benchmark|Example)/ && doc ~ named { f = $2; sub(/\(.*/, "", f); print FILENAME ":" FNR ": " f }
		{ doc = "" }' {} + 2>/dev/null | sort
)
echo "$about" | awk '!seen[$0]++' | or_none none

printf '\nother tests that name it\n'
names . | grep _test.go: | grep -v '^./internal/snippets/rule_test.go:' | sort -t: -k1,1 -k2,2n | while IFS=: read -r file line text; do
	f=$(awk -v at="$line" '/^[a-z]/{f=""} /^(func|var|type) /{f=$0; sub(/^[a-z]+ (\([^)]*\) )?/,"",f); sub(/[^A-Za-z0-9_].*/,"",f)} NR==at&&/^\/\//{f=""} NR>=at&&f!=""{exit} END{print f}' "$file")
	case $f in
	Test* | Fuzz* | Benchmark* | Example*) by=$f ;;
	*) by="$(awk -v of="$f" -v in_file="$file" -f internal/repo/tests_of.awk "$(dirname "$file")"/*_test.go | sort | awk 'NR<4{s=s (NR>1?", ":"") $2} END{print s (NR>3?" and " NR-3 " more":"")}') (by $f)" ;;
	esac
	echo "$about" | grep -q ": $f\$" && continue
	printf '%s:%s: %s: %s\n' "$file" "$line" "$by" "$(echo "$text" | sed 's/^[	 ]*//')"
done | awk -F: -v most=$most '{ by = $1 $3 } seen[by]++ { next } ++n <= most { print } END { if (n > most) print "and " n-most " more" }' | or_none none

guards='^internal/guard/guard\.go:|^internal/model/guard\.go:|^internal/model/takeover/(guardians|rounds)\.go:[0-9]+:	[A-Z][A-Za-z]+ .*//'
printf '\nguards\n'
names internal | grep -E "$guards" | or_none none

printf '\ncomments of the code that name it\n'
names coord internal/lease internal/guardians handoff peer fallback | grep -v -e _test.go: -e /leasetest/ | or_none 'none: see the functions above'

printf '\nnamed by the simulation and the model\n'
names internal/sim internal/model internal/lease/leasetest | grep -v _test.go: | grep -vE "$guards" | or_none none
