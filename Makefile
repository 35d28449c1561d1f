# SequenceFI. `make help` lists the targets.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

ENVOY_VERSION := 1.40.0
GRPCIO_VERSION := 1.85.3
# The Envoys of `make e2e-versions`; 1.38's wheel was built without V8.
ENVOY_VERSIONS := 1.36.4 1.37.0 1.39.0 1.39.3 $(ENVOY_VERSION)

tools := .tools/bin
gosrc := $(shell find plugin controlplane solver proto deploy bench -name '*.go' -not -path 'bench/apps/*' 2>/dev/null) go.mod go.sum
tag := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

## demo: run the main job: a campaign on HotROD behind real Envoys (PROXY=tfiproxy or mixed; JAEGER=1: a real Jaeger)
.PHONY: demo
demo: $(if $(filter tfiproxy,$(PROXY)),,envoy) hotrod build $(if $(JAEGER),jaeger)
	bin/demo $(if $(JAEGER),--jaeger) $(if $(PROXY),--proxy $(PROXY))

## test: run all tests, with real Envoys, a real Jaeger and a real HotROD (PKG=./solver/...: only those)
.PHONY: test
test: hotrod jaeger grpcio $(if $(shell command -v npm),grpcjs) build $(tools)/h2spec $(tools)/gotestsum
	@.ci/fetch-envoy $(ENVOY_VERSIONS)
	$(if $(PKG),,cd bench/datapath/tools && go test ./...)
	$(gotest) -- $(testflags) $(or $(PKG),$(filter-out $(alone),$(shell go list ./...)))
	$(if $(PKG),,$(gotest) -- -p 1 $(testflags) $(alone))

gotest = $(tools)/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg
testflags = -count=1 -timeout 20m $(TESTFLAGS)
# These start several Envoys that compile the plugin: one after the other, or
# they starve each other and the applications under test.
alone = $(addprefix github.com/sequencefi/sequencefi/,controlplane/bootstrap controlplane/ecds plugin/tfiproxy/mesh plugin/wasm/internal/testbed bench/demo)

## build: build bin/sequencefi, bin/solver, bin/tfiproxy, bin/demo and the plugin
.PHONY: build
build: bin/sequencefi bin/solver bin/tfiproxy bin/demo bin/sequencefi.wasm

bin/sequencefi: $(gosrc)
	@echo "building $@"
	@go build -trimpath -ldflags "-X main.version=$(tag)" -o $@ ./controlplane/cmd/sequencefi
bin/solver: $(gosrc)
	@echo "building $@"
	@go build -trimpath -o $@ ./solver/cmd/solver
bin/tfiproxy: $(gosrc)
	@echo "building $@"
	@go build -trimpath -ldflags "-s -w -X main.version=$(tag)" -o $@ ./plugin/tfiproxy/cmd/tfiproxy
bin/demo: $(gosrc)
	@echo "building $@"
	@go build -trimpath -o $@ ./bench/demo/cmd/demo

## plugin: build the Envoy filter, bin/sequencefi.wasm
.PHONY: plugin
plugin: bin/sequencefi.wasm
bin/sequencefi.wasm: $(gosrc)
	@echo "building $@"
	@GOOS=wasip1 GOARCH=wasm go build -trimpath -buildmode=c-shared -ldflags "-s -w" -o $@ ./plugin/wasm/cmd/plugin

## envoy: fetch stock Envoy into .tools (ENVOY=/path uses your own)
.PHONY: envoy
envoy:
	@[ -n "$$ENVOY" ] || .ci/fetch-envoy $(ENVOY_VERSION)

## hotrod: build the demo's application, HotROD, from Jaeger's module
.PHONY: hotrod
hotrod: $(tools)/hotrod
## jaeger: build Jaeger v2 from its module (some minutes the first time)
.PHONY: jaeger
jaeger: $(tools)/jaeger

## grpcio: set up a Python with grpcio, one of the foreign gRPC clients of the tests
.PHONY: grpcio
grpcio: .tools/grpcio/ready
.tools/grpcio/ready:
	@echo "installing Python's grpcio $(GRPCIO_VERSION) into .tools/grpcio"
	@python3 -m venv .tools/grpcio
	@.tools/grpcio/bin/pip install --quiet --disable-pip-version-check grpcio==$(GRPCIO_VERSION)
	@touch $@

## grpcjs: set up Node's grpc-js, another one
.PHONY: grpcjs
grpcjs: .tools/grpcjs/ready
.tools/grpcjs/ready: .ci/tools/grpcjs/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js 20 or later" >&2; exit 1; }
	@echo "installing Node's grpc-js into .tools/grpcjs"
	@mkdir -p .tools/grpcjs
	@cp .ci/tools/grpcjs/package*.json .tools/grpcjs
	@cd .tools/grpcjs && npm ci --silent --no-audit --no-fund
	@touch $@

