# SPDX-License-Identifier: MIT
#
# The front door. Each target installs what is missing (Debian's apt, where it may), configures and
# builds with CMake and Ninja, and runs; nothing is done twice.
#
#     make CC=clang BUILD=build-clang test      another compiler, another folder
#     make PREFIX=$HOME/.local install          another place; DESTDIR is obeyed too

BUILD   ?= build
PREFIX  ?= /usr/local
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_ARGS ?=

# Make's own default for CC is no wish of the user's: let CMake choose then.
ifeq ($(origin CC),default)
undefine CC
else
export CC
endif

TEST = scripts/test.sh "$(1)" "$(JOBS)"

.DEFAULT_GOAL := build
.PHONY: build demo test torch-test bench gpu-test faults format lint asan ubsan tsan install uninstall wheel wheel-test \
        docs docs-pictures clean help setup

build: ## build the command, build/reprise, and the libraries
	@$(call configure_and_build,$(BUILD),$(CMAKE_ARGS))

demo: build ## capture a small decoder and plan recorded captures; draws a chart in build/demo
	@"$(BUILD)/reprise" demo --out "$(BUILD)/demo"

test: build ## run every test that needs no GPU
	@$(call TEST,$(BUILD))

bench: build ## run the benchmarks
	@scripts/bench.sh "$(BUILD)"

gpu-test: build ## run the tests that need an NVIDIA GPU
	@scripts/gpu_test.sh "$(BUILD)"

torch-test: build ## run the package's tests with a real PyTorch, without a GPU (minutes); VERSION=oldest, newest, 2.14.1
	@scripts/torch_test.sh "$(BUILD)" "$(JOBS)" $(VERSION)

faults: setup ## build with each deliberate fault in turn; the tests must notice (minutes)
	@scripts/deliberate_faults.py

format: ## lay out the sources with clang-format
	@scripts/setup.sh lint
	@git ls-files -z '*.c' '*.h' ':!*_ptx.*' | xargs -0 clang-format -i

lint: build ## check layout, clang-tidy, cppcheck, ruff, mypy and shellcheck; CHANGED=1: of changed files only
	@scripts/setup.sh lint
	@scripts/lint.sh "$(BUILD)" $(if $(CHANGED),--changed)

asan: ## run every test under the address sanitizer, in build-asan
	@$(call sanitize,asan,-fsanitize=address)

ubsan: ## run every test under the undefined behaviour sanitizer, in build-ubsan
	@$(call sanitize,ubsan,-fsanitize=undefined -fno-sanitize-recover=all)

tsan: ## run every test under the thread sanitizer, in build-tsan
	@$(call sanitize,tsan,-fsanitize=thread)

install: build ## install under PREFIX (/usr/local)
	@scripts/install.sh install "$(BUILD)" "$(PREFIX)"

uninstall: ## remove what `make install` with the same PREFIX and DESTDIR installed
	@scripts/install.sh uninstall "$(BUILD)" "$(PREFIX)"

wheel: ## build the source distribution and the manylinux wheel into dist
	@scripts/setup.sh wheel
	@scripts/wheel.sh "$(BUILD)/wheel"

wheel-test: wheel ## install the wheel in a clean environment and in a bare Debian, and use it
	@scripts/wheel_test.sh "$(BUILD)/wheel-test"

docs-pictures: build ## make the pictures of docs/images anew, with Chromium and a PyTorch in build/torch
	@scripts/docs_pictures.py "$(BUILD)" $(wildcard $(BUILD)/torch/bin/python)

docs: ## build the documentation site in build/docs/site, and check its links
	@scripts/docs.sh "$(BUILD)"

clean: ## remove what was built
	@rm -rf build build-* dist

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup: ## install what the build needs, where that may be done without asking
	@scripts/setup.sh

# Folder, CMake arguments.
define configure_and_build
scripts/setup.sh && scripts/configure.sh "$(1)" $(2) && ninja -C "$(1)"
endef

# Name, flags: asserts on, and quick enough to run everything.
define sanitize
$(call configure_and_build,build-$(1),-DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_FLAGS="-O1 -fno-omit-frame-pointer $(2)" $(CMAKE_ARGS)) && $(call TEST,build-$(1))
endef
