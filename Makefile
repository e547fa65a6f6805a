# The modules of this repository: those whose tests take longest first.
MODULES := . examples/inventory examples/tickets cmd/holdfast tokens examples/httplock internal/sim internal/drill bench fence examples/tokens internal/history internal/overhead middleware/ordertest middleware/echo middleware/echov4 middleware/gin middleware/matrix middleware/grpc metrics/prometheus metrics/otel
# Modules with many requirements of their own: make adapters checks them, and make test runs their examples.
ADAPTERS := $(addprefix adapters/,asynq certmagic cron gocron goose migrate river watermill) migrate
# Arbiters on other stores: make arbiters checks them, and make test runs what takes seconds.
ARBITERS := fallback/postgres fallback/mysql fallback/sqlite
# The same with many requirements: it is not in go.work, and make test leaves it out.
STORES := fallback/etcd fallback/zookeeper fallback/consul fallback/mongodb fallback/kubernetes fallback/s3
# Beside client-go's election. To compile that takes minutes: it is not in go.work, and make test leaves it out.
ELECTIONS := bench/elections
# The manifests in docs/deploy, decoded by the types of Kubernetes and of Docker Compose: the same.
MANIFESTS := internal/manifests
VULNS := go run golang.org/x/vuln/cmd/govulncheck@v1.9.0
VULNDB := https://vuln.go.dev
# To compile is half of the work of "make test" on a new machine. So most is compiled with the race detector, and little without it and
# without cgo; nothing has DWARF; compilers collect their garbage seldom, and give way to tests; and the linter, which is as much to compile
# as all else, has a command of its own.
PLAIN := -gcflags=all=-dwarf=false -ldflags=-w
RACE := -race $(PLAIN)
LINTER := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
LINT := CGO_ENABLED=0 GOGC=400 GOFLAGS='$(PLAIN)' go run -exec "env CGO_ENABLED=1 'GOFLAGS=$(RACE)'" $(LINTER)

.PHONY: rule modules found core guards counts rolling lua-mutants test arbiters adapters release apidiff checks tests lint vulns short bench charts figures elections migration budget fuzz sim mutants model http http-guards chaos soak holds lab drill redis databases network clients jdk etcd page browser promtool metrics overhead zookeeper ferretdb kubeapiserver versitygw

# Everything that a change has to pass, with a real redis-server, but the linter: make lint. The tests wait more than they compute: they
# run side by side, and the rest gives way to them.
test: redis databases network clients
	@$(MAKE) --no-print-directory -j 2 checks tests

# Packages peer and model without the race detector: the former reads and writes in another way, and the latter explores nothing with
# it. What computes may have to wait for long: it has half an hour.
checks: export GOFLAGS := $(PLAIN)
checks:
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	@nice $(MAKE) --no-print-directory found
	@CGO_ENABLED=0 go test -vet=off ./peer
	@CGO_ENABLED=0 GOGC=400 nice go test -vet=off -timeout 30m ./internal/model/...
	@$(MAKE) --no-print-directory guards
	@CGO_ENABLED=0 GOGC=400 nice go test -timeout 30m -tags simulation -run Scenarios ./internal/sim
	@CGO_ENABLED=0 nice go test -tags simulation -run LockOrder ./coord
	@nice $(MAKE) --no-print-directory -j 2 counts vulns core sim FOR=0 RUNS=100
	@GOFLAGS='$(RACE)' nice go vet ./... && CGO_ENABLED=0 nice go vet ./peer

