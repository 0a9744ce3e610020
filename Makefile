# Thin: every target is one command of `python -m pipeline`, pytest or a linter, after `setup`.
SHELL := /bin/bash
HERE := $(dir $(lastword $(MAKEFILE_LIST)))
.DEFAULT_GOAL := help
COMMANDS := train sweep runs remove status data baselines backtranslate translate evaluate serve prune distill export import plan config verify
.PHONY: help setup $(COMMANDS) score report bench check format test test-full mutate docs lock clean

# Settings of the commands, given as NAME=value: `make help` shows them in use, and pipeline/commands/table.py has the key that
# each stands for. What is empty is left to the recipe.
SETTINGS := RECIPE CORPUS CORPUS_PATH CORPUS_ADD LANG_PAIRS NAME UNUSED DRY RUNTIME LAYOUT REPLACE EXPERIMENT EXPERTS LAYERS GATE SEEDS LAUNCHER \
	TEXT LICENCE CITATION FROM OUT PAIR KEEP WATCH FORMAT DEVICES DEVICE MP EP ZERO RECOMPUTE SEARCH VERBOSE
RECIPE ?= demo

# Overrides (key=value) and options of any command, as one types them in a shell.
ARGS   ?=

# Setting of `make test`: which part of the long tests runs too, such as 3/100.
LONG   ?=

# Setting of `make bench`.
BENCH  ?= moe

# The variables that the user typed; make's own and those of the environment are none. A make below this one gets none of them.
ANYWHERE := PYTHON PIP_ARGS BIN SHELL
TYPED := $(foreach name,$(filter-out $(ANYWHERE),$(.VARIABLES)),$(if $(filter command,$(origin $(name))),$(name)))
MAKEOVERRIDES :=

# What the targets read that are no commands; the settings of commands are in pipeline/commands/table.py.
READ_BY_score  := HYP REF TGT ARGS
READ_BY_report := RUNS NAME REPLACE ARGS
READ_BY_bench  := BENCH ARGS
READ_BY_test   := LONG
READ_BY_mutate := ARGS
READ_BY_lock   := ARGS

# These settings are text: make expands no `$` in them, and the shell gets them by `quote` below. A line break would end the
# command. ARGS and PIP_ARGS are words of a shell, as one types them.
# HYP, REF, TGT: files of translations and of references, and the target language, of `make score`. RUNS: of `make report`.
TEXTS := $(SETTINGS) HYP REF TGT RUNS BENCH
define newline


endef
$(foreach name,$(TEXTS),$(if $(findstring $(newline),$(value $(name))),$(error $(name) must be one line)))
$(foreach name,$(TEXTS),$(eval override $(name) := $$(value $(name))))

PYTHON ?= $(shell for v in python3.11 python3.12 python3.13 python3; do \
	$$v -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$v; break; }; done)
BIN       := .venv/bin
READY     := .venv/.ready
READY_DEV := .venv/.ready-dev
READY_DOCS := .venv/.ready-docs

# Options of pip, as a package index with torch for CPUs alone (README.md).
PIP_ARGS ?=
INSTALL = DS_BUILD_OPS=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS)

# quote: a word of the shell. files: a word for each file, or for each that a pattern matches, and none is an option.
quote = '$(subst ','\'',$(1))'
files = $(foreach file,$(foreach name,$(patsubst -%,./-%,$(1)),$(or $(wildcard $(name)),$(name))),$(call quote,$(file)))

# What was typed is checked before anything runs, be it the setup.
GOALS := $(or $(MAKECMDGOALS),help)
CHECK = cd $(call quote,$(HERE)) && $(firstword $(PYTHON) $(wildcard .venv/bin/python)) \
	-m pipeline.commands.make_variables $(call quote,$(GOALS)) $(call quote,$(TYPED)) \
	$(call quote,$(foreach goal,$(GOALS),$(READ_BY_$(goal))))
$(if $(TYPED),$(if $(shell $(CHECK) || echo wrong),$(error nothing was run)))

# A command ignores NAME?=value, a default or of the environment, where it has no such setting; NAME=value is an error then.
WORDS  := $(foreach name,$(SETTINGS),$(if $($(name)),$(call quote,$(name)$(if $(filter $(name),$(TYPED)),,?)=$($(name))))) $(ARGS)
REPORT := $(call files,$(RUNS)) $(if $(NAME)$(word 2,$(RUNS)),--out $(call quote,runs/$(or $(NAME),comparison))) \
	$(if $(REPLACE),$(call quote,--replace=$(REPLACE))) $(ARGS)

help: ## list the targets
	@$(or $(PYTHON),echo 'error: Python 3.11 or newer is needed'; exit 1;) -m pipeline help make
	@echo '  report:'
	@echo '    RUNS="dense_s1 dense_s2 deeper=moe_12l" NAME=comparison REPLACE=1 ARGS="--losses 3.0,2.5"'
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

