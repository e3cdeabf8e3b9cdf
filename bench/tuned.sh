#!/bin/sh
# Builds, and measures on the GPU of this machine what tuning gains beside the rules: bench/results/tuned.md gets a
# section for each part. `make bench-tuned` does all parts; one takes 3 to 9 minutes on an H200.
#
#     bench/tuned.sh [PART...]
#
# ops: single ops, and steps of MLPs; networks: convolution networks; lm: training of language models; budgets: two
# networks with 20 and with 200 seconds. OUT is where the page goes (bench/results), BUILD where to build (build/gpu).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$root/build/gpu}
page=${OUT:-$root/bench/results}/tuned.md
mkdir -p "$build" "$(dirname "$page")"
cmake -S "$root" -B "$build" -DCMAKE_C_COMPILER="${CC:-gcc}" >/dev/null
cmake --build "$build" --parallel "$(nproc)" --target tenon-bench >"$build/log" 2>&1 || { tail -40 "$build/log"; exit 1; }
if ! "$build/tenon-bench" --child gpu; then exit 1; fi

# Takes turns by the rules and tuned; of networks rates are what counts, not the times of first steps.
compare() {
    python3 "$root/bench/alternate.py" --write "$page" "$@" 2>"$build/tuned.log" || { tail -5 "$build/tuned.log"; exit 1; }
}
[ $# -gt 0 ] || set -- ops networks lm budgets
for part; do
    case $part in
    ops) compare --tune 20 --rounds 3 "$build/tenon-bench" gpu_ops gpu_steps ;;
    networks) compare --tune 20 --rounds 2 --count /s "$build/tenon-bench" gpu_conv ;;
    lm) TN_BENCH_ONLY='GPT-2 124M, B 32|Llama 1.1B, B 4' compare --tune 20 --rounds 2 --count /s "$build/tenon-bench" gpu_lm ;;
    budgets) TN_BENCH_ONLY='ResNet-18|GPT-2 124M, B 4' compare --tune 20,200 --rounds 2 --count /s "$build/tenon-bench" gpu_conv gpu_lm ;;
    *) echo 'usage: bench/tuned.sh [ops] [networks] [lm] [budgets]' >&2; exit 2 ;;
    esac
done
