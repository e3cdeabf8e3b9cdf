#!/bin/sh
# gpu.sh TOOL PROGRAM [FILTER...]: tests on an NVIDIA GPU; TOOL is the built `tenon`, PROGRAM the tests.
# WATCH=memcheck or racecheck runs those of kernels under compute-sanitizer, which finds bad accesses
# and races. Without a GPU, or without what watches, it says so and ends well.
#
# LIMIT is how many seconds it may take (490), TN_TEST_JOBS how many files of tests run at once (3); of what
# is watched, all filters do.
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

# What is tested is what was compiled; a part of it is then tested as it is interpreted.
export TN_COMPILE=wait

if [ -z "$watch" ]; then
    everything=$#
    [ $# -gt 0 ] || set -- gpu/ gpu_same gpu_lm gpu_conv gpu_attention flash/every_form gpu_steady gpu_ends gpu_big splits/large cuda/ \
        product pad_rows custom_ profile memory
    timeout "$limit" "$program" --jobs "${TN_TEST_JOBS:-3}" "$@"
    status=$?
    if [ "$status" = 0 ] && [ "$everything" = 0 ]; then
        echo "test-gpu: interpreted"
        TN_COMPILE=never timeout "$limit" "$program" --jobs "${TN_TEST_JOBS:-3}" gpu/every_op_by_itself \
            gpu/random_graphs gpu/gradients gpu/training_steps
        status=$?
    fi
    if [ "$status" = 0 ] && [ "$everything" = 0 ]; then
        echo "test-gpu: tuned"
        TN_TEST_DEVICE=cuda timeout "$limit" "$program" --jobs "${TN_TEST_JOBS:-3}" tune/ tune_runs/ tune_plan/
        status=$?
    fi
    [ "$status" != 124 ] || echo "test-gpu: not done after $limit s"
    exit "$status"
fi

# Tests that launch many kinds of kernels and do not launch them for long.
[ $# -gt 0 ] || set -- gpu/every_op_by_itself gpu/products_ gpu/attention gpu/random_graphs_agree \
    gpu/gradients_agree gpu/training_steps product_small/small_products_on_the_gpu

sanitizer=
for path in "$(command -v compute-sanitizer)" "${CUDA_PATH:-}/bin/compute-sanitizer" \
    /usr/local/cuda*/bin/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer; do
    if [ -z "$sanitizer" ] && [ -x "$path" ]; then sanitizer=$path; fi
done
[ -n "$sanitizer" ] || skip "compute-sanitizer is not installed; it comes with the CUDA toolkit"

logs=$(mktemp -d) || exit 2
trap 'rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM

# watched NAME FILTER: what is said goes to the log of that name, and at last how it ended. Calls of the
# driver that may fail, and are asked whether they did, are no finding.
watched() {
    log=$logs/$1
    set -- --tool "$watch" --target-processes all --require-cuda-init no --print-limit 5 \
        "$program" --jobs 1 "$2"
    [ "$watch" != memcheck ] || set -- --report-api-errors no "$@"
    TN_TEST_LIMIT="$limit" timeout "$limit" "$sanitizer" "$@" >"$log" 2>&1
    echo "ended with $?" >>"$log"
}

# Who does not see a mistake made on purpose sees nothing.
export TN_TEST_MISTAKE="$watch"
watched mistake gpu_watch
unset TN_TEST_MISTAKE
grep -q '^========= .*\(Invalid __global__ write\|hazard\|Race reported\)' "$logs/mistake" ||
    { tail -n 40 "$logs/mistake"; echo "$name: a mistake made on purpose was not seen"; exit 1; }

# All filters at once: they have the GPU in turn, and what a processor does for each goes on beside; one
# that takes too long leaves the others' results.
export TN_GRAPHS="${TN_GRAPHS:-64}"
count=0
for filter in "$@"; do
    count=$((count + 1))
    watched "$count" "$filter" &
done
wait

# Each process says at its end what was found in it, and what it finds as it goes.
quiet='^========= \(COMPUTE-SANITIZER\|ERROR SUMMARY: 0\|RACECHECK SUMMARY: 0\)'
at=0
bad=0
for filter in "$@"; do
    at=$((at + 1))
    log=$logs/$at
    status=$(sed -n 's/^ended with //p' "$log" | tail -n 1)
    found=$(grep '^=========' "$log" | grep -vc "$quiet")
    echo "$name: $filter"
    grep -v "$quiet" "$log" | grep -v '^ended with' | tail -n 80
    why=
    if [ "$status" = 124 ]; then why="not done after $limit s"
    elif [ "$found" != 0 ]; then why="something was found"
    elif [ "$status" != 0 ]; then why="ended with status $status"
    elif ! grep -q 'ERROR SUMMARY\|RACECHECK SUMMARY' "$log"; then why="nobody watched"
    fi
    [ -z "$why" ] || { bad=1; echo "$name: $filter: $why"; }
done
[ "$bad" = 0 ] || exit 1
echo "$name: nothing found in $count runs"
