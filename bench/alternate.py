#!/usr/bin/env python3
"""Compares two builds on one machine, in one run.

    alternate.py OLD/tenon-bench NEW/tenon-bench [--rounds N] [--limit PERCENT] [--seconds S] CASE...

runs the cases by the two programs in turn, N times each (5), and prints the median of each figure, the
ratio, and the spread: the largest over the smallest of the rounds of one program. Figures whose medians
differ by more than PERCENT (3) are marked by a star, and by two where they also differ by more than the
spread of either program, so that noise does not explain it; so are those that only one program has. No
round begins after S seconds.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time


def measure(program, cases):
    done = subprocess.run([program, "--json", *cases], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    text = done.stdout.decode()
    try:
        results = json.loads(text)["results"]
    except ValueError:
        sys.exit(f"alternate.py: {program} ended with {done.returncode}")
    return {(r["case"], r["what"], r["unit"]): r["value"] for r in results}


def spread(values):
    return max(values) / min(values) if min(values) > 0 else 1.0


def table(old, new, limit):
    print(f"{'figure':<64} {'unit':<8} {'old':>11} {'new':>11} {'new/old':>8} {'spread':>11}")
    for key in dict.fromkeys(k for r in old + new for k in r):
        a, b = ([r[key] for r in rounds if key in r] for rounds in (old, new))
        name = f"{key[0] + ': ' + key[1]:<64} {key[2]:<8}"
        if not a or not b:
            print(f"{name} of the {'old' if a else 'new'} program alone **")
            continue
        if not statistics.median(a):
            continue
        ratio = statistics.median(b) / statistics.median(a)
        apart = max(ratio, 1 / ratio) if ratio > 0 else 1.0
        noise = max(spread(a), spread(b))
        mark = "" if apart <= 1 + limit / 100 else " *" if apart <= noise else " **"
        print(f"{name} {statistics.median(a):11.4g} {statistics.median(b):11.4g} "
              f"{ratio:8.3f} {spread(a):5.2f} {spread(b):5.2f}{mark}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=3)
    parser.add_argument("--seconds", type=float, default=1e9)
    o = parser.parse_args()
    start, old, new = time.monotonic(), [], []
    while len(new) < o.rounds and (not new or time.monotonic() - start < o.seconds):
        old.append(measure(o.old, o.cases))
        new.append(measure(o.new, o.cases))
    print(f"{len(new)} rounds each, alternated, {time.monotonic() - start:.0f} s")
    table(old, new, o.limit)


if __name__ == "__main__":
    main()
