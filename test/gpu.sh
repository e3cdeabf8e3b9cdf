#!/bin/sh
# gpu.sh TOOL PROGRAM [FILTER...]: tests on an NVIDIA GPU; TOOL is the built `tenon`, PROGRAM the tests.
# WATCH=memcheck or racecheck runs those of kernels under compute-sanitizer, which finds bad accesses
# and races. Without a GPU, or without what watches, it says so and ends well.
#
# LIMIT is how many seconds it may take (490), TN_TEST_JOBS how many files of tests run at once (3); what
# is watched runs one by one.
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
    [ $# -gt 0 ] || set -- gpu/ gpu_same gpu_conv gpu_steady gpu_ends gpu_big splits/large cuda/ product custom_ profile memory
    timeout "$limit" "$program" --jobs "${TN_TEST_JOBS:-3}" "$@"
    status=$?
    [ "$status" != 124 ] || echo "test-gpu: not done after $limit s"
    exit "$status"
fi

# Tests that launch many kinds of kernels and do not launch them for long.
[ $# -gt 0 ] || set -- gpu/every_op_by_itself gpu/products_ gpu/attention gpu/random_graphs_agree \
    gpu/gradients_agree gpu/training_steps product_small/small_products_on_the_gpu_are_as_good

sanitizer=
for path in "$(command -v compute-sanitizer)" "${CUDA_PATH:-}/bin/compute-sanitizer" \
    /usr/local/cuda*/bin/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer; do
    if [ -z "$sanitizer" ] && [ -x "$path" ]; then sanitizer=$path; fi
done
[ -n "$sanitizer" ] || skip "compute-sanitizer is not installed; it comes with the CUDA toolkit"

log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

# Calls of the driver that may fail, and are asked whether they did, are no finding.
watched() {
    set -- --tool "$watch" --target-processes all --require-cuda-init no --print-limit 5 \
        "$program" --jobs 1 "$@"
    [ "$watch" != memcheck ] || set -- --report-api-errors no "$@"
    TN_TEST_LIMIT="$limit" timeout "$limit" "$sanitizer" "$@" >"$log" 2>&1
}

# Who does not see a mistake made on purpose sees nothing.
export TN_TEST_MISTAKE="$watch"
watched gpu_watch
unset TN_TEST_MISTAKE
grep -q '^========= .*\(Invalid __global__ write\|hazard\|Race reported\)' "$log" ||
    { tail -n 40 "$log"; echo "$name: a mistake made on purpose was not seen"; exit 1; }

export TN_GRAPHS="${TN_GRAPHS:-64}"
watched "$@"
status=$?

# Each process says at its end what was found in it, and what it finds as it goes.
quiet='^========= \(COMPUTE-SANITIZER\|ERROR SUMMARY: 0\|RACECHECK SUMMARY: 0\)'
processes=$(grep -c 'ERROR SUMMARY\|RACECHECK SUMMARY' "$log")
found=$(grep '^=========' "$log" | grep -vc "$quiet")
grep -v "$quiet" "$log" | tail -n 80
[ "$status" != 124 ] || { echo "$name: not done after $limit s"; exit 1; }
[ "$found" = 0 ] || { echo "$name: something was found"; exit 1; }
[ "$status" = 0 ] || { echo "$name: the tests ended with status $status"; exit "$status"; }
echo "$name: nothing found in $processes processes"
