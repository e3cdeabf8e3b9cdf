#!/bin/sh
# setup.sh demo|test: installs what the demo or the tests want and this machine lacks, on Debian
# and Ubuntu, where that is allowed (root, or sudo that asks nothing). Everything here is optional
# to Tenon, so whatever happens it says one line, goes on and exits with 0.
#
# TN_NO_INSTALL=1 installs nothing.
set -u

what=${1:-}
case $what in
demo | test) ;;
*) echo "usage: setup.sh demo|test" >&2; exit 2 ;;
esac

limit=600   # seconds for all of it
missing=

has_file() {
    for file in "$@"; do
        [ -e "$file" ] && return 0
    done
    return 1
}

has_library() {
    has_file /usr/lib/"$1" /usr/lib64/"$1" /usr/local/lib/"$1" /usr/lib/*/"$1" /usr/lib/*/*/"$1" && return 0
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q "[[:space:]]$1 "
}

has_command() {
    command -v "$1" >/dev/null 2>&1
}

# want PACKAGE TEST...: the package is missing when the test fails.
want() {
    package=$1
    shift
    "$@" || missing="$missing $package"
}

want build-essential has_command cc
want build-essential has_command make
want cmake has_command cmake
want libopenblas0-pthread has_library libopenblas.so.0
if [ "$what" = test ]; then
    want ocl-icd-libopencl1 has_library libOpenCL.so.1
    want pocl-opencl-icd has_file /etc/OpenCL/vendors/pocl*.icd
    want pkg-config has_command pkg-config
    want clang-format has_command clang-format
    want clang has_command clang
    want valgrind has_command valgrind
fi
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ' | sed 's/ *$//; s/^ *//')
[ -z "$missing" ] && exit 0

without() {
    echo "setup: going on without $missing ($1)"
    exit 0
}

[ "${TN_NO_INSTALL:-0}" = 1 ] && without "TN_NO_INSTALL=1"
has_command apt-get || without "no apt-get here"
as_root=
if [ "$(id -u)" != 0 ]; then
    as_root="sudo -n"
    sudo -n true 2>/dev/null || without "installing needs root"
fi

# The time limit covers all calls together.
end=$(($(date +%s) + limit))
apt() {
    left=$((end - $(date +%s)))
    [ "$left" -gt 0 ] || return 1
    $as_root env DEBIAN_FRONTEND=noninteractive timeout "$left" apt-get -qq -y \
        -o DPkg::Lock::Timeout=60 -o Acquire::Retries=1 -o Acquire::http::Timeout=20 \
        "$@" </dev/null >/dev/null 2>&1
}

echo "setup: installing $missing (TN_NO_INSTALL=1 turns this off)"
apt install --no-install-recommends $missing && exit 0
apt update || without "the package lists cannot be fetched"
apt install --no-install-recommends $missing && exit 0

# One package that cannot be had must not cost the others.
failed=
for package in $missing; do
    apt install --no-install-recommends "$package" || failed="$failed $package"
done
missing=${failed# }
[ -z "$missing" ] || without "apt-get could not install it"