# Each line of output is one package's. The root's packages are in all modules: they are compiled first, once. The simulation's
# random runs have the race detector, and its other tests are without it: a bubble has one processor with it, and all of them without.
SIDES ?= 2
tests: export GOFLAGS := $(RACE)
tests:
	@GOGC=400 go list -export -test ./... >/dev/null
	@{ printf '%s -timeout=20m ./...\n' $(filter-out internal/sim,$(MODULES)); printf 'internal/sim %s\n' '-run=Simulation .' 'unraced -timeout=20m ./...'; \
	  printf '%s -run=^Example ./...\n' $(ADAPTERS); printf '%s -timeout=20m -short -run=Conforms/(Sessions|Owners)|_ ./...\n' $(ARBITERS); } | \
	  xargs -P $(SIDES) -L 1 sh -c 'cd $$0 && if [ "$$1" = unraced ]; then shift; export GOFLAGS="$(PLAIN)" CGO_ENABLED=0; fi && GOGC=400 nice go list -export -test ./... >/dev/null && go test -vet=off "$$@"'

# Each arbiter on its store: kills, restarts, restores, promotions, and what it costs at rest.
arbiters: export GOFLAGS := $(RACE)
arbiters: databases etcd zookeeper ferretdb kubeapiserver versitygw
	@failed=; \
	check() { d=$$1; shift; echo "== $$d"; (cd $$d && go test -count=1 -timeout 30m -v "$$@") || failed="$$failed $$d"; }; \
	check fallback/redisquorum . -arbiters.full; \
	check fallback/redisarbiter -run WhatItCosts . -arbiters.full; \
	check bench -run Row ./rivals -arbiters.full; \
	check internal/release . -release.build; \
	for m in $(ARBITERS); do check $$m . -arbiters.full; done; \
	export GOWORK=off; \
	for m in examples/inventory $(STORES); do (cd $$m && $(LINT) run --build-tags stores ./...) || failed="$$failed $$m:lint"; done; \
	check examples/inventory -tags stores -run SaleOverOtherArbiters .; \
	for m in $(STORES); do check $$m . -arbiters.full; done; \
	PATH="$(CURDIR)/internal/kubeapiserver/etcd:$$PATH"; check fallback/etcd -run Conforms . -arbiters.full; \
	[ -z "$$failed" ] || { echo "make arbiters failed in$$failed" >&2; exit 1; }

# The adapters with the libraries that they are for, each in two processes' worth of coordinators and in two processes, with a crash in the
# middle; client-go's election beside ours; and the manifests of docs/deploy.
adapters: export GOWORK := off
adapters: export GOFLAGS := $(RACE)
adapters: redis databases etcd
	@for m in $(ADAPTERS) $(ELECTIONS) $(MANIFESTS); do (cd $$m && $(LINT) run ./... && go test -timeout 10m ./...) || exit 1; done

# Tests of the lock's decisions (internal/lease) and of guardians with guards that can be taken out: search and walks notice that, and transitions are compared
# with the tables. Walks have their full number here, and the search its full depth: with the race detector both are shorter, as each is one
# goroutine. For a search that goes a step further, which takes six times as long: go test ./internal/lease/leasetest -run Search -lease.deeper 1.
guards:
	@CGO_ENABLED=0 nice go vet -tags mutants ./internal/lease/... ./internal/guard
	@CGO_ENABLED=0 GOGC=400 nice go test -vet=off -timeout 30m -tags mutants ./internal/lease/...
	@CGO_ENABLED=0 GOGC=400 nice go test -vet=off -timeout 30m -tags mutants -run Notices ./internal/guardians ./internal/model/takeover

# The same in under two seconds, with shorter walks and searches: they reach at least 95 of 100 statements.
core:
	@f=$$(mktemp) && CGO_ENABLED=0 go test -short -coverpkg=./internal/lease -coverprofile=$$f ./internal/lease/... && \
	  go tool cover -func=$$f | awk '/^total:/ { print "internal/lease:", $$3, "of statements"; exit $$3 + 0 < 95 }'; s=$$?; rm -f $$f; exit $$s

# What does not take long: about a minute once it is compiled. Without cgo programs are linked sooner.
short: export GOFLAGS := $(PLAIN)
short: export CGO_ENABLED := 0
short:
	go test -short ./...

