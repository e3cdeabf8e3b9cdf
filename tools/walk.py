#!/usr/bin/env python3
"""walk.py: how far a reader has to walk through the source to follow a call.

Builds the library with every function instrumented (gcc, in build/walk), runs
two calls on the cpu with one thread, and prints for each how many functions and
files it went through, and how often a call led from one folder of src/ to
another:

    relu    a tn_relu whose plan is known: recorded, and evaluated up to the launch of its kernel
    step    the third tn_step of a small mlp: backward, update, evaluation

Left out are src/base, functions of headers, the call forms (engine/sites.c), and
other threads. Run it on two commits to compare them:

    tools/walk.py             # numbers
    tools/walk.py --list      # and every function, in the order of the first call

The numbers depend on the network and on what is left out, so that only those of
this script compare.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Notes every function that is entered by the thread that asks for it while `on` is set.
PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <tenon.h>
#include <tenon/models.h>

enum { MOST = 1 << 20 };
static void *entered[MOST];
static int   count;
static _Thread_local int on;

void __attribute__((no_instrument_function)) __cyg_profile_func_enter(void *f, void *from)
{
    (void)from;
    if (on && count < MOST) entered[count++] = f;
}
void __attribute__((no_instrument_function)) __cyg_profile_func_exit(void *f, void *from)
{
    (void)f;
    (void)from;
}

static void show(const char *walk)
{
    Dl_info at;
    on = 0;
    for (int i = 0; i < count; i++)
        if (dladdr(entered[i], &at)) printf("%s %lx\n", walk, (char *)entered[i] - (char *)at.dli_fbase);
    count = 0;
}

static void relu(tn_ctx *cx)
{
    tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(64));
    tn_eval_of(x);
    for (int i = 0; i < 3; i++) {
        tn_scope *s = tn_begin(cx);
        on          = i == 2;
        tn_eval_of(tn_relu(x));
        if (on) show("relu");
        tn_end(s);
    }
}

static void step(tn_ctx *cx)
{
    tn_layer  *net = tn_mlp(cx, TN_SHAPE(16, 8, 4));
    tn_optim  *opt = tn_adamw(net, (tn_adamw_opts){ .lr = 1e-3f });
    tn_tensor *x   = tn_ones(cx, TN_F32, TN_SHAPE(8, 16)), *y = tn_zeros(cx, TN_I64, TN_SHAPE(8));
    for (int i = 0; i < 3; i++) {
        tn_scope  *s    = tn_begin(cx);
        tn_tensor *loss = tn_cross_entropy(tn_forward(net, x), y);
        on              = i == 2;
        tn_step(opt, loss);
        if (on) show("step");
        tn_end(s);
    }
}

int main(void)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "cpu", .threads = 1 });
    if (!cx) return 1;
    relu(cx);
    step(cx);
    tn_close(cx);
    return 0;
}
"""


def run(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True, **more)
    if done.returncode:
        sys.exit("walk.py: failed: " + " ".join(command))
    return done.stdout


def build(folder):
    flags = "-w -O1 -fno-inline -finstrument-functions -finstrument-functions-exclude-file-list=.h,src/base/"
    run(["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_COMPILER=gcc",
         "-DCMAKE_C_FLAGS=" + flags, "-Wno-dev", "--log-level=WARNING"])
    run(["cmake", "--build", folder, "--target", "tenon", "--parallel", str(os.cpu_count() or 1)])
    source = os.path.join(folder, "walk.c")
    with open(source, "w") as f:
        f.write(PROGRAM)
    run(["gcc", "-I" + os.path.join(ROOT, "include"), source, "-o", os.path.join(folder, "walk"), "-rdynamic",
         "-L" + folder, "-ltenon", "-ldl", "-Wl,-rpath," + folder])


def trace(folder):
    """The functions of each walk in the order of their calls, as (name, file)."""
    kernels = dict(os.environ, TN_COMPILE="wait")
    lines = [line.split() for line in run([os.path.join(folder, "walk")], env=kernels).splitlines()]
    places = sorted({at for _, at in lines})
    text = run(["addr2line", "-f", "-e", os.path.join(folder, "libtenon.so")] + places).splitlines()
    known = {}
    for i, at in enumerate(places):
        path = os.path.realpath(text[2 * i + 1].split(":")[0])
        known[at] = (text[2 * i], os.path.relpath(path, ROOT) if path.startswith(ROOT) else path)
    walks = {}
    for walk, at in lines:
        walks.setdefault(walk, []).append(known[at])
    return walks


def to_launch(calls):
    """Up to the call that runs the kernel."""
    for i, (name, path) in enumerate(calls):
        if path.startswith("src/device/") and "launch" in name:
            return calls[:i + 1]
    sys.exit("walk.py: the relu launches nothing")


def main():
    folder = os.path.join(ROOT, "build", "walk")
    build(folder)
    walks = trace(folder)
    walks["relu"] = to_launch(walks["relu"])
    print("%-6s %9s %5s %17s" % ("walk", "functions", "files", "changes of folder"))
    for walk, calls in walks.items():
        calls = [c for c in calls if re.match(r"src/(?!base/).*\.(c|def)$", c[1])]
        folders = [os.path.dirname(path) for _, path in calls]
        changes = sum(a != b for a, b in zip(folders, folders[1:]))
        print("%-6s %9d %5d %17d" % (walk, len(set(calls)), len({path for _, path in calls}), changes))
        if "--list" in sys.argv[1:]:
            for name, path in dict.fromkeys(calls):
                print("       %s %s" % (path, name))


if __name__ == "__main__":
    main()
