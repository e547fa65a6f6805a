#!/bin/sh
# What is known of a rule, for `make rule`: its text, the functions that keep it, its transcripts or stories, the tests, guards and comments that name it.
# sh internal/repo/rule.sh N, from the root: N is 1 to 17, I1 to I8 (docs/protocol.md), G1 to G8 (docs/takeover.md) or E1 to E8 (docs/protocol.md).
n=$1
transcripts=internal/lease/leasetest/testdata
most=10 # lines of a list

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
short() { awk -v most=$most 'NR<=most{print} END{if (NR>most) print "  and " NR-most " more"}'; }

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
	printf '\ntranscripts in %s\n' "$transcripts"
	for file in $found; do
		echo "$(basename "$file" .txt): $(head -1 "$file" | cut -c3-)"
	done
	echo "go test -run 'TestTranscripts\$/^($(basename -a -s .txt $found | paste -sd'|' -))\$' ./internal/lease/leasetest"
fi

# What runs what: a line that tells about it, for the shell a comment, and the command.
runs() { # what it tells, flags, pattern, package
	echo "# $1"
	echo "go test ${2:+$2 }-run '$3' $4"
}
# The guards whose comments name it, in one file, as names with | between them.
without() { grep -E "^	[A-Z][A-Za-z]+.*//.*$named" "$1" | sed -E 's/^	([A-Za-z]+).*/\1/' | paste -sd'|' -; }
# The first sentence that documents a test of package model.
says() {
	cat internal/model/*_test.go | awk -v f="^func $1\\\\(" '/^\/\/ /{s=s " " substr($0,4); next} $0~f{sub(/^ /,"",s); sub(/\. .*/,".",s); print s; exit} {s=""}'
}
told=internal/model/testdata/stories
printf '\nstories; those of TestGuards are in %s\n' "$told"
# Those of package model, by the test that takes the guard away: rows of its table begin with the guard, or with the invariant that breaks.
guards=$({
	without internal/model/guard.go
	case $n in I*) grep -lE "^# Without [A-Za-z]+: $n:" $told/* | sed -E 's/.*\/([A-Za-z]+)\.txt/\1/' ;; esac
} | sed '/^$/d' | paste -sd'|' -)
stories=$(
	cat internal/model/*_test.go | awk -v guards="^($guards)\$" -v of="$n" '/^func /{f=$2; sub(/\(.*/,"",f)}
		/^		\{[A-Z][A-Za-z0-9]+, /{g=$1; gsub(/[{,]/,"",g); if (g !~ guards && g!=of || f ~ /Specified/ || seen[f,g]++) next
			if (!(f in all)) order[++n]=f; all[f]=all[f] "|" g}
		END{for (i=1;i<=n;i++) print order[i], substr(all[order[i]],2)}' | while read -r test names; do
		deep=$([ "$test" != TestDefences ] || echo ' -model.deep')
		[ "$(echo "$names" | tr '|' '\n' | wc -l)" -le $most ] && pattern="$test\$/^($names)\$" || pattern="$test\$"
		runs "$(says "$test")${deep:+ It takes minutes.}" -v "$pattern" "./internal/model$deep"
		[ "$test" != TestGuards ] || for off in $(echo "$names" | tr '|' ' '); do
			echo "$(($(wc -l <"$told/$off.txt") - 1)) $(sed -n '1s/^# //p' "$told/$off.txt")"
		done | sort -n | sed -E 's/^([0-9]+) (.*)/  \2, in \1 steps/' | short
	done
	guards=$(without internal/model/takeover/guardians.go)
	[ -z "$guards" ] || runs 'A session is dead that it, or a holder, takes for valid, without each of these guards.' \
		-v "TestGuardians_EachGuardPrevents\$/^($guards)\$" ./internal/model/takeover
	guards=$(without internal/model/takeover/rounds.go)
	[ -z "$guards" ] || runs 'A Grace ends early that must not, without each of these guards.' \
		-v "TestRounds_EachGuardPrevents\$/^($guards)\$" ./internal/model/takeover
	guards=$(without internal/guard/guard.go)
	[ -z "$guards" ] || runs 'The simulation notices that a guard is missing, a minute each at most.' \
		'-tags simulation,mutants -v' "TestMutants\$/^($guards)\$" ./internal/sim
	grep -E "^	\{\"[^\"]*\".* // .*$named" internal/sim/scenarios.go | sed -E 's/^	\{"([^"]*)".*/\1/' | while IFS= read -r scenario; do
		runs "Scenario: $scenario." '-tags simulation -v' "TestScenarios\$/^$(echo "$scenario" | sed "s/[^A-Za-z0-9]/./g")\$" ./internal/sim
	done
)
echo "$stories" | or_none 'none of its own: the simulation looks for what breaks it, and the model explores it (docs/verification.md)'

# The tests of the table first, then those with a comment that names it, then some of those that name it inside.
printf '\ntests about it\n'
about=$(
	echo "$row" | cut -d'|' -f4 | grep -oE '`(Test|Fuzz)[A-Za-z0-9_]+`' | tr -d '`' | while read -r test; do
		grep -rnE --include='*_test.go' "^func $test\\(" . | sed "s/:func .*/: $test/"
	done
	find . -name '*_test.go' -exec awk -v named="(^|[^A-Za-z0-9])$words([^A-Za-z0-9]|\$)" 'FNR == 1 { doc = "" } /^\/\// { doc = doc $0 "\n"; next }
		/^func (Test|Fuzz)/ && doc ~ named { f = $2; sub(/\(.*/, "", f); print FILENAME ":" FNR ": " f }
		{ doc = "" }' {} + 2>/dev/null | sort
)
about=$(echo "$about" | awk '!seen[$0]++' | head -$((2 * most)))
echo "$about" | or_none none
# One command for the tests of a package.
echo "$about" | awk -F': ' 'NF > 1 { dir = $1; sub(/\/[^\/]*$/, "", dir); if (!(dir in all)) order[++n] = dir; all[dir] = all[dir] "|" $2 }
	END { for (i = 1; i <= n; i++) print order[i], substr(all[order[i]], 2) }' | while read -r dir names; do
	case $dir in ./internal/sim) tags='-tags simulation ' ;; *) tags='' ;; esac
	echo "go test $tags-run '^($names)\$' $dir"