# golangci-lint, before a change lands: to compile it takes minutes, once. One file of package peer is compiled without the race detector only.
# And the command for Windows, for which the standard library has to be compiled, too.
lint: modules
	@CGO_ENABLED=0 GOFLAGS='$(PLAIN)' GOOS=windows go build -o /dev/null ./cmd/holdfast
	@CGO_ENABLED=0 GOGC=400 GOFLAGS='$(PLAIN)' go run $(LINTER) run --allow-parallel-runners ./peer

# All modules at once, in the workspace: what they share is checked once.
modules:
	@$(LINT) run --allow-parallel-runners $(MODULES:%=./%/...) $(ARBITERS:%=./%/...)

# Each module has to find its packages without the workspace, too.
found:
	@for m in $(MODULES) $(ARBITERS); do (cd $$m && GOWORK=off go list -deps -test ./... >/dev/null) || exit 1; done

# Known vulnerabilities in code that is called. It fails if there are any, and says so where the database cannot be had.
vulns:
	@curl -fsS --max-time 20 -o /dev/null $(VULNDB)/index/db.json || { \
	  echo "make vulns: NOTHING WAS CHECKED: the vulnerability database ($(VULNDB)) is out of reach"; exit 0; }; \
	for m in $(MODULES); do echo "$$m:"; (cd $$m && GOWORK=off $(VULNS) -db $(VULNDB) ./...) || exit 1; done

# Beside other locks; and short paths beside the floors of the machine (docs/adr/0020).
bench: redis
	go run ./bench
	go test -run '^$$' -bench 'Rows|Pair$$' -cpu 1 ./coord

# README's figures and charts, from what "go run ./bench -json" has written: make figures measures that, in some 12 minutes.
RUN ?= docs/figures.json,docs/figures-stalls.json
CHARTS ?= ladder,zipf-rates
charts:
	go run ./bench -from $(RUN) -report -svg docs -charts $(CHARTS) -readme README.md >/dev/null

figures: redis databases etcd
	go run ./bench -only hot,cold,held,own,shared,zipf,forward,idle,http -report -json docs/figures.json
	go run ./bench -quick -only stalls -rivals all -report -json docs/figures-stalls.json
	@$(MAKE) --no-print-directory charts

# Allocations and instructions of the hot paths against internal/budget/limits.txt; UPDATE=1 writes that anew.
# Of these, make test has the counts only.
budget: counts
	cd internal/overhead && CGO_ENABLED=0 go test .
	CGO_ENABLED=0 go test -run AMillionKeys ./coord

counts:
	CGO_ENABLED=0 go test -timeout 60m ./internal/budget $(if $(UPDATE),-count=1 -run TestBudget -update)

# Every fuzz test, for FUZZTIME each. What they find is kept in testdata/fuzz, and run by make test from then on.
FUZZTIME ?= 1m
fuzz: redis
	@grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' . | sort | while IFS=: read -r file f; do \
	  f=$${f#func }; echo "$$f in $${file%/*}"; \
	  (cd $${file%/*} && go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) . </dev/null) || exit 1; done

# Whole clusters on virtual time, with faults: for how long, from which seed on, and at most how many runs (0: no limit); or what a
# file says that a failed run has left, again and again.
FOR ?= 1m
SEED ?= 1
RUNS ?= 0
PLAN ?=
sim:
	CGO_ENABLED=0 go test -tags simulation -timeout 0 -v -run Simulation ./internal/sim -sim.for $(FOR) -sim.seed $(SEED) -sim.runs $(RUNS) \
	  $(if $(PLAN),-sim.plan $(abspath $(PLAN)),-sim.workers $$(getconf _NPROCESSORS_ONLN))

# The same with one guard of the protocol after another taken out: it has to notice.
mutants:
	GOMAXPROCS=1 GOGC=400 go test -tags mutants -timeout 0 -v -run 'Mutants|Shrink' ./internal/sim

