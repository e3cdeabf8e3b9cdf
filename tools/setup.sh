#!/bin/sh
# setup.sh demo|test: finds what the demo or the tests use and this machine lacks, and installs that and
# nothing else, on Debian and Ubuntu, as root or with a sudo that asks for no password. It prints at most
# one line before it installs, and one more if that fails.
#
# A C compiler, make and cmake are required: if one is missing and cannot be installed, the line names it
# and the script exits with 1. All else is optional: the script goes on without it and exits with 0, and
# tests that need it skip and say so.
#
#   TN_NO_INSTALL=1   installs nothing; so does any value but 0
#   CC                the compiler that is required (cc)
#   TN_SETUP_ROOT     the folder that stands for / where files are looked up, for the script's own test
set -u

what=${1:-}
case $what in
demo | test) ;;
*) echo "usage: setup.sh demo|test" >&2; exit 2 ;;
esac

limit=600   # seconds for all calls of apt-get together: a slow mirror must not stop a demo
root=${TN_SETUP_ROOT:-}
compile=${CC:-cc}       # may be several words: ccache gcc, gcc -m32
cc=${compile%% *}
case $cc in
*ccache | *distcc) cc=${compile#* } cc=${cc%% *} ;;
esac

# ---- what is missing

has_file() {
    for file in "$@"; do
        [ -e "$file" ] && return 0
    done
    return 1
}

has_library() {
    has_file "$root"/usr/lib/"$1" "$root"/usr/lib64/"$1" "$root"/usr/local/lib/"$1" \
        "$root"/usr/lib/*/"$1" "$root"/usr/lib/*/*/"$1" && return 0
    [ -z "$root" ] && PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q "[[:space:]]$1 "
}

has_command() {
    command -v "$1" >/dev/null 2>&1
}

has_numpy() {
    has_file "$root"/usr/lib/python3/dist-packages/numpy || { [ -z "$root" ] && python3 -c 'import numpy' 2>/dev/null; }
}

# A compiler without the headers of libc compiles nothing.
compiles() {
    # shellcheck disable=SC2086 # the words of CC are words here too
    has_command "$cc" && echo '#include <stdio.h>' | $compile -x c -fsyntax-only - 2>/dev/null
}

# look NEED NAME PACKAGES TEST...: where the test fails, NAME is missing and PACKAGES have it.
look() {
    need=$1 name=$2 packages=$3
    shift 3
    "$@" && return
    all_names="$all_names, $name" all_packages="$all_packages $packages"
    [ "$need" = optional ] || required="$required, $name" required_packages="$required_packages $packages"
}

look_for_all() {
    all_names='' all_packages='' required='' required_packages=''
    case $cc in
    clang*) look required "$cc" "$cc" compiles ;;
    cc | gcc) look required "a C compiler" "gcc libc6-dev" compiles ;;
    *) look required "$cc" "$cc libc6-dev" compiles ;;
    esac
    look required make make has_command make
    look required cmake cmake has_command cmake
    look optional OpenBLAS libopenblas0-pthread has_library libopenblas.so.0
    if [ "$what" = test ]; then
        look optional "an OpenCL loader" ocl-icd-libopencl1 has_library libOpenCL.so.1
        look optional PoCL pocl-opencl-icd has_file "$root"/etc/OpenCL/vendors/pocl*.icd
        look optional g++ g++ has_command g++
        look optional clang clang has_command clang
        look optional clang-format clang-format has_command clang-format
        look optional pkg-config pkg-config has_command pkg-config
        look optional python3 python3 has_command python3
        look optional "Python's headers" python3-dev has_file "$root"/usr/include/python3*/Python.h "$root"/usr/local/include/python3*/Python.h
        look optional NumPy python3-numpy has_numpy
        look optional valgrind valgrind has_command valgrind
        look optional MPI openmpi-bin has_command mpiexec
        look optional libturbojpeg libturbojpeg0 has_library libturbojpeg.so.0
        look optional libpng libpng16-16 has_library libpng16.so.16
    fi
    all_names=${all_names#, } all_packages=${all_packages# }
    required=${required#, } required_packages=${required_packages# }
}

# ---- going on, or not

# What a person of this machine would type. Only apt-get's names of packages are known here; those of a
# compiler, make and cmake are the same nearly everywhere.
how_to_install() {
    if has_command apt-get; then echo "apt-get install $required_packages"; return; fi
    plain=$(echo "$required_packages" | sed 's/ *libc6-dev//')
    for manager in dnf yum zypper apk; do
        if has_command "$manager"; then
            case $manager in apk) echo "apk add $plain musl-dev" ;; *) echo "$manager install $plain" ;; esac
            return
        fi
    done
    if has_command pacman; then echo "pacman -S $plain"; else echo "$plain, by this system's package manager"; fi
}

# go_on REASON: without what is missing now, or not at all.
go_on() {
    if [ -n "$required" ]; then
        echo "setup: cannot go on without $required ($1); install: $(how_to_install)" >&2
        exit 1
    fi
    skips=
    [ "$what" = demo ] || skips='; tests that need it are skipped'
    echo "setup: going on without $all_names ($1)$skips"
    exit 0
}

look_for_all
[ -n "$all_names" ] || exit 0
[ "${TN_NO_INSTALL:-0}" = 0 ] || go_on "TN_NO_INSTALL=$TN_NO_INSTALL"
has_command apt-get || go_on "no apt-get here"
as_root=
if [ "$(id -u)" != 0 ]; then
    as_root="sudo -n"
    sudo -n true 2>/dev/null || go_on "installing needs root, or sudo without a password"
fi

# ---- installing

end=$(($(date +%s) + limit))
apt() {
    left=$((end - $(date +%s)))
    [ "$left" -gt 0 ] || return 1
    $as_root env DEBIAN_FRONTEND=noninteractive timeout "$left" apt-get -qq -y \
        -o DPkg::Lock::Timeout=60 -o Acquire::Retries=1 -o Acquire::http::Timeout=20 \
        "$@" </dev/null >/dev/null 2>&1
}

install() {
    apt install --no-install-recommends "$@"
}

echo "setup: missing: $all_names; installing $all_packages with apt-get (TN_NO_INSTALL=1 turns this off)"
install $all_packages && exit 0
if apt update; then
    install $all_packages && exit 0
    # One package that cannot be had must not cost the others.
    for package in $all_packages; do install "$package"; done
    reason="apt-get could not install it"
else
    reason="apt-get could not fetch the package lists"
fi
look_for_all
[ -n "$all_names" ] || exit 0
go_on "$reason"
