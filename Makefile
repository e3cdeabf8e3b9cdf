# The short door to the CMake build; `make help` lists what it does.
#
# A plain build lives in build/. Another compiler, sanitizers and TN_DEBUG=1 get folders of their
# own below it (build/asan, build/clang-debug, ...), so that no build disturbs another. CMake takes
# CC from the environment when a folder is new.

JOBS         ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX       ?= /usr/local
T            ?=
ARGS         ?=
FUZZ_SECONDS ?= 60
PROGRAMS     ?= 1000
SEED         ?=
DEVICE       ?= cpu
WITHOUT      ?=
PEER_JOBS    ?= 1
WATCH        ?= memcheck racecheck

compiler := $(if $(filter command%,$(origin CC)),$(filter-out cc gcc,$(notdir $(CC))))
sanitize := $(if $(findstring address,$(SANITIZE)),asan,$(if $(findstring thread,$(SANITIZE)),tsan,\
            $(if $(SANITIZE),ubsan)))
debug    := $(if $(filter 1 ON,$(TN_DEBUG)),debug)
empty    :=
variant  := $(subst $(empty) $(empty),-,$(strip $(compiler) $(sanitize) $(debug)))
B        := $(patsubst %/,%,build/$(variant))

folders := $(wildcard src include models cli examples test bench tools python)
sources  = $(shell find $(folders) -name '*.[ch]')
# Each tool is asked for with the sentence that says how to get it.
need     = command -v $(1) >/dev/null || { echo "tenon: $(1) is missing; on Debian or Ubuntu: apt-get install $(2)"; exit 1; }
# The outer make's flags and job server are of no use to CMake's.
build    = MAKEFLAGS=--no-print-directory MAKELEVEL= cmake --build $(B) --parallel $(JOBS)

all: configure
	@$(build)

configure:
	@$(call need,cmake,cmake)
	@$(call need,$(firstword $(CC)),$(if $(findstring clang,$(CC)),$(firstword $(CC)),gcc libc6-dev))
	@cmake -S . -B $(B) --log-level=WARNING -Wno-dev \
	    -DSANITIZE='$(SANITIZE)' -DTN_DEBUG=$(if $(debug),ON,OFF) -DTN_WERROR=$(or $(TN_WERROR),OFF) >/dev/null

test: setup-test
	@$(MAKE) --no-print-directory configure
	@$(build) --target all examples tenon-tests tenon-bench
	@$(B)/tenon-tests $(T)
	@$(if $(T),,$(MAKE) --no-print-directory test-python)

# The Python package, where Python 3.11 and its headers are; otherwise it says so.
python: configure
	@$(build) --target tenon_python
test-python: configure
	@python/test/run.sh $(B) '$(JOBS)'

# The tests worth running after each edit: those of test/check.list, which says why each is there.
checked = $(shell sed -n 's/^\([a-z][a-z0-9_\/]*\).*/\1/p' test/check.list)
check: configure
	@$(build) --target all tenon-tests
	@TN_GRAPHS=500 $(B)/tenon-tests $(checked)

# Every op in every dtype and layout on opencl, every kernel of the tests compiled for an H200, and a
# million random graphs.
test-long: setup-test
	@$(MAKE) --no-print-directory configure
	@$(build) --target all examples tenon-tests tenon-bench
	@TN_TEST_LONG=1 TN_TEST_LIMIT=20000 $(B)/tenon-tests
	@TN_GRAPHS=1000000 TN_TEST_LIMIT=20000 $(B)/tenon-tests graphs_op_by_op_agree graphs_fused_and_interpreted

# The kernels that tests run on OpenCL, on a device that watches memory.
test-oclgrind: setup-test
	@$(MAKE) --no-print-directory configure
	@$(build) --target tenon-tests
	@test/oclgrind.sh $(B)/tenon-tests $(T)

# What runs on an NVIDIA GPU; without one it says so.
test-gpu: configure
	@$(build) --target all tenon-tests
	@test/gpu.sh $(B)/tenon $(B)/tenon-tests $(T)

# Kernels under compute-sanitizer, each of its tools for at most 9 minutes.
sanitize-gpu: configure
	@$(build) --target all tenon-tests
	@for watch in $(WATCH); do WATCH=$$watch test/gpu.sh $(B)/tenon $(B)/tenon-tests $(T) || exit 1; done

# Random programs in Tenon and in PyTorch, where a Python has it.
test-peer: configure
	@$(build) --target tenon-peer
	@$(B)/tenon-peer '$(PROGRAMS)' '$(SEED)' '$(DEVICE)' '$(WITHOUT)' '$(PEER_JOBS)'

# Logits and gradients of language models beside transformers, by TN_PYTHON; MODELS names some of them.
test-transformers: configure
	@$(build) --target tenon-transformers
	@$(or $(TN_PYTHON),python3) test/transformers/compare.py $(B)/tenon-transformers '$(DEVICE)' $(MODELS)

# The cases of the onnx package, and others that ONNX Runtime judges; TN_PYTHON has both.
test-onnx: configure
	@$(build) --target tenon-onnx
	@$(or $(TN_PYTHON),python3) test/onnx/cases.py $(B)/onnx
	@TN_DEVICE=$${TN_DEVICE:-$(DEVICE)} $(B)/tenon-onnx --export $(B)/exported
	@$(or $(TN_PYTHON),python3) test/onnx/check_export.py $(B)/exported
	@TN_DEVICE=$${TN_DEVICE:-$(DEVICE)} $(B)/tenon-onnx $(B)/onnx $(T)

