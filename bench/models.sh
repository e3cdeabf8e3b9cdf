#!/bin/sh
# Builds, measures models on the GPU of this machine beside PyTorch, and writes bench/results/KIND.md and KIND.json;
# `make bench-lm` and `make bench-conv` do. Tenon is measured with the cuDNN that PyTorch uses.
#
#     bench/models.sh lm|conv [COMMIT]
#
# BUILD is where to build (build/gpu), OUT where the results go (bench/results), PEERS a KIND_peers.json of this
# machine whose figures are used again, LIMIT how many seconds all may take, PARTS what is asked of PyTorch (see KIND_peers.py),
# SYSTEM=1 (for lm: SYSTEM= not) that Tenon is measured with the system's cuDNN too, PEERS_AHEAD=1 that
# `KIND_peers.py ahead` has been run. QUICK=1 only tries whether all of it works.
set -eu
case ${1:-} in
lm) limit=${LIMIT:-560} system=${SYSTEM-1} reserve=60 ;;  # seconds that PyTorch leaves
conv) limit=${LIMIT:-330} system=${SYSTEM-} reserve=15 ;;
*) echo 'usage: bench/models.sh lm|conv [COMMIT]' >&2; exit 2 ;;
esac
kind=$1
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$root/build/gpu}
out=${OUT:-$root/bench/results}
commit=${2:-$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)}
start=$(date +%s)
files=$build/${kind}_files
peers=$build/${kind}_peers.json
rm -rf "$files"
mkdir -p "$build" "$out" "$files"
[ -z "${PEERS:-}" ] || cp "$PEERS" "$files/peers.json"
rm -f "$peers"
[ -z "${PEERS:-}" ] || mv "$files/peers.json" "$peers"

left() {
    rest=$((limit - $(date +%s) + start))
    [ "$rest" -gt 0 ] || rest=1
    echo "$rest"
}
say() { echo "models.sh $kind: $1, $(left) s left"; }

# What PyTorch compiles takes one core each, so all of it is compiled while Tenon is built.
export PYTHONDONTWRITEBYTECODE=1
[ -n "${PEERS:-}${QUICK:-}${PEERS_AHEAD:-}" ] || {
    timeout "$((limit / 2))" python3 "$root/bench/${kind}_peers.py" ahead &
    ahead=$!
    export PEERS_AHEAD=1
}
cmake -S "$root" -B "$build" -DCMAKE_C_COMPILER="${CC:-gcc}" >/dev/null
cmake --build "$build" --parallel "$(nproc)" --target tenon-bench >"$build/log" 2>&1 || { tail -40 "$build/log"; exit 1; }
say 'built'
[ -z "${ahead:-}" ] || wait "$ahead" || true
say 'PyTorch has compiled'
if ! "$build/tenon-bench" --child gpu; then exit 1; fi
export TN_CACHE_DIR="$build/${kind}_cache"
rm -rf "$TN_CACHE_DIR"
wheel=$(python3 -c 'import nvidia.cudnn, os; print(os.path.join(list(nvidia.cudnn.__path__)[0], "lib", "libcudnn.so.9"))' 2>/dev/null || true)
[ -n "$wheel" ] && [ -f "$wheel" ] || wheel=
TN_BENCH_FILES="$files" TN_CUDNN="$wheel" timeout "$(($(left) * 6 / 10 + 1))" "$build/tenon-bench" ${QUICK:+--quick} --json "gpu_$kind" \
    >"$build/${kind}_ours.json" 2>"$build/${kind}_ours.notes" || say "tenon-bench ended with $?"
cat "$build/${kind}_ours.notes"
say 'Tenon is measured'
# What ends by itself says what it had no time for.
rest=$(left)
# shellcheck disable=SC2086
timeout "$rest" python3 "$root/bench/${kind}_peers.py" "$peers" "$((rest - reserve))" "$files" ${PARTS:-} ||
    say "PyTorch ended with $?"
say 'PyTorch is measured'
set --
if [ -n "$system" ]; then
    timeout "$(left)" env -u TN_CUDNN "$build/tenon-bench" ${QUICK:+--quick} --json "gpu_$kind" >"$build/${kind}_system.json" ||
        say "the second run ended with $?"
    set -- "system's cuDNN" "$build/${kind}_system.json"
fi
python3 "$root/bench/models_table.py" "$kind" "$peers" "$files" "$out/$kind" "$commit" "$build/${kind}_ours.json" "$@"
[ "$out" != "$root/bench/results" ] || python3 "$root/bench/readme_figures.py"
rm -rf "$files"
