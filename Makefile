# Thin: every target is one command of `python -m pipeline`, pytest or a linter, after `setup`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup train sweep status data baselines backtranslate translate serve prune distill export score report config \
	verify plan bench check format test test-full mutate lock clean

# Settings of `make train`, `data`, `baselines` and `config`; what is empty is left to the recipe.
# CORPUS: a directory (then all of its pairs, unless LANG_PAIRS names some) or a name in configs/corpus, whose files
# CORPUS_PATH says where to find if they are not in the repository. CORPUS_ADD: directories of further corpora.
RECIPE      ?= demo
CORPUS      ?=
CORPUS_PATH ?=
CORPUS_ADD  ?=
LANG_PAIRS  ?=
NAME        ?=
RUNTIME     ?=
LAYOUT      ?=
ARGS        ?=

# Settings of `make sweep`, beside those of `train`: values to sweep, several in a list; LAYERS counts encoder and decoder
# together, as GShard. EXPERIMENT: of configs/experiment, in place of RECIPE.
EXPERIMENT ?=
EXPERTS    ?=
LAYERS     ?=
GATE       ?=
SEEDS      ?=
LAUNCHER   ?=

# Settings of `make backtranslate`, beside LANG_PAIRS, RUNTIME and ARGS; NAME is the finished run.
TEXT       ?=
LICENCE    ?=
CITATION   ?=
OUT        ?=

# Setting of `make translate` and `make prune`, beside NAME, RUNTIME and ARGS.
PAIR       ?=

# Setting of `make prune`.
KEEP       ?=

# Setting of `make status`, beside NAME and ARGS.
WATCH      ?=

# Settings of `make score`: files of translations, of references, and the target language.
HYP        ?=
REF        ?=
TGT        ?=

# Setting of `make report`: finished runs, names below runs/ or directories, [label=]name; NAME is the comparison's.
RUNS       ?=

# Setting of `make export` (huggingface, ctranslate2) and `make plan` (text, json).
FORMAT     ?=

# Settings of `make plan`, beside RECIPE (several, or a folder of recipes/), LAYOUT, FORMAT, OUT and ARGS.
DEVICES    ?=
DEVICE     ?=
MP         ?=
EP         ?=
ZERO       ?=
RECOMPUTE  ?=
SEARCH     ?=

# Setting of `make test`: which tenth of the long tests runs too, such as 3/10.
LONG       ?=

# Setting of `make bench`.
BENCH      ?= moe

# These settings are text: make expands no `$` in them, and the shell gets them by `quote` below. A line break would end the
# command. ARGS and PIP_ARGS are words of a shell, as one types them.
TEXTS := RECIPE CORPUS CORPUS_PATH CORPUS_ADD LANG_PAIRS NAME RUNTIME LAYOUT EXPERIMENT EXPERTS LAYERS GATE SEEDS LAUNCHER \
	TEXT LICENCE CITATION OUT PAIR KEEP WATCH HYP REF TGT RUNS FORMAT DEVICES DEVICE MP EP ZERO RECOMPUTE SEARCH BENCH
define newline


endef
$(foreach name,$(TEXTS),$(if $(findstring $(newline),$(value $(name))),$(error $(name) must be one line)))
$(foreach name,$(TEXTS),$(eval override $(name) := $$(value $(name))))

PYTHON ?= $(shell for v in python3.11 python3.12 python3.13 python3; do \
	$$v -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$v; break; }; done)
BIN       := .venv/bin
READY     := .venv/.ready
READY_DEV := .venv/.ready-dev

# Options of pip, as a package index with torch for CPUs alone: PIP_ARGS="--extra-index-url <PyTorch's CPU index>".
PIP_ARGS ?=
INSTALL = DS_BUILD_OPS=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS)

empty :=
space := $(empty) $(empty)
comma := ,
list   = $(subst $(space),$(comma),$(strip $(subst $(comma),$(space),$(1))))
# quote: a word of the shell. text: a string of Hydra, in which no quote and no ${...} means anything. files: a word for each file,
# or for each that a pattern matches, and none is an option. set: key=value, unless the value is empty.
quote  = '$(subst ','\'',$(1))'
text   = "$(subst $${,\$${,$(subst ",\",$(subst \",\\",$(1))))"
files  = $(foreach file,$(foreach name,$(patsubst -%,./-%,$(1)),$(or $(wildcard $(name)),$(name))),$(call quote,$(file)))
set    = $(if $(2),$(call quote,$(1)=$(2)))
WHERE := $(if $(LANG_PAIRS),$(call quote,pairs=[$(call list,$(LANG_PAIRS))])) $(call set,runtime,$(RUNTIME))
RUN_OF := $(if $(NAME),$(call quote,run=$(call text,$(NAME))))
OUT_TO := $(if $(OUT),$(call quote,out=$(call text,$(OUT))))
OF    := $(call set,corpus,$(CORPUS)) $(if $(CORPUS_PATH),$(call quote,corpus.path=$(call text,$(CORPUS_PATH)))) \
	$(if $(CORPUS_ADD),$(call quote,corpus.add=[$(call list,$(CORPUS_ADD))])) \
	$(if $(NAME),$(call quote,name=$(call text,$(NAME)))) $(WHERE) $(call set,layout,$(LAYOUT))