# Event files of `tenon train`, as PyPI's tensorboard reads them, by TN_PYTHON; without it, it says so.
test-tensorboard: configure
	@$(build)
	@$(or $(TN_PYTHON),python3) test/tensorboard/check.py $(B)/tenon $(B)/tensorboard

demo: setup-demo
	@$(MAKE) --no-print-directory all
	@$(B)/tenon demo --force --save $(B)/lenet.safetensors --report $(B)/demo.html $(ARGS)

fuzz:
	@$(MAKE) --no-print-directory fuzz-all SANITIZE=address,undefined

fuzz-all: configure
	@$(build) --target tenon-fuzz
	@cd $(B) && for target in $$(./tenon-fuzz --list); do ./tenon-fuzz $$target $(FUZZ_SECONDS) || exit 1; done

bench: configure
	@$(build) --target all tenon-bench
	@$(B)/tenon-bench $(ARGS)

bench-lm bench-conv: bench-%:
	@bench/models.sh $*

# What tuning gains on a GPU: PARTS="ops networks lm budgets".
bench-tuned:
	@$(call need,cmake,cmake)
	@bench/tuned.sh $(PARTS)

bench-gpu:
	@$(call need,cmake,cmake)
	@bench/h200.sh $(COMMIT)

setup-test setup-demo:
	@tools/setup.sh $(@:setup-%=%)

install: all
	@DESTDIR='$(DESTDIR)' cmake --install $(B) --prefix '$(PREFIX)'

docs: configure
	@$(build) --target tenon-tests
	@$(B)/tenon-tests --ops > $(B)/ops.md && cp $(B)/ops.md docs/ops.md

# The kernel texts that test_golden.c compares and the worked example of docs/design.md, written anew.
golden: configure
	@$(build) --target tenon-tests
	@TN_GOLDEN=1 $(B)/tenon-tests golden/ worked/

# The call forms of the public functions, from their declarations.
sites:
	@tools/sites.sh

format:
	@$(call need,clang-format,clang-format)
	@clang-format -i $(sources)

format-check:
	@$(call need,clang-format,clang-format)
	@clang-format --dry-run -Werror $(sources)

clean:
	@rm -rf build

help:
	@echo 'make                     build/libtenon.so, build/libtenon.a and the tool build/tenon'
	@echo 'make check               the tests worth running after each edit (test/check.list); under 90 seconds on 2 cores'
	@echo 'make test [T=name]       build and run the tests, or those whose file or name contains T'
	@echo '     SANITIZE=address,undefined | thread    with sanitizers'
	@echo '     TN_DEBUG=1  CC=clang                   with internal checks, with another compiler'
	@echo 'make test-long           full products on opencl, all kernels for an H200, a million random graphs; hours'
	@echo 'make test-oclgrind       kernels on oclgrind: no bad access, no race; 20 minutes'
	@echo 'make test-gpu            the tests of the cuda device, on an NVIDIA GPU; 9 minutes'
	@echo 'make sanitize-gpu        kernels on a GPU under compute-sanitizer, WATCH=memcheck or racecheck alone; 9 minutes each'
	@echo 'make python              the Python package in build/python; pip install . builds a wheel'
	@echo 'make test-python         its tests'
	@echo 'make test-peer           random programs here and in PyTorch: PROGRAMS=1000 SEED=... DEVICE=cpu | opencl | cuda WITHOUT="op op" PEER_JOBS=1'
	@echo 'make test-transformers   language models here and in Hugging Face transformers: MODELS="tinyllama smollm" DEVICE=cpu | opencl | cuda'
	@echo 'make test-onnx [T=name]  the cases of the onnx package and of ONNX Runtime, by operator: DEVICE=cpu | opencl | cuda'
	@echo 'make test-tensorboard    event files of tenon train, as PyPI tensorboard reads them'
	@echo 'make fuzz                feed damaged files to every reader, FUZZ_SECONDS=60 each, with sanitizers'
	@echo 'make demo                train a small model and show what it sees, also as a page: build/demo.html'
	@echo 'make bench [ARGS=...]    measure; ARGS=--list names the cases, --quick only tries them'
	@echo 'make bench-lm            language models on a GPU beside PyTorch into bench/results/lm.md; 9 minutes'
	@echo 'make bench-conv          convolution networks on a GPU beside PyTorch into bench/results/conv.md; 5 minutes'
	@echo 'make bench-tuned         what tuning gains on a GPU beside the rules, into bench/results/tuned.md; 3 to 9 minutes for each of PARTS="ops networks lm budgets"'
	@echo 'make bench-gpu           measure on a GPU beside PyTorch into bench/results/h200.md; 9 minutes'
	@echo 'make install PREFIX=/usr/local [DESTDIR=...]'
	@echo 'make docs                write docs/ops.md from the op table'
	@echo 'make golden              write the kernel texts of test/golden and docs/design.md, after an emitter was changed'
	@echo 'make sites               write the call forms of the public functions from their declarations'
	@echo 'make format              clang-format every source; format-check only looks'
	@echo 'make clean               remove build/'
	@echo
	@echo 'test and demo say what is missing and install that alone, with apt-get, as root or by a sudo that asks'
	@echo 'for no password. Otherwise, or with TN_NO_INSTALL=1, they go on without what is optional.'

.PHONY: all configure check test test-long test-oclgrind test-gpu sanitize-gpu test-peer test-transformers test-onnx test-tensorboard python test-python fuzz fuzz-all demo bench bench-gpu bench-lm bench-conv bench-tuned setup-test setup-demo install docs golden sites format format-check clean help
