# `make` lists the targets. All that is needed is Go: tools are built from the modfiles in tools/, servers
# for tests and for `make run` are found or fetched by internal/sandbox.

.DEFAULT_GOAL := help

# Every Go module of the repository, the service's last: what it must not link has a module of its own.
MODULES := $(patsubst ./%/go.mod,%,$(filter-out ./go.mod,$(sort $(shell \
	find . -name '.?*' -prune -o -name node_modules -prune -o -name go.mod -print)))) .
in_each_module = status=0; for module in $(MODULES); do (cd "$$module" && $(1)) || status=1; done; exit $$status

# A modfile a tool; built without a C compiler and kept in Go's build cache.
tool = CGO_ENABLED=0 go tool -modfile="$(CURDIR)/tools/$(1).mod"
GOLANGCI := $(call tool,golangci-lint) golangci-lint

SQLC_OUT := internal/ledger/internal/dbsqlc
OPENAPI_OUT := internal/httpapi/internal/openapi
CLIENT_OUT := client/api
GENERATED := $(SQLC_OUT) $(OPENAPI_OUT) $(CLIENT_OUT)

##@ Use

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/holdfast, static
	CGO_ENABLED=0 go build -trimpath -o bin/holdfast ./cmd/holdfast

.PHONY: run
run: build ## Build, then run everything: private Postgres and Redis, and the service (ARGS='--fresh')
	@exec bin/holdfast dev $(ARGS)

.PHONY: lab
lab: ## Run the lock argument as experiments, on real servers (ARGS='--runs 3 --report lab.html NAME…')
	@go run ./cmd/lab run $(ARGS)

.PHONY: bench
bench: build ## Measure deductions per second on this machine (ARGS='--help' lists what can be set)
	@exec bin/holdfast bench $(ARGS)

# Real k6 where it is on PATH, else our own runner of these scripts. A service of yours: HOLDFAST_URL (and HOLDFAST_TOKEN).
SCRIPT ?= smoke
PROCESSES ?= 1
LOAD = $(or $(shell command -v k6),$(CURDIR)/bin/k6lite) run $(ARGS) -e REPORT=$(CURDIR)/k6/out k6/$(SCRIPT).js
load_spike = HOLDFAST_MAX_IN_FLIGHT=64 HOLDFAST_REQUEST_DEADLINE=500ms

.PHONY: load
load: build build-k6lite ## Run a load script: SCRIPT=hot-sku, PROCESSES=2, ARGS='-e SIZE=short'; docs/load.md
	@mkdir -p k6/out
	@if [ -n "$(HOLDFAST_URL)" ]; then \
		exec $(LOAD); \
	else \
		exec env $(load_$(SCRIPT)) bin/holdfast bench exec --processes=$(PROCESSES) \
			$(if $(TABLE),--table=$(TABLE) --report=k6/out/$(SCRIPT).json) $(LOAD); \
	fi

# Rates are such that one machine of two cores keeps them up with everything on it. A script that fails is in the table, too.
FULL := hot-sku spread retry-storm holds mixed spike replay "soak -e DURATION=60"
.PHONY: load-full
load-full: ## Run every load script at full size against private stacks and print a table: latencies, CPU split (10 minutes)
	@mkdir -p k6/out && rm -f k6/out/full.md; status=0; \
	for run in $(FULL); do \
		set -- $$run; script=$$1; shift; \
		$(MAKE) --no-print-directory load SCRIPT=$$script ARGS="$$*" TABLE=k6/out/full.md || status=1; \
	done; \
	echo; cat k6/out/full.md; exit $$status

# The tag reaches the command that the test builds, too. Part of the table: ARGS='-defects=ignore-key -scripts=smoke'.
.PHONY: load-defects
load-defects: ## Show that the load scripts find a service that is wrong on purpose: defect × script, some minutes
	@cd cmd/holdfast && GOFLAGS="$(GOFLAGS) -tags=defects" go test -count=1 -v -timeout 30m -run TestScriptsFindEveryDefect . $(ARGS)

.PHONY: build-k6lite
build-k6lite:
	@cd cmd/k6lite && CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/bin/k6lite .

# Both build the service twice, as it is and with defects and failpoints, and fail on the first violation; ROBUST_DIR keeps what was seen
# of one, ROBUST_SEED repeats an order of faults. On a busy machine recovery takes longer than promised: ARGS='-slower 10'.
.PHONY: chaos
chaos: ## Break everything that a service depends on under load, and check what clients saw (ARGS='-rounds 3')
	@go test -count=1 -tags chaos -timeout 30m -parallel 4 -v -run 'Fault|Defect' ./internal/robust -long $(ARGS)

