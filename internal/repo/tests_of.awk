# The tests that use a function, method or variable of a package's tests, also by way of others, those of its file first. Methods of one name
# are taken for one: awk -v of=name -v in_file=dir/x_test.go -f tests_of.awk dir/*_test.go
function bare(x) { sub(/^[a-z]+ (\([^)]*\) )?/, "", x); sub(/[^A-Za-z0-9_].*/, "", x); return x }
/^func / {
	f = ($0 ~ /^func \(/ ? "." : "") bare($0)
	if (FILENAME == in_file) near[f] = 1
	body[f] = body[f] "\n" substr($0, index($0, bare($0)) + length(bare($0)))
	next
}
/^(var|const|type) [A-Za-z]/ { f = bare($0); value[f] = 1 }
/^(import|package|\/\/)/ { f = "" }
f != "" { body[f] = body[f] "\n" $0; if ($0 ~ /^[})]/) f = "" }
END {
	queue[n = 1] = of; seen[of] = 1
	if ("." of in body) { queue[++n] = "." of; seen["." of] = 1 }
	for (i = 1; i <= n; i++) {
		x = queue[i]
		use = x in value ? "[^A-Za-z0-9_.]" x "[^A-Za-z0-9_:]" : x ~ /^\./ ? "\\" x "[(,)]" : "[^A-Za-z0-9_.]" x "[(,)]"
		for (g in body) if (!(g in seen) && body[g] ~ use) { seen[g] = 1; queue[++n] = g }
	}
	for (g in seen) if (g ~ /^(Test|Fuzz|Benchmark|Example)/) print (g in near ? 0 : 1), g
}
