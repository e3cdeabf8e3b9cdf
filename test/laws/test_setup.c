// test_setup.c: tools/setup.sh on machines made for it: a PATH of a few fake programs, and an
// apt-get that writes down what it is asked for. It installs what is missing and nothing else, says
// so in one line, and where it cannot, goes on without what is optional and stops at what is not.
#include "check.h"
#include "scratch.h"
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPILER "cc make cmake "
#define OPTIONAL "g++ clang clang-format pkg-config python3 valgrind mpiexec "

// A machine: the programs and files it has, how setup.sh is called on it, and what comes of that.
typedef struct {
    const char *name;
    const char *call;      // variables and the argument
    const char *programs;  // on its PATH, beside what every shell has
    const char *files;     // below its root
    int         status;
    const char *says;   // the whole output, of at most two lines
    const char *asked;  // the packages of each call of `apt-get install`; "" for no call at all
} machine;

#define BLAS  "usr/lib/libopenblas.so.0 "
#define CL    "usr/lib/libOpenCL.so.1 etc/OpenCL/vendors/pocl.icd " PY PICS
#define PICS  "usr/lib/libturbojpeg.so.0 usr/lib/libpng16.so.16 "
#define PY    "usr/include/python3.11/Python.h usr/lib/python3/dist-packages/numpy "
#define OFF   " with apt-get (TN_NO_INSTALL=1 turns this off)\n"
#define SKIPS "; tests that need it are skipped\n"

// clang-format off
static const machine machines[] = {
    { "a machine that has all", "test", COMPILER OPTIONAL "apt-get", BLAS CL, 0, "", "" },
    { "a bare machine", "demo", "apt-get", "", 0,
      "setup: missing: a C compiler, make, cmake, OpenBLAS; installing gcc libc6-dev make cmake "
      "libopenblas0-pthread" OFF, "gcc libc6-dev make cmake libopenblas0-pthread;" },
    { "one that lacks a tool", "test", COMPILER "g++ clang clang-format pkg-config python3 mpiexec apt-get", BLAS CL, 0,
      "setup: missing: valgrind; installing valgrind" OFF, "valgrind;" },
    { "one for clang", "CC=clang demo", COMPILER "apt-get", BLAS, 0,
      "setup: missing: clang; installing clang" OFF, "clang;" },
    { "one with a compiler of two words", "CC='ccache cc' demo", COMPILER "ccache apt-get", BLAS, 0, "", "" },
    { "one that is to stay as it is too", "TN_NO_INSTALL=yes demo", COMPILER "apt-get", "", 0,
      "setup: going on without OpenBLAS (TN_NO_INSTALL=yes)\n", "" },
    { "one that is to stay as it is", "TN_NO_INSTALL=1 test", COMPILER OPTIONAL "apt-get", CL, 0,
      "setup: going on without OpenBLAS (TN_NO_INSTALL=1)" SKIPS, "" },
    { "the same without cmake", "TN_NO_INSTALL=1 demo", "cc make apt-get", "", 1,
      "setup: cannot go on without cmake (TN_NO_INSTALL=1); install: apt-get install cmake\n", "" },
    { "a user without rights", "FAKE_USER=1000 demo", COMPILER "apt-get", "", 0,
      "setup: going on without OpenBLAS (installing needs root, or sudo without a password)\n", "" },
    { "a user who cannot compile", "FAKE_USER=1000 demo", "make apt-get", BLAS, 1,
      "setup: cannot go on without a C compiler, cmake (installing needs root, or sudo without a "
      "password); install: apt-get install gcc libc6-dev cmake\n", "" },
    { "a user with sudo", "FAKE_USER=1000 demo", COMPILER "apt-get sudo", "", 0,
      "setup: missing: OpenBLAS; installing libopenblas0-pthread" OFF, "libopenblas0-pthread;" },
    { "Fedora", "demo", "make dnf", "", 1,
      "setup: cannot go on without a C compiler, cmake (no apt-get here); install: dnf install gcc cmake\n", "" },
    { "Alpine", "demo", "make apk", BLAS, 1,
      "setup: cannot go on without a C compiler, cmake (no apt-get here); install: apk add gcc cmake "
      "musl-dev\n", "" },
    { "Arch, without a BLAS", "demo", COMPILER "pacman", "", 0,
      "setup: going on without OpenBLAS (no apt-get here)\n", "" },
    { "one without a network", "FAKE_FAIL=all demo", COMPILER "apt-get", "", 0,
      "setup: missing: OpenBLAS; installing libopenblas0-pthread" OFF
      "setup: going on without OpenBLAS (apt-get could not fetch the package lists)\n",
      "libopenblas0-pthread;" },
    { "one whose mirror lacks a package", "FAKE_FAIL=valgrind test",
      COMPILER "g++ clang clang-format pkg-config mpiexec apt-get", BLAS CL, 0,
      "setup: missing: python3, valgrind; installing python3 valgrind" OFF
      "setup: going on without valgrind (apt-get could not install it)" SKIPS,
      "python3 valgrind;python3 valgrind;python3;valgrind;" },
    { "one whose mirror lacks cmake", "FAKE_FAIL=cmake demo", "cc make apt-get", BLAS, 1,
      "setup: missing: cmake; installing cmake" OFF
      "setup: cannot go on without cmake (apt-get could not install it); install: apt-get install cmake\n",
      "cmake;cmake;cmake;" },
};
// clang-format on

