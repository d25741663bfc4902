FUZZTIME ?= 10s
PKG ?= $(SHARING)

.PHONY: check test race wasm-check bench figures large fuzz hostile mutate guards

# The engine compiles guests, which takes five times as long with the race
# detector inside, so the compiler's two packages go without. No more than
# those: one that uses a generic of sync or sync/atomic would share its
# uninstrumented copy with the whole program, and report races that are none.
#
# So race tests are of the packages in which goroutines share something. The command's
# scripts start hundreds of processes, which compile guests, and others' tests are one
# guest after the other: what these run at once is in the packages listed. Of those, tests
# that call one guest after the other, send megabytes or kill other processes, and take long,
# run without the detector alone.
WAZEVO = github.com/tetratelabs/wazero/internal/engine/wazevo
SHARING = ./audit ./capability ./flow/... ./host ./host/hosttest ./host/jail ./host/rego ./internal/app ./sdk ./sdk/abi ./sdk/guest/go ./session/...
ALONE  = ^(TestPluginsOfExtism|TestPluginOfGoPDK|TestBulkInChunks|TestCompileRepeats|TestFuelRepeats|TestGoEndings|TestGoHoard|TestImportsAtBoundaries|TestTiersAgree|TestSecretInAnEncodedAnswer|TestFrozenRandomness|TestHugeResult|TestKills)$$
RACE   = -race -skip='$(ALONE)' -gcflags=$(WAZEVO)/ssa=-race=false -gcflags=$(WAZEVO)/backend/...=-race=false

# What CI runs: format, vet, lint, race tests, guests built, a short fuzz.
check:
	@diff=$$(gofmt -d .); test -z "$$diff" || { echo "$$diff"; exit 1; }
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	go test $(RACE) $(SHARING)
	$(MAKE) -j2 -Otarget wasm-check fuzz FUZZTIME=2000x

test:
	go test ./...

# Race tests of packages of your choice.
race:
	go test $(RACE) $(PKG)

# Builds every guest whose toolchain is here, and compares the committed ones.
wasm-check:
	.ci/wasm

bench:
	go test -run='^$$' -bench=. -benchmem ./...

# Holds the figures that the specification promises.
figures:
	.ci/figures

# Loads lawful Go guests of 3, 6 and almost 8 MB twenty times each, with nothing in a cache.
large:
	go test -run='^$$' -bench='^BenchmarkLargeGuests$$' -benchtime=20x -timeout=30m ./host

# Runs every fuzz target of the module for FUZZTIME.
fuzz:
	.ci/fuzz $(FUZZTIME)

# Runs a corpus of hostile modules that lies in HOSTILE, whose own generator
# builds them. They stop other engines, so they are built outside this folder.
HOSTILE ?= ../shared/hostile
hostile:
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; verdicts=$$PWD/testdata/conformance/verdicts.json; \
	go build -o "$$out/sandboxd" ./cmd/sandboxd && \
	(cd $(HOSTILE) && go run ./gen -out "$$out/modules" -verdicts "$$verdicts") && \
	"$$out/sandboxd" conformance $(HOSTILE) --modules "$$out/modules"

# Changes the code that decides about calls, one statement at a time, and reports
# the changes that no test notices. It takes some minutes.
mutate:
	nice go run ./internal/mutate -equivalent internal/mutate/equivalent.txt \
		flow/dispatch.go flow/callguards.go flow/callend.go flow/merge.go flow/guard.go flow/group.go flow/phases.go flow/confirm.go flow/decide.go flow/deciders.go sdk/abi/guard.go

# Tries every change of the compiled first-party guards, not only those at denials as
# go test does, and names those that their tables do not notice.
guards:
	ALL_MUTANTS=1 go test -count=1 -v -timeout=60m -run='^TestDenialsAreNoticed$$' ./policies/builtin
