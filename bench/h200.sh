#!/bin/sh
# Builds, runs the slice on the GPU of this machine beside PyTorch, and writes
# bench/results/h200-slice.md and .json. Run it from anywhere in the tree.
#
#     bench/h200.sh [COMMIT]
#
# BUILD is where to build (build/gpu), OUT where the results go (bench/results). PEERS names a file of
# PyTorch's times from an earlier run, to be used again.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$root/build/gpu}
out=${OUT:-$root/bench/results}
commit=${1:-$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)}
mkdir -p "$build" "$out"

cmake -S "$root" -B "$build" -DCMAKE_C_COMPILER=gcc >/dev/null
cmake --build "$build" --parallel --target tenon-bench >"$build/log" 2>&1 || { tail -40 "$build/log"; exit 1; }

"$build/tenon-bench" --json slice slice_raw >"$build/ours.json"
if [ -z "${PEERS:-}" ]; then
    PEERS=$out/h200-peers.json
    python3 "$root/bench/slice_peers.py" measure "$PEERS"
fi
python3 "$root/bench/slice_peers.py" table "$build/ours.json" "$PEERS" "$out/h200-slice" "$commit"
