#!/bin/sh
# run.sh BUILD [JOBS]: builds the Python package in a build folder and runs its tests. Without Python 3.11 or its headers it
# says so and succeeds. TN_PYTHON names another python3, for example of a virtual environment with NumPy and PyTorch.
set -u
cd "$(dirname "$0")/../.."
build=$1 jobs=${2:-2}
python=${TN_PYTHON:-python3}

skip() {
    echo "skip python: $1"
    exit 0
}

command -v "$python" >/dev/null || skip "there is no python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || skip "$("$python" --version 2>&1) is older than 3.11"
cmake --build "$build" --target help >"$build/python.log"
grep -q tenon_python "$build/python.log" || skip "Python.h is missing; on Debian or Ubuntu: apt-get install python3-dev"
MAKEFLAGS='' cmake --build "$build" --parallel "$jobs" --target tenon_python >"$build/python.log" 2>&1 || { cat "$build/python.log"; exit 1; }
PYTHONPATH="$build/python" TN_BUILD="$build" exec "$python" python/test/main.py
