"""What the programs of models in PyTorch share: results that are kept as they come, and compiling ahead.

    PROGRAM RESULT.json SECONDS FILES [part ...]

measures the parts, all without any, in the program's order; what there is no time for is left out. What RESULT.json has
of an earlier run is not measured again. FILES is a folder where Tenon left inputs and results.

    PROGRAM ahead

compiles all of its programs, side by side in processes of their own, for PyTorch's cache on disk.
"""
import json
import os
import subprocess
import sys
import time

import torch

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


def wait():
    if CUDA:
        torch.cuda.synchronize()


class Results:
    def __init__(self, path, seconds, files):
        self.path, self.end, self.files, self.data = path, time.time() + seconds, files, {"cases": {}, "notes": []}
        if os.path.exists(path):
            with open(path) as f:
                self.data["cases"] = json.load(f)["cases"]
            self.data["earlier"] = True

    def add(self, case, what, call, again=False):
        """Measures a case, unless the time is over. A failure is a note. again: also if an earlier run has it."""
        start = time.time()
        if not again and self.data["cases"].get(case, {}).get(what):
            return
        try:
            if start > self.end:
                raise TimeoutError("no time left")
            self.data["cases"].setdefault(case, {})[what] = call()
        except Exception as error:  # the others are measured all the same
            self.data["notes"].append(f"{case}, {what}: {type(error).__name__}: {str(error)[:200]}")
        print(f"{case}, {what}: measured in {time.time() - start:.1f} s", flush=True)
        torch._dynamo.reset()
        if CUDA:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        self.write()

    def write(self):
        with open(self.path, "w") as f:
            json.dump(self.data, f, indent=1)


def time_loop(step, warm, seconds, most):
    """Seconds of the first step, and of a later one: of a loop of that many seconds, and steps at most; 0: none."""
    start = time.perf_counter()
    step()
    wait()
    first = time.perf_counter() - start
    if not most:
        return first, None
    for _ in range(warm):
        step()
    wait()
    start = time.perf_counter()
    for _ in range(3):
        step()
    wait()
    steps = min(most, max(3, int(seconds / ((time.perf_counter() - start) / 3))))
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return first, (time.perf_counter() - start) / steps


def peak_gib():
    return torch.cuda.max_memory_allocated() / 2**30 if CUDA else None


def compile_ahead(count):
    runs = [subprocess.Popen([sys.executable, sys.argv[0], "ahead", str(i)], stderr=subprocess.DEVNULL)
            for i in range(count)]
    for run in runs:
        run.wait()


def main(parts, ahead):
    """parts are functions of the results; ahead has functions that compile one program each."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    if sys.argv[1] == "ahead":
        ahead[int(sys.argv[2])]() if sys.argv[2:] else compile_ahead(len(ahead))
        return
    found = Results(sys.argv[1], float(sys.argv[2]), sys.argv[3])
    found.data |= {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0) if CUDA else "no GPU",
                   "cudnn": torch.backends.cudnn.version()}
    if os.environ.get("PEERS_AHEAD"):
        found.data["notes"].append("PyTorch's programs were compiled ahead: its first steps are with its cache warm")
    for part in parts:
        if not sys.argv[4:] or part.__name__ in sys.argv[4:]:
            part(found)
    found.write()
