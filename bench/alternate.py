#!/usr/bin/env python3
"""Compares two builds, or one by its rules and tuned, on one machine, in one run.

    alternate.py OLD/tenon-bench NEW/tenon-bench [--rounds N] [--limit PERCENT] [--seconds S] [--count REGEX] CASE...
    alternate.py --tune S tenon-bench [...] CASE...

runs the cases by the two programs in turn, N times each (5), and prints the median of each figure, the
ratio, and the spread: the largest over the smallest of the rounds of one program. Figures whose medians
differ by more than PERCENT (3) are marked by a star, and by two where they also differ by more than the
spread of either program, so that noise does not explain it; so are those that only one program has. No
round begins after S seconds.

With --tune the cases run once with S seconds of tuning for each process, in a cache folder of their own. Then they run in
turn with what won there (new) and without it (old); TN_LOG=tune prints what was measured. The last line is the geometric mean of
how many times as fast the times and rates are whose names REGEX is in; all of them, if it is not given.
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time


def measure(program, cases, notes=subprocess.DEVNULL, **variables):
    done = subprocess.run([program, "--json", "--no-peers", *cases], stdout=subprocess.PIPE, stderr=notes,
                          check=False, env={**os.environ, **variables})
    text = done.stdout.decode()
    try:
        results = json.loads(text)["results"]
    except ValueError:
        sys.exit(f"alternate.py: {program} ended with {done.returncode}")
    return {(r["case"], r["what"], r["unit"]): r["value"] for r in results}


def spread(values):
    return max(values) / min(values) if min(values) > 0 else 1.0


def table(old, new, limit, counted):
    print(f"{'figure':<64} {'unit':<8} {'old':>11} {'new':>11} {'new/old':>8} {'spread':>11}")
    faster = []
    for key in dict.fromkeys(k for r in old + new for k in r):
        a, b = ([r[key] for r in rounds if key in r] for rounds in (old, new))
        name = f"{key[0] + ': ' + key[1]:<64} {key[2]:<8}"
        if not a or not b:
            print(f"{name} of the {'old' if a else 'new'} program alone **")
            continue
        if not statistics.median(a):
            continue
        ratio = statistics.median(b) / statistics.median(a)
        if re.search(counted, key[1]) and (key[2] in ("us", "ms", "s") or key[2].endswith("/s")):
            faster.append(ratio if key[2].endswith("/s") else 1 / ratio)
        apart = max(ratio, 1 / ratio) if ratio > 0 else 1.0
        noise = max(spread(a), spread(b))
        mark = "" if apart <= 1 + limit / 100 else " *" if apart <= noise else " **"
        print(f"{name} {statistics.median(a):11.4g} {statistics.median(b):11.4g} "
              f"{ratio:8.3f} {spread(a):5.2f} {spread(b):5.2f}{mark}")
    if faster:
        mean = math.exp(statistics.fmean(math.log(f) for f in faster))
        print(f"new is {mean:.3f} times as fast, the geometric mean of {len(faster)} times and rates")


# Returns the two sides that take turns, each as a program and its variables of the environment. A bench that
# measures first steps has a folder for each network, unless TN_BENCH_CACHE is set.
def sides(o, folder):
    if o.tune is None:
        return (o.names[0], {}), (o.names[1], {}), o.names[2:]
    program, cases = o.names[0], o.names[1:]
    kept = {"TN_CACHE_DIR": folder, "TN_BENCH_CACHE": folder}
    measure(program, cases, None, **kept, TN_TUNE=str(o.tune))
    return (program, {**kept, "TN_TUNE": "0"}), (program, kept), cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="OLD NEW CASE..., or with --tune PROGRAM CASE...")
    parser.add_argument("--tune", type=float)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=3)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--count", default="")
    o = parser.parse_args()
    if len(o.names) < (3 if o.tune is None else 2):
        parser.error("which programs and cases?")
    os.environ.pop("TN_TUNE", None)
    start, old, new = time.monotonic(), [], []
    with tempfile.TemporaryDirectory() as folder:
        first, second, cases = sides(o, folder)
        while len(new) < o.rounds and (not new or time.monotonic() - start < o.seconds):
            old.append(measure(first[0], cases, **first[1]))
            new.append(measure(second[0], cases, **second[1]))
    print(f"{len(new)} rounds each, alternated, {time.monotonic() - start:.0f} s")
    table(old, new, o.limit, o.count)


if __name__ == "__main__":
    main()