RUN   := $(call quote,recipes=$(RECIPE)) $(OF) $(ARGS)
SWEEP := $(or $(call set,experiment,$(EXPERIMENT)),$(call quote,recipes=$(call list,$(RECIPE)))) $(OF) \
	$(call set,model.moe.num_experts,$(call list,$(EXPERTS))) $(call set,layers,$(call list,$(LAYERS))) \
	$(call set,gate,$(call list,$(GATE))) $(call set,train.seed,$(call list,$(SEEDS))) \
	$(call set,hydra/launcher,$(LAUNCHER)) $(ARGS)
BACK  := $(RUN_OF) $(if $(TEXT),$(call quote,text=$(call text,$(TEXT)))) \
	$(if $(LICENCE),$(call quote,licence=$(call text,$(LICENCE)))) \
	$(if $(CITATION),$(call quote,citation=$(call text,$(CITATION)))) $(OUT_TO) $(WHERE) $(ARGS)
LINES := $(RUN_OF) $(if $(PAIR),$(call quote,pair=$(call text,$(PAIR)))) $(call set,runtime,$(RUNTIME)) $(ARGS)
EXPORT := $(RUN_OF) $(OUT_TO) $(call quote,format=$(or $(FORMAT),huggingface)) $(ARGS)
PRUNE := $(RUN_OF) $(if $(PAIR),$(call quote,pairs=[$(call list,$(PAIR))])) $(call set,keep,$(KEEP)) \
	$(call set,runtime,$(RUNTIME)) $(ARGS)

REPORT := $(call files,$(RUNS)) $(if $(NAME)$(word 2,$(RUNS)),--out $(call quote,runs/$(or $(NAME),comparison))) $(ARGS)

PLAN  := $(call quote,recipes=[$(call list,$(RECIPE))]) $(call set,devices,$(DEVICES)) $(call set,device,$(DEVICE)) \
	$(call set,layout,$(LAYOUT)) $(call set,mp,$(MP)) $(call set,ep,$(EP)) $(call set,zero_stage,$(ZERO)) \
	$(call set,recompute,$(RECOMPUTE)) $(if $(SEARCH),search=true) $(call set,format,$(FORMAT)) $(OUT_TO) $(ARGS)

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24
	@echo
	@echo '  settings of train, data, baselines and config:'
	@echo '    RECIPE=demo LANG_PAIRS="de-en tr-en" (or all) NAME=mine RUNTIME=gpu LAYOUT=model ARGS="train.seed=2 ..."'
	@echo '    CORPUS=path/to/dir (files named by pair: data/README.md) or a name in configs/corpus, with CORPUS_PATH=dir'
	@echo '  of sweep, beside those:'
	@echo '    EXPERTS="4 8 16" LAYERS="6 12" GATE="top2 top1" SEEDS="1 2" LAUNCHER=joblib, or EXPERIMENT=freesoft38'
	@echo '  of backtranslate:'
	@echo '    NAME=finished LANG_PAIRS=en-de TEXT=mono.en LICENCE=CC0-1.0 OUT=data/mine; then train CORPUS_ADD=data/mine'
	@echo '  of translate:'
	@echo '    make -s translate NAME=finished PAIR=de-en < in.de > out.en'
	@echo '  of report:'
	@echo '    RUNS="dense_s1 dense_s2 deeper=moe_12l" NAME=comparison ARGS="--losses 3.0,2.5"'
	@echo '  of export:'
	@echo '    NAME=finished OUT=data/artifacts/mine FORMAT=huggingface'
	@echo '  of prune and distill:'
	@echo '    NAME=finished PAIR=de-en KEEP=0.5     NAME=finished LANG_PAIRS="de-en fr-en" OUT=data/mine'
	@echo '  of plan:'
	@echo '    RECIPE=gshard/moe_2048e_36l DEVICES=256 DEVICE=h100 LAYOUT=model MP=2 EP=64 ZERO=2 RECOMPUTE=layers SEARCH=1'

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

train: $(READY) ## corpus to report: the main job, or what RECIPE and LANG_PAIRS say
	@$(BIN)/python -m pipeline train $(RUN)

sweep: $(READY) ## runs that differ in a few keys, at equal budget, and their page: EXPERTS="4 8" (docs/sweeps.md)
	@$(BIN)/python -m pipeline sweep $(SWEEP)

status: $(READY) ## where the run or the sweep NAME stands, and when it will be done; WATCH=1 keeps showing it
	@$(BIN)/python -m pipeline status $(RUN_OF) $(if $(WATCH),watch=true) $(ARGS)

data: $(READY) ## corpus to encoded rows, before any training: what was read, removed by each rule, and kept
	@$(BIN)/python -m pipeline data $(RUN)

