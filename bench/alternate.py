#!/usr/bin/env python3
"""Compares two builds, or one by its rules and tuned, on one machine, in one run.

    alternate.py OLD/tenon-bench NEW/tenon-bench [--rounds N] [--limit PERCENT] [--seconds S] [--count REGEX] CASE...
    alternate.py --tune S[,S...] tenon-bench [--write FILE] [...] CASE...

runs the cases by the two in turn, N times each (5), and prints the median of each figure, the ratio to the first,
and the spread: the largest over the smallest of the rounds of one side. Figures whose medians differ by more than
PERCENT (3) are marked by a star, and by two where they also differ by more than the spread of either, so that noise
does not explain it; so are those that only one side has. No round begins after S seconds.

With --tune the cases run once with S seconds of tuning for each process, in a cache folder of their own. Then they
run in turn by the rules and with what won there; TN_LOG=tune prints what was measured. Several budgets are so many
sides, each with a folder that begins empty, and the last line says which part of the gain of the largest the others
got. The lines before it are the geometric means of how many times as fast the times and rates are whose names REGEX
is in; all of them, if it is not given.

--write puts the figures into a page of Markdown, instead of those of the same cases on the same machine.
"""
import argparse
import datetime
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


class Side:
    """What takes turns: a program with variables of the environment, and what its rounds measured."""

    def __init__(self, name, program, **variables):
        self.name, self.program, self.variables, self.rounds = name, program, variables, []

    def run(self, cases):
        self.rounds.append(measure(self.program, cases, **self.variables))

    def values(self, key):
        return [r[key] for r in self.rounds if key in r]


def spread(values):
    return max(values) / min(values) if min(values) > 0 else 1.0


class Figure:
    """A figure as each side measured it; ratio, mark: of a side to the first one."""

    def __init__(self, key, sides):
        self.name, self.unit = f"{key[0]}: {key[1]}", key[2]
        self.values = [s.values(key) for s in sides]
        self.whole = all(self.values)
        self.medians = [statistics.median(v) if v else None for v in self.values]

    def ratio(self, i):
        return self.medians[i] / self.medians[0]

    # How many times as fast a side is; None if the figure is neither a time nor a rate.
    def faster(self, i):
        rate = self.unit.endswith("/s")
        if not self.ratio(i):
            return None
        return (self.ratio(i) if rate else 1 / self.ratio(i)) if rate or self.unit in ("us", "ms", "s") else None

    def mark(self, i, limit):
        ratio = self.ratio(i)
        apart, noise = max(ratio, 1 / ratio) if ratio > 0 else 1.0, max(spread(self.values[0]), spread(self.values[i]))
        return "" if apart <= 1 + limit / 100 else "*" if apart <= noise else "**"


def figures_of(sides):
    keys = dict.fromkeys(k for s in sides for r in s.rounds for k in r)
    return [f for f in (Figure(k, sides) for k in keys) if not f.whole or f.medians[0]]


def print_table(figures, sides, limit):
    print(f"{'figure':<64} {'unit':<8}" + "".join(f" {s.name:>11}" for s in sides) +
          "".join(f" {'ratio':>8} {'spread':>11}  " for _ in sides[1:]))
    for f in figures:
        line = f"{f.name:<64} {f.unit:<8}"
        if not f.whole:
            print(line, "of", " and ".join(s.name for s, v in zip(sides, f.values) if v), "alone **")
            continue
        line += "".join(f" {m:11.4g}" for m in f.medians)
        for i in range(1, len(sides)):
            line += f" {f.ratio(i):8.3f} {spread(f.values[0]):5.2f} {spread(f.values[i]):5.2f}{f.mark(i, limit):<2}"
        print(line.rstrip())


# Sentences on all figures whose names `counted` is in: how many times as fast each side is as the first, and, of
# budgets, which part of what the last one gains the others do.
def conclusions(figures, sides, counted):
    means, lines = [], []
    for i, side in enumerate(sides[1:], 1):
        all_of = [(f.faster(i), f.name) for f in figures if f.whole and f.faster(i) and re.search(counted, f.name.split(": ", 1)[1])]
        if not all_of:
            return []
        means.append(math.exp(statistics.fmean(math.log(x) for x, _ in all_of)))
        least = min(all_of)
        lines.append(f"{side.name}: {means[-1]:.3f} times as fast as {sides[0].name}, the geometric mean of "
                     f"{len(all_of)} times and rates; {least[0]:.3f} is the least, of {least[1]}")
    for mean, side in zip(means[:-1], sides[1:-1]):
        part = "" if means[-1] <= 1 else f", {100 * (mean - 1) / (means[-1] - 1):.0f} %"
        lines.append(f"{side.name} of tuning gain {mean - 1:.3f} of the {means[-1] - 1:.3f} that {sides[-1].name} gain{part}")
    return lines


