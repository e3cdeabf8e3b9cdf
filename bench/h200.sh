#!/bin/sh
# Builds, measures on the GPU of this machine beside PyTorch and JAX, and writes bench/results/h200.md
# and h200.json. Run it from anywhere in the tree; `make bench-gpu` does. Without a GPU it fails.
#
#     bench/h200.sh [COMMIT]
#
# BUILD is where to build (build/gpu), OUT where the results go (bench/results). PEERS names a folder with
# torch.json and jax.json of an earlier run, to be used again. LIMIT is how many seconds all may take.
# QUICK=1 only tries whether all of it works.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$root/build/gpu}
out=${OUT:-$root/bench/results}
limit=${LIMIT:-520}
commit=${1:-$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)}
start=$(date +%s)
files=$build/files
peers=${PEERS:-$build/peers}
rm -rf "$files"
mkdir -p "$build" "$out" "$files" "$peers"

# Seconds that are left, at least one.
left() {
    rest=$((limit - $(date +%s) + start))
    [ "$rest" -gt 0 ] || rest=1
    echo "$rest"
}
say() { echo "h200.sh: $1, $(left) s left"; }

cmake -S "$root" -B "$build" -DCMAKE_C_COMPILER="${CC:-gcc}" >/dev/null
cmake --build "$build" --parallel "$(nproc)" --target tenon-bench >"$build/log" 2>&1 || { tail -40 "$build/log"; exit 1; }

say 'built'
if ! "$build/tenon-bench" --child gpu; then exit 1; fi
export TN_CACHE_DIR="${TN_CACHE_DIR:-$build/cache}" TN_BENCH_FILES="$files"
timeout "$(($(left) * 2 / 3 + 1))" "$build/tenon-bench" ${QUICK:+--quick} --json gpu_ops gpu_steps gpu_gpt2 gpu_images \
    >"$build/ours.json" 2>"$build/notes" || say "tenon-bench ended with $?"
cat "$build/notes"
say 'Tenon is measured'

if [ -z "${PEERS:-}" ]; then
    rm -f "$peers"/*.json
    export TORCHINDUCTOR_CACHE_DIR="$build/inductor" XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONDONTWRITEBYTECODE=1
    timeout 60 python3 "$root/bench/gpu_peers.py" jax "$peers/jax.json" 2>"$build/jax.log" ||
        { say "JAX ended with $?"; tail -3 "$build/jax.log"; }
    soft=$(($(left) - 60))
    timeout "$(left)" python3 "$root/bench/gpu_peers.py" torch "$peers/torch.json" "$files" "$soft" ||
        say "PyTorch ended with $?"
    say 'peers are measured'
fi
python3 "$root/bench/gpu_table.py" "$build/ours.json" "$build/notes" "$files" "$peers/torch.json" "$peers/jax.json" \
    "$out/h200" "$commit"
[ "$out" != "$root/bench/results" ] || python3 "$root/bench/readme_figures.py"
rm -rf "$files"