done

printf '\nother tests that name it\n'
names . | grep _test.go: | grep -v '^./internal/snippets/rule_test.go:' | sort -t: -k1,1 -k2,2n | while IFS=: read -r file line text; do
	f=$(awk -v at="$line" '/^[a-z]/{f=""} /^(func|var|type) /{f=$0; sub(/^[a-z]+ (\([^)]*\) )?/,"",f); sub(/[^A-Za-z0-9_].*/,"",f)} NR==at&&/^\/\//{f=""} NR>=at&&f!=""{exit} END{print f}' "$file")
	echo "$about" | grep -q ": $f\$" && continue
	case $looked in *" $file:$f "*) continue ;; esac # a look for the tests that use something takes time
	looked="$looked $file:$f "
	case $f in
	Test* | Fuzz* | Benchmark* | Example*) by=$f ;;
	*) by="$(awk -v of="$f" -v in_file="$file" -f internal/repo/tests_of.awk "$(dirname "$file")"/*_test.go | sort | awk 'NR<4{s=s (NR>1?", ":"") $2} END{print s (NR>3?" and " NR-3 " more":"")}') (by $f)" ;;
	esac
	printf '%s:%s: %s: %s\n' "$file" "$line" "$by" "$(echo "$text" | sed 's/^[	 ]*//')"
done 2>/dev/null | awk -F: -v most=$most '{ by = $1 $3 } seen[by]++ { next } ++n > most { print "and more"; exit } { print }' | or_none none # the loop ends with it

guards='^internal/guard/guard\.go:|^internal/model/guard\.go:|^internal/model/takeover/(guardians|rounds)\.go:[0-9]+:	[A-Z][A-Za-z]+ .*//'
printf '\nguards\n'
names internal | grep -E "$guards" | short | or_none none

printf '\ncomments of the code that name it\n'
names coord internal/lease internal/guardians handoff peer fallback | grep -v -e _test.go: -e /leasetest/ | short | or_none 'none: see the functions above'

printf '\nnamed by the simulation and the model\n'
names internal/sim internal/model internal/lease/leasetest | grep -v -e _test.go: -e internal/sim/scenarios.go:.*// | grep -vE "$guards" | short | or_none none
