#!/bin/sh
# gpu.sh TOOL PROGRAM [FILTER...]: tests on an NVIDIA GPU; TOOL is the built `tenon`, PROGRAM the tests.
# WATCH=memcheck or racecheck runs those of kernels under compute-sanitizer, which finds bad accesses
# and races. Without a GPU, or without what watches, it says so and ends well.
#
# LIMIT is how many seconds it may take (490).
set -u

tool=${1:?usage: gpu.sh TOOL PROGRAM [FILTER...]}
program=${2:?usage: gpu.sh TOOL PROGRAM [FILTER...]}
shift 2
limit=${LIMIT:-490}
watch=${WATCH:-}
name=${watch:+sanitize-gpu $watch}
name=${name:-test-gpu}

skip() {
    echo "SKIP $name: $1"
    exit 0
}

reason=$("$tool" doctor | sed -n 's/^  cuda  *missing  *//p' | head -n 1)
[ -z "$reason" ] || skip "$reason"

if [ -z "$watch" ]; then
    [ $# -gt 0 ] || set -- gpu/ cuda/ product custom_cuda profile memory
    timeout "$limit" "$program" "$@"
    status=$?
    [ "$status" != 124 ] || echo "test-gpu: not done after $limit s"
    exit "$status"
fi

# Tests that launch many kinds of kernels and do not launch them for long.
[ $# -gt 0 ] || set -- gpu/every_op_by_itself gpu/products_sorts gpu/attention gpu/random_graphs_agree \
    gpu/gradients_agree gpu/training_steps

sanitizer=
for path in "$(command -v compute-sanitizer)" "${CUDA_PATH:-}/bin/compute-sanitizer" \
    /usr/local/cuda*/bin/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer; do
    if [ -z "$sanitizer" ] && [ -x "$path" ]; then sanitizer=$path; fi
done
[ -n "$sanitizer" ] || skip "compute-sanitizer is not installed; it comes with the CUDA toolkit"

# Calls of the driver that may fail, and are asked whether they did, are no finding.
set -- --tool "$watch" --target-processes all --require-cuda-init no --print-limit 5 "$program" "$@"
[ "$watch" != memcheck ] || set -- --report-api-errors no "$@"

log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM
TN_GRAPHS=${TN_GRAPHS:-64} TN_TEST_LIMIT="$limit" timeout "$limit" "$sanitizer" "$@" >"$log" 2>&1
status=$?

# Each process that used the GPU says at its end what was found in it.
watched=$(grep -c 'ERROR SUMMARY\|RACECHECK SUMMARY' "$log")
found=$(grep -c 'ERROR SUMMARY: [1-9]\|RACECHECK SUMMARY: [1-9]' "$log")
grep -v '^========= \(COMPUTE-SANITIZER\|ERROR SUMMARY: 0\|RACECHECK SUMMARY: 0\)' "$log" | tail -n 80
[ "$status" != 124 ] || { echo "$name: not done after $limit s"; exit 1; }
[ "$watched" -gt 0 ] || { echo "$name: no process was watched"; exit 1; }
[ "$found" = 0 ] || { echo "$name: something was found in $found of $watched processes"; exit 1; }
[ "$status" = 0 ] || { echo "$name: the tests ended with status $status"; exit "$status"; }
echo "$name: nothing found in $watched processes"