# Returns the sides that take turns, and the cases. A bench that measures first steps has a cache folder for each
# network, unless TN_BENCH_CACHE is set.
def sides_of(o, folder):
    if o.tune is None:
        return [Side("old", o.names[0]), Side("new", o.names[1])], o.names[2:]
    program, cases, sides = o.names[0], o.names[1:], []
    for budget in sorted({float(s) for s in o.tune.split(",")}):
        kept = os.path.join(folder, f"{budget:g}")
        sides.append(Side(f"{budget:g} s", program, TN_CACHE_DIR=kept, TN_BENCH_CACHE=kept))
        measure(program, cases, None, **sides[-1].variables, TN_TUNE=f"{budget:g}")
    return [Side("rules", program, **{**sides[0].variables, "TN_TUNE": "0"})] + sides, cases


def machine():
    gpu = subprocess.run("nvidia-smi --query-gpu=name --format=csv,noheader", shell=True, capture_output=True, check=False)
    if gpu.returncode == 0 and gpu.stdout.strip():
        return gpu.stdout.decode().splitlines()[0]
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        names = re.findall(r"model name\s*: (.*)|CPU part\s*: (.*)", f.read())
    return f"{''.join(names[0]) if names else 'a cpu'}, {os.cpu_count()} threads"


def section(figures, sides, said, cases):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    commit = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, check=False).stdout.decode().strip()
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    only = os.environ.get("TN_BENCH_ONLY")
    text = f"## {' '.join(cases)}{', ' + only.replace('|', ', ') if only else ''} on {machine()}\n\n"
    text += f"{now}, commit {commit or os.environ.get('COMMIT', 'unknown')}, {len(sides[0].rounds)} rounds of each, alternated. "
    text += "Spread: the largest over the smallest of the rounds.\n\n"
    text += "| figure | unit | " + " | ".join(s.name for s in sides) + " | " + " | ".join(f"{s.name} / {sides[0].name} | spread" for s in sides[1:]) + " |\n"
    text += "| --- | --- |" + " ---: |" * (len(sides) + 2 * len(sides[1:])) + "\n"
    for f in (f for f in figures if f.whole):
        text += f"| {f.name} | {f.unit} | " + " | ".join(f"{m:.4g}" for m in f.medians)
        for i in range(1, len(sides)):
            text += f" | {f.ratio(i):.3f} | {max(spread(f.values[0]), spread(f.values[i])):.2f}"
        text += " |\n"
    return text + "\n" + "".join(f"- {line}\n" for line in said) + "\n"


# Puts a section instead of the one of the same title, or behind the others.
def write_page(path, new):
    old = "# Rules and tuned\n\nWritten by `bench/alternate.py --tune`: each budget is that of every process of a case.\n\n"
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            old = f.read()
    title = new.split("\n", 1)[0]
    parts = re.split(r"(?m)^(?=## )", old)
    parts = [new if p.split("\n", 1)[0] == title else p for p in parts]
    with open(path, "w", encoding="utf-8") as f:
        f.write("".join(parts if new in parts else [p if p.endswith("\n\n") else p.rstrip("\n") + "\n\n" for p in parts] + [new]).rstrip("\n") + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="OLD NEW CASE..., or with --tune PROGRAM CASE...")
    parser.add_argument("--tune")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=3)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--count", default="")
    parser.add_argument("--write")
    o = parser.parse_intermixed_args()
    if len(o.names) < (3 if o.tune is None else 2):
        parser.error("which programs and cases?")
    if o.tune is not None and not re.fullmatch(r"\d+(\.\d+)?(,\d+(\.\d+)?)*", o.tune):
        parser.error("--tune takes seconds, as 20 or 20,200")
    if o.write and o.tune is None:
        parser.error("--write is for --tune")
    os.environ.pop("TN_TUNE", None)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        sides, cases = sides_of(o, folder)
        while len(sides[0].rounds) < o.rounds and (not sides[0].rounds or time.monotonic() - start < o.seconds):
            for side in sides:
                side.run(cases)
    figures = figures_of(sides)
    said = conclusions(figures, sides, o.count)
    print(f"{len(sides[0].rounds)} rounds each, alternated, {time.monotonic() - start:.0f} s")
    print_table(figures, sides, o.limit)
    print("\n".join(said))
    if o.write:
        write_page(o.write, section(figures, sides, said, cases))


if __name__ == "__main__":
    main()
