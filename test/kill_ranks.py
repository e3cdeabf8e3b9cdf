#!/usr/bin/env python3
"""kill_ranks.py BUILD [N] [SEED]: kills a random rank of `tenon train` at N random instants, under tenon launch --restarts.

Each time the other ranks have to end with a message that names it, in less than 5 seconds, and the restarted run has to end
with the bits of one that was not disturbed. Prints a line for each that fails, and the figures.
"""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RANKS, LIMIT = 3, 5.0


def command(build, folder, restarts):
    return [f"{build}/tenon", "launch", "-n", str(RANKS), "--restarts", str(restarts), f"{build}/tenon", "train", "--model",
            "mlp", "--data", "digits:count=9000", "--epochs", "1", "--batch", "60", "--seed", "3", "--save-every", "20",
            "--quiet", "--save", f"{folder}/net"]


def ranks_of(folder):
    """The processes that train there, by rank."""
    found = {}
    for p in Path("/proc").iterdir():
        if not p.name.isdigit():
            continue
        try:
            words = (p / "cmdline").read_bytes().split(b"\0")
            if len(words) < 3 or words[1] != b"train" or f"{folder}/net".encode() not in words:
                continue
            env = dict(v.split(b"=", 1) for v in (p / "environ").read_bytes().split(b"\0") if b"=" in v)
            rank = env.get(b"OMPI_COMM_WORLD_RANK", env.get(b"PMI_RANK"))
            if rank is not None:
                found[int(rank)] = int(p.name)
        except OSError:
            continue  # it ended meanwhile
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def same(a, b):
    return all(Path(f"{a}/{n}").read_bytes() == Path(f"{b}/{n}").read_bytes() for n in ("net", "net.state"))


def wait_for_ranks(launch, folder):
    ranks = {}
    while len(ranks) < RANKS and launch.poll() is None:
        ranks = ranks_of(folder)
        time.sleep(0.01)
    return ranks


def run_whole(build, folder):
    """The run that nothing disturbs. Returns how long its ranks are there."""
    launch = subprocess.Popen(command(build, folder, 0), stdout=subprocess.DEVNULL)
    ranks, began = wait_for_ranks(launch, folder), time.monotonic()
    while ranks and all(is_alive(p) for p in ranks.values()):
        time.sleep(0.005)
    length = time.monotonic() - began
    if launch.wait():
        sys.exit("the run that nothing disturbs failed")
    return length


def kill_one(build, folder, reference, delay, rank):
    """Runs once, with a kill `delay` seconds after all ranks are there. Returns what is wrong, and how long the others took."""
    os.mkdir(folder)
    with open(f"{folder}/out", "w+") as out:
        launch = subprocess.Popen(command(build, folder, 2), stdout=out, stderr=subprocess.STDOUT)
        ranks = wait_for_ranks(launch, folder)
        time.sleep(delay)
        alive = [p for p in ranks.values() if is_alive(p)]
        hit = len(alive) == RANKS
        if hit:
            os.kill(ranks[rank], signal.SIGKILL)
        began = time.monotonic()
        while hit and any(is_alive(p) for p in alive) and time.monotonic() - began < 60:
            time.sleep(0.005)
        took = time.monotonic() - began
        status = launch.wait()
        out.seek(0)
        text = out.read()
    wrong = []
    if status:
        wrong.append(f"ended with status {status}")
    elif not same(folder, reference):
        wrong.append("the result has other bits")
    if hit and took > LIMIT:
        wrong.append(f"the others took {took:.1f} s")
    # A rank that was killed before the world was open, or while MPI ends, is not in it: the launcher ends the others.
    named = len(re.findall(rf"rank {rank} \(process {ranks.get(rank)} on [^)]*\) has died", text))
    if hit and "restart 1" not in text and not named:
        hit = False  # the run was over but for the end of the process
    return wrong, took, hit, named, text


def main():
    build, count = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100
    draw = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    bad, times, named_by, none = 0, [], 0, 0
    with tempfile.TemporaryDirectory() as top:
        for name in ("first", "whole"):  # the first compiles
            os.mkdir(f"{top}/{name}")
            length, i = run_whole(build, f"{top}/{name}"), 0
        while len(times) < count and i < 4 * count + 10 and not bad > 3:  # some come after the end of a run
            i += 1
            rank, delay = draw.randrange(RANKS), draw.random() * length
            wrong, took, hit, named, text = kill_one(build, f"{top}/{i}", f"{top}/whole", delay, rank)
            if hit:
                times.append(took)
                named_by += named >= RANKS - 1
                none += named == 0
            if wrong:
                bad += 1
                print(f"FAIL kill {i}: rank {rank} after {delay:.3f} s: {'; '.join(wrong)}\n{text}", flush=True)
    if not times:
        sys.exit(f"{i} runs of {length:.1f} s, and no rank was there to be killed")
    times.sort()
    print(f"{i} runs of {length:.1f} s, {len(times)} kills: {named_by} named by all others, {none} while no world was open; "
          f"the others ended after {times[len(times) // 2]:.2f} s (median), {times[-1]:.2f} s at most; {bad} wrong")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