# Each condition and call of the Lua scripts taken out: the differential test has to notice, or one of the tests that OTHERS names. Those of
# which none does are listed in lua_mutants_test.go, with a reason.
OTHERS ?= ^Test(Every|ARead|Clock|Epochs|Secret|Request|Server|OnlyQueues|New|Cold|Grace|Restarted|Attach|Partition|Verify|Observer|AllReplicas|Replicas|ASession)
lua-mutants: redis
	nice go test -timeout 0 -v -run LuaMutants ./fallback/redisarbiter -lua.mutants -lua.others '$(OTHERS)'

# Every state of the protocol within wide bounds, and what each guard prevents. STATES is where to stop.
STATES ?= 3000000
model:
	go test -timeout 0 -v ./internal/model/... -model.deep -model.limit $(STATES)

# Requests of all kinds through each middleware, in each router, by each protocol, from Go's clients, curl, h2load and Java's.
http: clients jdk
	go run ./middleware/matrix

# Each guard of the middlewares taken out: one of the tests that it is for has to fail.
http-guards: redis
	cd middleware && go test -count=1 -v -timeout 0 -run TestGuards . -guards

# Real processes in network namespaces, with real Redis servers, under kills, stops and cuts: see docs/chaos.md. Needs root on Linux.
DURATION ?= 4m
chaos: redis network
	@for t in single sentinel cluster; do \
	  go run ./internal/chaos -topology $$t -duration $(DURATION) -seed $(SEED) -svg chaos-$$t.svg -json chaos-$$t.json || exit 1; done
	go test -count=1 -v -run Apart ./internal/chaos -chaos.full

# The same for long, without ending a node: nothing may grow.
SOAK ?= 1h
soak: redis network
	go run ./internal/chaos -soak -topology sentinel -duration $(SOAK) -seed $(SEED) -rest 600ms -pause 15s -svg soak.svg -json soak.json

# Many locks that are held while nodes and servers go: see docs/holds.md.
HOLDS ?= 1000000
holds: redis
	go run ./internal/holds -holds $(HOLDS)

# Faults in a cluster of five processes on hosts of their own, each of which has to be named by doctor, top, the page and the alert rules: see
# docs/runbook.md. Needs root on Linux.
drill: redis network promtool
	go run ./internal/drill

# README's program on several hosts, which are network namespaces: every case. Needs root on Linux.
lab: redis network
	go test -count=1 -timeout 20m -v ./internal/lab -lab.full

# Nodes of an older commit beside those of this one, under load: a rolling upgrade.
OLDER ?= HEAD~1
rolling: redis
	go test -count=1 -v ./internal/rolling -rolling.older $$(git rev-parse $(OLDER)) $(if $(APART),-rolling.apart)

# How long a hand-over of leadership takes, beside client-go's and etcd's elections: see docs/election.md.
TURNS ?= 100
elections: redis etcd
	cd $(ELECTIONS) && GOWORK=off go run . -turns $(TURNS)

# A rolling change from each old library to Holdfast and back, in processes of the operating system: see docs/migration.md.
migration: redis
	cd migrate && go test -count=1 -timeout 30m -v -run Processes . -migrate.full

# The page of package debug in a real browser: its pictures, into docs.
page: browser
	go test -count=1 -v -run InABrowser ./debug -debug.screenshots $(abspath docs)

# Metrics and alert rules with Prometheus's own tool, and they and the dashboard with a real Prometheus that scrapes real processes.
metrics: promtool redis
	cd metrics/prometheus && go test -count=1 ./...

# What metrics and spans cost the owner of a key, by turns in one process.
ROUNDS ?= 20
overhead:
	go run ./internal/overhead -rounds $(ROUNDS)

# A release: sets versions, checks, commits and tags; pushes nothing. DRY=1 leaves it at a clone. See RELEASING.md.
release: redis
	go run ./internal/release $(if $(DRY),-dry) $(if $(APART),-apart) $(VERSION)

# What differs from the last release in what packages export.
apidiff:
	go run ./internal/release -api