.PHONY: chaos-short
chaos-short: ## The faults that are over soon, and every seeded defect (ARGS='-v')
	@go test -count=1 -tags chaos -timeout 10m -parallel 4 -run 'Fault|Defect' ./internal/robust $(ARGS)

SOAK ?= 45m
.PHONY: soak
soak: ## Let customers work for long, and fail if memory, goroutines, descriptors or connections grow (SOAK=45m, ARGS='-rate 250')
	@go test -count=1 -tags chaos -timeout 24h -v -run Soak ./internal/robust -soak $(SOAK) $(ARGS)

.PHONY: overload
overload: build ## Ask for three times what the service can do, for a minute (ARGS='--for=10s'; --help lists what can be set)
	@exec bin/holdfast bench overload $(ARGS)

##@ Change

.PHONY: jobs-long
jobs-long: ## Pause job runners a hundred times on every locker, cut off a hundred holders, and run an hour of ticks in two processes
	@go test -count=1 -timeout 30m -run Partitioned -v ./internal/lock -args -holders=108
	@go test -count=1 -timeout 30m -run 'Paused|EachTick' -v ./internal/job -args -pauses=100 -ticks=3600

# -shuffle shows tests that lean on each other, and keeps Go from answering out of its cache.
.PHONY: test
test: ## Run all tests on real servers, with the race detector where a C compiler is (ARGS='-run Name')
	@if command -v $(firstword $(shell go env CC)) >/dev/null; then \
		export CGO_ENABLED=1; race=-race; \
	else \
		echo "no C compiler ($$(go env CC)): testing without the race detector"; \
		export CGO_ENABLED=0; race=; \
	fi; \
	$(call in_each_module,go test $$race -shuffle=on -timeout 10m $(ARGS) ./...)

.PHONY: check
check: check-tidy check-openapi check-generated check-imports check-k6 lint ## Run every check but the tests

.PHONY: lint
lint: ## Format, vet and style of all modules; changes nothing (the first run builds the linter: 2 minutes)
	@$(call in_each_module,$(GOLANGCI) run)

.PHONY: format
format: ## Format all Go code
	@$(call in_each_module,$(GOLANGCI) fmt)

.PHONY: check-tidy
check-tidy: ## Fail if a go.mod is not tidy
	@$(call in_each_module,go mod tidy -diff)

.PHONY: check-imports
check-imports: ## Fail if a package imports what the architecture forbids
	@go test -count=1 ./internal

.PHONY: check-k6
check-k6: ## Check the load scripts against the types of k6 (with npm; without, it says so)
	@if command -v npm >/dev/null; then \
		cd k6 && { [ -d node_modules ] || npm ci --no-audit --no-fund --silent; } && npm run --silent check; \
	else \
		echo "check-k6: npm is not here, so the load scripts are not checked against the types of k6"; \
	fi

.PHONY: generate
generate: ## Generate the code for db/queries and openapi.yaml
	@rm -f $(SQLC_OUT)/*.go
	@$(call tool,sqlc) sqlc generate
	@CGO_ENABLED=0 go generate ./...

# Compares with what was there before, not with git, so that it also holds before a commit and outside a checkout.
.PHONY: check-generated
check-generated: ## Fail if generated code is not what `make generate` makes
	@before=$$(mktemp -d) && trap 'rm -rf "$$before"' EXIT && \
	cp -R $(GENERATED) "$$before" && \
	$(MAKE) --no-print-directory generate && \
	for dir in $(GENERATED); do \
		diff -ru "$$before/$${dir##*/}" "$$dir" || \
			{ echo "$$dir was out of date; it is generated anew now: look at it, then commit it"; exit 1; }; \
	done

.PHONY: check-openapi
check-openapi: ## Validate openapi.yaml, its examples included
	@$(call tool,openapi) validate --multi -- openapi.yaml

# The seeds of every fuzz target are run by `make test`; this looks further, one target after the other.
FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## Feed every reader of foreign input with what nobody thought of, each for FUZZTIME (30s)
	@grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9]+' . | sed -E 's|/[^/]*:func | |' | sort | while read -r dir target; do \
		echo "$$dir $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir" || exit 1; \
	done

.PHONY: sbom
sbom: build ## Write the bill of materials of what is in the command, bin/holdfast.cdx.json (CycloneDX)
	@$(call tool,cyclonedx-gomod) cyclonedx-gomod bin -json -licenses -output bin/holdfast.cdx.json bin/holdfast

# Advisory: what it finds may be new today and not come from the change at hand.
.PHONY: vuln
vuln: ## Look for known vulnerabilities, with the database as a Go module
	@db=$$(cd tools && go mod download -json golang.org/x/vulndb@latest | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p'); \
	$(call in_each_module,$(call tool,govulncheck) govulncheck -db "file://$$db/data/osv" ./...)
