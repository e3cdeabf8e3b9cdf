#!/bin/sh
# Builds, measures language models on the GPU of this machine beside PyTorch, and writes bench/results/lm.md and
# lm.json; `make bench-lm` does. Tenon is measured with the cuDNN that PyTorch uses and with the system's.
#
#     bench/lm.sh [COMMIT]
#
# BUILD is where to build (build/gpu), OUT where the results go (bench/results), PEERS an lm_peers.json of this
# machine to be used again, LIMIT how many seconds all may take, PARTS what is asked of PyTorch (training
# generation attention eager). QUICK=1 only tries whether all of it works.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$root/build/gpu}
out=${OUT:-$root/bench/results}
limit=${LIMIT:-560}
commit=${1:-$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)}
start=$(date +%s)
files=$build/lm_files
peers=${PEERS:-$build/lm_peers.json}
rm -rf "$files"
mkdir -p "$build" "$out" "$files"

left() {
    rest=$((limit - $(date +%s) + start))
    [ "$rest" -gt 0 ] || rest=1
    echo "$rest"
}
say() { echo "lm.sh: $1, $(left) s left"; }

# What PyTorch compiles takes one core each, so all of it is compiled while Tenon is built.
[ -n "${PEERS:-}" ] || [ -n "${QUICK:-}" ] || { python3 "$root/bench/lm_peers.py" ahead & ahead=$!; export LM_AHEAD=1; }
cmake -S "$root" -B "$build" -DCMAKE_C_COMPILER="${CC:-gcc}" >/dev/null
cmake --build "$build" --parallel "$(nproc)" --target tenon-bench >"$build/log" 2>&1 || { tail -40 "$build/log"; exit 1; }
say 'built'
[ -z "${ahead:-}" ] || wait "$ahead" || true
say 'PyTorch has compiled'
if ! "$build/tenon-bench" --child gpu; then exit 1; fi
export TN_CACHE_DIR="$build/lm_cache" PYTHONDONTWRITEBYTECODE=1
rm -rf "$TN_CACHE_DIR"
wheel=$(python3 -c 'import nvidia.cudnn, os; print(os.path.join(list(nvidia.cudnn.__path__)[0], "lib", "libcudnn.so.9"))' 2>/dev/null || true)
[ -n "$wheel" ] && [ -f "$wheel" ] || wheel=
TN_BENCH_FILES="$files" TN_CUDNN="$wheel" timeout "$(($(left) / 2 + 1))" "$build/tenon-bench" ${QUICK:+--quick} --json gpu_lm \
    >"$build/lm_ours.json" || say "tenon-bench ended with $?"
say 'Tenon is measured'
if [ -z "${PEERS:-}" ]; then
    rm -f "$peers"
    # shellcheck disable=SC2086
    timeout "$(left)" python3 "$root/bench/lm_peers.py" "$peers" "$(($(left) - 60))" ${PARTS:-} || say "PyTorch ended with $?"
    say 'PyTorch is measured'
fi
timeout "$(left)" env -u TN_CUDNN "$build/tenon-bench" ${QUICK:+--quick} --json gpu_lm >"$build/lm_system.json" ||
    say "the second run ended with $?"
python3 "$root/bench/lm_table.py" "$peers" "$files" "$out/lm" "$commit" "$build/lm_ours.json" "system's cuDNN" \
    "$build/lm_system.json"
rm -rf "$files"