# A redis-server, from the distribution where that is possible.
redis:
	@command -v redis-server >/dev/null || { \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    apt-get update -qq && apt-get install -y -qq redis-server >/dev/null; \
	  else \
	    echo "redis-server is missing. Install it (apt install redis-server, brew install redis) and try again." >&2; exit 1; \
	  fi; }

# PostgreSQL, pgbouncer and MariaDB, for the tests of the fence and of arbiters; without root these tests are skipped where a server is missing.
databases:
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  missing=; ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing=postgresql; \
	  command -v pgbouncer >/dev/null || missing="$$missing pgbouncer"; \
	  command -v mariadb-install-db >/dev/null || missing="$$missing mariadb-server"; \
	  if [ -n "$$missing" ]; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null || \
	      echo "without $$missing some tests are skipped" >&2; \
	  fi; \
	fi

# An etcd, for its election and for client-go's. Without it the test is skipped.
etcd:
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && ! command -v etcd >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq etcd-server >/dev/null || echo "without etcd elections and its arbiter are not tested" >&2; fi

# FerretDB, which the arbiter on MongoDB is tested with: to compile it takes minutes. Without it these tests are skipped.
ferretdb:
	@cd internal/ferretdb && CGO_ENABLED=0 GOWORK=off GOFLAGS='$(PLAIN)' go build -tags ferretdb_no_postgresql . || \
	  echo "without FerretDB the arbiter on MongoDB is not tested" >&2

# Kubernetes's API server and its etcd, which its arbiter is tested with: to compile them takes ten minutes and 2 GB of the cache. Without
# them these tests are skipped.
kubeapiserver:
	@cd internal/kubeapiserver && export CGO_ENABLED=0 GOWORK=off GOFLAGS='$(PLAIN)' && go build . && go build -o etcd/etcd ./etcd || \
	  echo "without an API server the arbiter on Kubernetes is not tested" >&2

# An S3 gateway, which the arbiter in a bucket is tested with. Without it these tests are skipped.
versitygw:
	@cd internal/versitygw && CGO_ENABLED=0 GOWORK=off GOFLAGS='$(PLAIN)' go build . || \
	  echo "without an S3 gateway the arbiter in a bucket is not tested" >&2

# A ZooKeeper, for its arbiter. Without it the test is skipped.
zookeeper:
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && ! { [ -e /usr/share/java/zookeeper.jar ] && command -v java; } >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends libzookeeper-java default-jre-headless >/dev/null || \
	    echo "without ZooKeeper its arbiter is not tested" >&2; fi

# What makes hosts of network namespaces, where there is root. Without it the tests that need them are skipped.
network:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! { command -v ip && command -v iptables; } >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq iproute2 iptables >/dev/null || echo "without iproute2 and iptables some tests are skipped" >&2; fi

# Prometheus and its promtool, for alert rules and dashboard. Without them their tests are skipped.
promtool:
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && ! command -v promtool >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus >/dev/null || echo "without prometheus alert rules and dashboard are not tested" >&2; fi

browser:
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && ! command -v chromium >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; fi

# curl and h2load for the matrix of HTTP, which skips a client that is missing.
clients:
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && ! { command -v curl && command -v h2load; } >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq curl nghttp2-client >/dev/null || echo "without curl and h2load their scenes are skipped" >&2; fi

# A JDK for make http, whose HttpClient is one of the clients. make test uses one if there is one.
jdk:
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && ! command -v javac >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq default-jdk-headless >/dev/null || echo "without a JDK the scenes of Java's HttpClient are skipped" >&2; fi

# A rule of docs/protocol.md: its text, the functions that keep it, its transcripts or stories, and the tests, guards and comments that name it: make rule N=7, or RULE=7.
# The same of an invariant, N=I4, of a rule of docs/takeover.md, N=G5, and of one of an early end of Grace, N=E3.
N ?= $(RULE)
rule:
	@go run ./internal/repo/rule '$(N)'