setup: $(READY) ## create .venv and install the pinned dependencies (the other targets do it themselves)

$(READY): pyproject.toml requirements.lock requirements-cuda.lock
	@test -n "$(PYTHON)" || { echo 'error: Python 3.11 or newer is needed; install it or set PYTHON=/path/to/python3'; exit 1; }
	$(PYTHON) -m venv .venv
	$(INSTALL) -r requirements.lock
	$(INSTALL) --no-deps --editable .
	@touch $@

$(READY_DEV): $(READY) requirements-dev.lock
	$(INSTALL) -r requirements-dev.lock
	@touch $@

$(READY_DOCS): $(READY) requirements-docs.lock
	$(INSTALL) -r requirements-docs.lock
	@touch $@

$(COMMANDS): $(READY)
	@$(BIN)/python -m pipeline $@ $(WORDS)

score: $(READY) ## score files of translations: HYP="a.txt b.txt" REF=ref.txt TGT=ja (docs/scoring.md)
	@$(BIN)/python -m eval score --hyp $(call files,$(HYP)) --ref $(call files,$(REF)) $(call quote,--tgt=$(TGT)) $(ARGS)

report: $(READY) ## compare the finished RUNS="a b label=c" in runs/NAME; one of them: draw its page again (docs/report.md)
	@$(BIN)/python -m eval report $(REPORT)

bench: $(READY) ## measure against other implementations: BENCH=moe, train, data, decode, plan, layout, serve or quality, ARGS="--quick"
	@bench/setup.sh $(call quote,$(BENCH))
	@.venv-bench/bin/python -m $(call quote,bench.$(BENCH)) $(ARGS)

check: $(READY_DEV) ## format, lint, types, import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY_DEV) ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(READY_DEV) ## unit, golden, parallel and system tests; LONG=3/100 adds that hundredth of the long ones (docs/testing.md)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder \
		$(if $(LONG),-m "not quiet" --long-part $(LONG),-m "not long and not quiet") \
		tests/system tests/parallel tests/cuda tests/golden tests/hostile tests/unit
	$(BIN)/python -m pytest $(if $(LONG),-m quiet --long-part $(LONG),-m "quiet and not long") tests/parallel tests/system tests/hostile

test-full: $(READY_DEV) ## all tests, the long ones too; more than an hour (docs/testing.md)
	@tests/run_full.sh

mutate: $(READY_DEV) ## break the core in many small ways and list what no test notices; hours; ARGS='eval.score.significance*'
	@bench/setup.sh mutate
	OMP_NUM_THREADS=1 .venv-mutate/bin/mutmut run --max-children 2 $(ARGS)
	.venv-mutate/bin/mutmut results

docs: $(READY_DOCS) ## build the documentation as a site in site/, with every link checked
	$(BIN)/python -m docs.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Versions that the files have are kept where they still fit. One version serves all Pythons and platforms where it can.
COMPILE = $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --fork-strategy fewest \
	--no-header --no-annotate --extra serve --extra cluster $(ARGS)
PINS    = grep -hE '^[a-z0-9]'
lock: $(READY_DEV) ## resolve pyproject.toml into requirements*.lock for all platforms; ARGS=--upgrade: newer versions
	@mkdir -p .venv/lock
	@$(PINS) requirements.lock requirements-cuda.lock > .venv/lock/users
	@$(PINS) requirements.lock requirements-cuda.lock requirements-dev.lock > .venv/lock/all
	@$(PINS) requirements.lock requirements-cuda.lock requirements-dev.lock requirements-docs.lock > .venv/lock/docs
	$(COMPILE) --output-file .venv/lock/users
	$(COMPILE) --extra dev --constraint .venv/lock/users --output-file .venv/lock/all
	$(COMPILE) --extra dev --extra docs --constraint .venv/lock/all --output-file .venv/lock/docs
	@{ echo "# What users install. CUDA's libraries come with a torch that needs them; the file of constraints pins those."; \
		echo '# Made by `make lock`.'; echo '--constraint requirements-cuda.lock'; \
		grep -vE '^(cuda|nvidia|triton)' .venv/lock/users; } > requirements.lock
	@{ echo '# Versions of what a torch with CUDA brings. They install nothing. Made by `make lock`.'; \
		grep -E '^(cuda|nvidia|triton)' .venv/lock/users; } > requirements-cuda.lock
	@{ echo '# What `make test` and `make check` need besides. Made by `make lock`.'; \
		echo '--constraint requirements.lock'; grep -vxFf .venv/lock/users .venv/lock/all; } > requirements-dev.lock
	@{ echo '# What `make docs` needs besides, next to the tools of `make test`. Made by `make lock`.'; \
		echo '--constraint requirements.lock'; echo '--constraint requirements-dev.lock'; \
		grep -vxFf .venv/lock/all .venv/lock/docs; } > requirements-docs.lock

clean: ## remove artifacts, runs and the built site, keep .venv
	rm -rf data/artifacts runs site