baselines: $(READY) ## the bilingual models of `make train` alone, and the search for them (docs/experiment.md)
	@$(BIN)/python -m pipeline baselines $(RUN)

backtranslate: $(READY) ## translate TEXT by the finished run NAME into a corpus OUT (docs/backtranslation.md)
	@$(BIN)/python -m pipeline backtranslate $(BACK)

translate: $(READY) ## lines of standard input by the finished run NAME in the direction PAIR (docs/translate.md)
	@$(BIN)/python -m pipeline translate $(LINES)

serve: $(READY) ## the finished run NAME behind HTTP, with a page for a browser: ARGS="port=8001" (docs/serve.md)
	@$(BIN)/python -m pipeline serve $(RUN_OF) $(call set,runtime,$(RUNTIME)) $(ARGS)

prune: $(READY) ## keep the experts that PAIR uses in the finished run NAME, a share KEEP of them (docs/pruning.md)
	@$(BIN)/python -m pipeline prune $(PRUNE)

distill: $(READY) ## source text, translated by the finished run NAME, into a corpus OUT (docs/distillation.md)
	@$(BIN)/python -m pipeline distill $(BACK)

score: $(READY) ## score files of translations: HYP="a.txt b.txt" REF=ref.txt TGT=ja (docs/scoring.md)
	@$(BIN)/python -m eval score --hyp $(call files,$(HYP)) --ref $(call files,$(REF)) $(call quote,--tgt=$(TGT)) $(ARGS)

report: $(READY) ## compare the finished RUNS="a b label=c" in runs/NAME; one of them: draw its page again (docs/report.md)
	@$(BIN)/python -m eval report $(REPORT)

export: $(READY) ## write the finished run NAME to OUT as a model of FORMAT=huggingface or ctranslate2 (docs/export.md)
	@$(BIN)/python -m pipeline export $(EXPORT)

config: $(READY) ## print the resolved configuration of a run
	@$(BIN)/python -m pipeline config $(RUN)

verify: $(READY) ## the same batches on 1, 2 and 4 processes against plain torch (minutes)
	@$(BIN)/python -m pipeline verify $(ARGS)

plan: $(READY) ## what RECIPE needs, how fast it trains and what it costs on DEVICES=256 DEVICE=h100 (docs/plan.md)
	@$(BIN)/python -m pipeline plan $(PLAN)

bench: $(READY) ## measure against other implementations: BENCH=moe, train, data, decode, plan, layout or serve, ARGS="--quick"
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

test: $(READY_DEV) ## unit, golden, parallel and system tests; LONG=3/10 adds that tenth of the long ones (docs/testing.md)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder \
		$(if $(LONG),-m "not quiet" --long-part $(LONG),-m "not long and not quiet") \
		tests/system tests/parallel tests/golden tests/hostile tests/unit
	$(BIN)/python -m pytest $(if $(LONG),-m quiet --long-part $(LONG),-m "quiet and not long") tests/parallel tests/system tests/hostile

test-full: $(READY_DEV) ## all tests, the long ones too, in order; hours (docs/testing.md)
	@tests/run_full.sh

mutate: $(READY_DEV) ## break the core in many small ways and list what no test notices; hours; ARGS='eval.score.significance*'
	@bench/setup.sh mutate
	OMP_NUM_THREADS=1 .venv-mutate/bin/mutmut run --max-children 2 $(ARGS)
	.venv-mutate/bin/mutmut results

# Versions that the files have are kept where they still fit. One version serves all Pythons and platforms where it can.
COMPILE = $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --fork-strategy fewest \
	--no-header --no-annotate --extra serve --extra cluster $(ARGS)
PINS    = grep -hE '^[a-z0-9]'
lock: $(READY_DEV) ## resolve pyproject.toml into requirements*.lock for all platforms; ARGS=--upgrade: newer versions
	@mkdir -p .venv/lock
	@$(PINS) requirements.lock requirements-cuda.lock > .venv/lock/users
	@$(PINS) requirements.lock requirements-cuda.lock requirements-dev.lock > .venv/lock/all
	$(COMPILE) --output-file .venv/lock/users
	$(COMPILE) --extra dev --constraint .venv/lock/users --output-file .venv/lock/all
	@{ echo "# What users install. CUDA's libraries come with a torch that needs them; the file of constraints pins those."; \
		echo '# Made by `make lock`.'; echo '--constraint requirements-cuda.lock'; \
		grep -vE '^(cuda|nvidia|triton)' .venv/lock/users; } > requirements.lock
	@{ echo '# Versions of what a torch with CUDA brings. They install nothing. Made by `make lock`.'; \
		grep -E '^(cuda|nvidia|triton)' .venv/lock/users; } > requirements-cuda.lock
	@{ echo '# What `make test` and `make check` need besides. Made by `make lock`.'; \
		echo '--constraint requirements.lock'; grep -vxFf .venv/lock/users .venv/lock/all; } > requirements-dev.lock

clean: ## remove artifacts and runs, keep .venv
	rm -rf data/artifacts runs