// The fake programs. What apt-get installs is there afterwards.
static const char world[] =
    "rm -rf \"$d\"/* && mkdir -p \"$d/bin\" \"$d/root\" && cd \"$d\" || exit 9\n"
    "for p in sh sed env date timeout ln mkdir touch dirname; do ln -s \"$(command -v $p)\" bin/$p; done\n"
    "printf '#!/bin/sh\\nexit 0\\n' >good\n"
    "printf '#!/bin/sh\\necho ${FAKE_USER:-0}\\n' >bin/id\n"
    "cat >get <<'END'\n"
    "#!/bin/sh\n"
    "d=$FAKE_ROOT\n"
    "while [ \"$1\" != install ] && [ \"$1\" != update ]; do shift; done\n"
    "[ $1 = install ] || { [ \"${FAKE_FAIL:-}\" != all ]; exit; }\n"
    "shift 2\n"
    "echo \"$*;\" >>\"$d/asked\"\n"
    "[ \"${FAKE_FAIL:-}\" != all ] || exit 100\n"
    "for p in \"$@\"; do [ $p != \"${FAKE_FAIL:-}\" ] || exit 100; done\n"
    "for p in \"$@\"; do\n"
    "    case $p in gcc) p=cc ;; esac\n"
    "    case $p in lib*) ;; *) ln -sf \"$d/good\" \"$d/bin/$p\" ;; esac\n"
    "done\n"
    "END\n"
    "printf '#!/bin/sh\\nshift\\nexec \"$@\"\\n' >run\n"
    "chmod +x good get run bin/id\n"
    "for p in $programs; do\n"
    "    case $p in apt-get) t=get ;; sudo) t=run ;; true) t=good ;; *) t=good ;; esac\n"
    "    ln -s \"$d/$t\" bin/$p\n"
    "done\n"
    "ln -s \"$d/good\" bin/true\n"
    "for f in $files; do mkdir -p \"root/$(dirname $f)\" && touch \"root/$f\"; done\n";

static void visit(const machine *m)
{
    enum { ROOM = 8192 };
    static char command[ROOM], out[ROOM], asked[ROOM];
    const char *argument = strrchr(m->call, ' ');
    argument             = argument ? argument + 1 : m->call;
    snprintf(command, ROOM,
             "d='%s' programs='%s' files='%s'\n%scd '" TN_SOURCE_DIR "' || exit 9\n"
             "env -i PATH=\"$d/bin\" FAKE_ROOT=\"$d\" TN_SETUP_ROOT=\"$d/root\" %.*s \"$d/bin/sh\" "
             "tools/setup.sh %s",
             scratch_path(""), m->programs, m->files, world, (int)(argument - m->call), m->call,
             argument);
    int status = tree_run(command, out, ROOM);
    test_case_result(status == m->status && !strcmp(out, m->says), "%s: status %d, says \"%s\"",
                     m->name, status, out);
    snprintf(command, ROOM, "cat '%s' 2>/dev/null | tr -d '\\n'", scratch_path("asked"));
    tree_run(command, asked, ROOM);
    test_case_result(!strcmp(asked, m->asked), "%s: apt-get was asked for \"%s\"", m->name, asked);
}

static void setup_installs_what_is_missing_and_nothing_else(void)
{
    if (!CHECK(scratch_open())) return;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) visit(&machines[i]);
    scratch_close();
}

const test_case tests_setup[] = {
    TEST(setup_installs_what_is_missing_and_nothing_else),
    TEST_END,
};