$(tools)/hotrod $(tools)/jaeger: bench/apps/go.mod bench/apps/go.sum
	@echo "building $@ from github.com/jaegertracing/jaeger (takes minutes the first time)"
	@mkdir -p $(tools)
	@cd bench/apps && go build -trimpath -o $(CURDIR)/$@ $(if $(findstring hotrod,$@),github.com/jaegertracing/jaeger/examples/hotrod,github.com/jaegertracing/jaeger/cmd/jaeger)

## e2e-versions: run the filter's behaviour on every supported Envoy version
.PHONY: e2e-versions
e2e-versions: plugin
	@.ci/fetch-envoy $(ENVOY_VERSIONS)
	go run ./plugin/wasm/versions $(ENVOY_VERSIONS)

## soak: 300,000 requests of trials with a nervous garbage collector and ten pushes a second
.PHONY: soak
soak: envoy plugin
	go run ./plugin/wasm/soak

## bench-envoy: what the filter costs, beside bare Envoy; writes out/bench-envoy
.PHONY: bench-envoy
bench-envoy: envoy plugin
	go run ./plugin/wasm/cost

## bench-datapath: the native sidecar beside nginx, HAProxy and Envoy (QUICK=1: some minutes); writes out/datapath
.PHONY: bench-datapath
bench-datapath: envoy
	go run ./bench/datapath $(if $(QUICK),-quick)

## fuzz: fuzz every parser, FUZZTIME each (default 1m; FUZZ=plugin/tfi: only those of matching folders or names)
.PHONY: fuzz
FUZZTIME ?= 1m
fuzz:
	@.ci/fuzz $(FUZZTIME) '$(FUZZ)'

## chaos: 100,000 requests of each protocol through the native sidecar among peers that stall, reset, half-close and lie
.PHONY: chaos
chaos:
	go test ./plugin/tfiproxy -run TestChaos -chaos 100000 -count=1 -timeout 30m -v

## proto: generate Go from the protobuf contracts
.PHONY: proto
proto: $(tools)/buf $(tools)/protoc-gen-go $(tools)/protoc-gen-go-grpc
	cd proto && ../$(tools)/buf generate

## lint: run the linters
.PHONY: lint
lint: $(tools)/golangci-lint
	$(tools)/golangci-lint run ./...
	cd bench/datapath/tools && $(CURDIR)/$(tools)/golangci-lint run ./...
	GOOS=wasip1 GOARCH=wasm go vet ./plugin/tfi/... ./plugin/wasm ./plugin/wasm/cmd/...

## check: linters, contracts (lint, breaking, generated code), tidy modules
.PHONY: check
check: lint $(tools)/buf proto
	cd proto && ../$(tools)/buf lint
	.ci/buf-breaking
	go mod tidy -diff
	cd bench/datapath/tools && go mod tidy -diff
	git diff --exit-code -- proto

## format: format the code
.PHONY: format
format: $(tools)/golangci-lint
	$(tools)/golangci-lint fmt ./...

## clean: remove what was built and written, but not what was fetched
.PHONY: clean
clean:
	rm -rf bin out

## help: list the targets
.PHONY: help
help:
	@sed -n 's/^## \([a-z0-9-]*\): /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

# Tools are built from modules of their own, so that their versions are pinned
# and the product's go.mod stays small.
$(tools)/buf: .ci/tools/buf/go.mod
	$(call tool,buf,github.com/bufbuild/buf/cmd/buf)
$(tools)/protoc-gen-go: .ci/tools/proto/go.mod
	$(call tool,proto,google.golang.org/protobuf/cmd/protoc-gen-go)
$(tools)/protoc-gen-go-grpc: .ci/tools/proto/go.mod
	$(call tool,proto,google.golang.org/grpc/cmd/protoc-gen-go-grpc)
$(tools)/golangci-lint: .ci/tools/lint/go.mod
	$(call tool,lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
$(tools)/gotestsum: .ci/tools/gotestsum/go.mod
	$(call tool,gotestsum,gotest.tools/gotestsum)
$(tools)/h2spec: .ci/tools/h2spec/go.mod
	$(call tool,h2spec,github.com/summerwind/h2spec/cmd/h2spec)

define tool
@echo "building $@"
@mkdir -p $(tools)
@cd .ci/tools/$(1) && go build -o $(CURDIR)/$@ $(2)
endef
