# make demo            train a translator on the built-in grammar and inspect it
# make test            run the fast tests; make test-all: also the slow ones; make check: fast tests, linter and type checker
# make sanitize        run the C++ unit tests with sanitizers; make test-arm: for ARM, emulated
# make format-native   run clang-format on the C++ sources
# make wheel           build a manylinux wheel and test it in an empty environment
# make bench           training and decoding speed compared with other toolkits
# make bench-decoding, make bench-training   only one of the two, with more model shapes
# make bench-against BASELINE=FOLDER   training speed relative to another commit, checked out in FOLDER
# make bench-kernels   time of each stage of a decoding step in the native engine, compared with the roofline
# make results NAME=sst2 DATA=FOLDER   train on real data by a recipe and write docs/results.md
# make studies         run all studies (about two and a half hours) and write docs/studies.md; NAME="order mask" runs some
# make questions       run the snippets of docs/questions.md on the demo's model and write their output
PYTHON ?= python3
# The C++ compiler: CXX if it is set, otherwise the first of these that is installed.
ifeq ($(origin CXX),default)
CXX := $(firstword $(foreach each,g++ c++ clang++,$(if $(shell command -v $(each) 2>/dev/null),$(each))) g++)
endif
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH := .bench-venv
BENCH_INSTALLED := $(BENCH)/.installed
NATIVE := src/clearhead/runtime/native
NATIVE_SOURCES := $(wildcard $(NATIVE)/*.cpp $(NATIVE)/*.h)
NATIVE_TESTS := $(wildcard tests/native/*.cpp tests/native/*.h benchmarks/native/*.cpp benchmarks/native/*.h)
CORE := src/clearhead/runtime/_core.abi3.so
DATA ?= data/multi30k
BENCH_ARGS ?=
# One process per core; tests of a file run in one process because they share fixtures. Tests that fork run afterwards in a
# separate process: the threads of a parallel run would leave locked mutexes in a fork.
PARALLEL := -n auto --dist loadfile

# The page is tested in a real browser, which is installed if it is missing and the user is root. Without a browser, these
# tests are skipped, or fail if CI is set. axe-core, the accessibility checker, is installed with npm; without npm or a network
# connection, its test is skipped.
browser:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing chromium and chromium-driver for the tests of the page."; \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium chromium-driver fonts-dejavu-core; } >/dev/null \
		|| echo "apt-get could not install chromium and chromium-driver; the tests of the page are skipped."; \
	else echo "chromium and chromium-driver are not installed, and installing them requires apt-get and root; the tests of the page are skipped."; fi
	@if [ -e node_modules/axe-core/axe.min.js ]; then :; \
	elif ! command -v npm >/dev/null; then echo "npm is not installed; the accessibility test, which needs axe-core, is skipped."; \
	elif npm install --silent --no-save --no-audit --no-fund axe-core@4.14.0; then rm -f node_modules/.unreachable; \
	else mkdir -p node_modules; touch node_modules/.unreachable; \
		echo "npm could not download axe-core; the accessibility test is skipped."; fi

# The second compiler for tests of the core, which is installed if it is missing and the user is root. Without it, these slow
# tests are skipped, or fail if CI is set.
clang:
	@if command -v clang++ >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing clang for the tests of the core's build."; \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends clang; } >/dev/null \
		|| echo "apt-get could not install clang; the core is tested only with $(CXX)."; \
	else echo "clang++ is not installed, and installing it requires apt-get and root; the core is tested only with $(CXX)."; fi

.PHONY: demo test test-all check browser clang install sanitize test-arm format-native wheel bench bench-decoding bench-training bench-against bench-kernels results studies questions clean

demo: install
	@$(BIN)/clearhead demo

test: install browser
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not forks and not alone"
	$(BIN)/python -m pytest -m "(forks or alone) and not slow"

test-all: install browser clang
	$(BIN)/python -m pytest $(PARALLEL) -m "not forks and not alone"
	$(BIN)/python -m pytest -m "forks or alone"

check: install browser
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror $(NATIVE_SOURCES) $(NATIVE_TESTS)
	$(BIN)/mypy
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not forks and not alone"
	$(BIN)/python -m pytest -m "(forks or alone) and not slow"

install: $(INSTALLED) $(CORE)

# Only changed sources are recompiled. An error in the sources stops make; without a compiler, clearhead uses torch, unless CI
# is set.
$(CORE): $(NATIVE_SOURCES) setup.py | $(INSTALLED)
	@if $(CXX) --version >/dev/null 2>&1 || [ -n "$$CI" ]; then \
		CXX="$(CXX)" CLEARHEAD_REQUIRE_CORE=1 CLEARHEAD_WERROR=1 $(BIN)/python setup.py --quiet build_ext --inplace; \
	else echo "No C++ compiler ($(CXX)) found; clearhead is installed without its C++ core and uses torch."; fi

sanitize: $(INSTALLED)
	@CXX="$(CXX)" CLEARHEAD_WERROR=1 $(BIN)/python setup.py --quiet native_tests --sanitize

# C++ unit tests of the core for ARM; cross compiler and emulator are Debian packages, installed if missing and the user is root.
test-arm: $(INSTALLED)
	@if command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing g++-aarch64-linux-gnu and qemu-user."; \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends \
			g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user; } >/dev/null; \
	else echo "make test-arm requires g++-aarch64-linux-gnu and qemu-user; installing them requires apt-get and root."; exit 1; fi
	@CLEARHEAD_WERROR=1 $(BIN)/python setup.py --quiet native_tests --cxx=aarch64-linux-gnu-g++ \
		--runner="qemu-aarch64 -L /usr/aarch64-linux-gnu"

# Built from the sdist, so that the wheel contains no files of earlier builds.
wheel: $(INSTALLED)
	@rm -rf build/wheel dist && mkdir -p build/wheel
	@$(BIN)/python -c "from setuptools import build_meta; build_meta.build_sdist('build/wheel')" >/dev/null
	@CXX="$(CXX)" CLEARHEAD_REQUIRE_CORE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --wheel-dir build/wheel build/wheel/clearhead-*.tar.gz
	@PATH="$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/clearhead-*.whl 2>build/wheel/auditwheel.log \
		|| { cat build/wheel/auditwheel.log; exit 1; }
	@$(PYTHON) -m venv build/wheel/venv
	@build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock dist/*.whl
	@$(BIN)/python -m tests.runtime.smoke_models build/wheel/models 2>build/wheel/models.log \
		|| { cat build/wheel/models.log; exit 1; }
	@env -u PYTHONPATH build/wheel/venv/bin/python tests/runtime/smoke.py build/wheel/models
	@ls dist/*.whl

format-native: $(INSTALLED)
	@$(BIN)/clang-format -i $(NATIVE_SOURCES) $(NATIVE_TESTS)

$(INSTALLED): requirements.lock pyproject.toml
	@echo "Setting up $(VENV); this takes a few minutes the first time (torch is large)."
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'clearhead needs Python 3.11 or newer; set PYTHON=')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	CXX="$(CXX)" CLEARHEAD_WERROR=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation --editable .
	@touch $@

results: install
	$(BIN)/python -m benchmarks.results $(NAME) --data "$(DATA)"

studies: install
	$(BIN)/python -m benchmarks.studies $(NAME)

questions: demo
	$(BIN)/python -m benchmarks.questions

bench: $(BENCH_INSTALLED)
	PYTHONPATH=src $(BENCH)/bin/python -m benchmarks.run --data "$(DATA)" $(BENCH_ARGS)

bench-decoding: install
	$(BIN)/python -m benchmarks.decoding --data "$(DATA)" $(BENCH_ARGS)

bench-training: $(BENCH_INSTALLED)
	PYTHONPATH=src $(BENCH)/bin/python -m benchmarks.train --data "$(DATA)" $(BENCH_ARGS)

bench-against: install
	PYTHONPATH=src $(BIN)/python -m benchmarks.against --data "$(DATA)" --baseline "$(BASELINE)" $(BENCH_ARGS)

bench-kernels: install
	@$(BIN)/python -m benchmarks.kernels $(BENCH_ARGS)

$(BENCH_INSTALLED): benchmarks/requirements.txt benchmarks/requirements-no-deps.txt
	@echo "Setting up $(BENCH) with the other toolkits; this takes a few minutes the first time."
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/requirements-no-deps.txt
	@touch $@

clean:
	rm -rf $(VENV) $(BENCH) $(CORE) build .pytest_cache .mypy_cache .ruff_cache
