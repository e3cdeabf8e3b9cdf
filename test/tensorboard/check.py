#!/usr/bin/env python3
"""Event files of `tenon train --tensorboard`, read by TensorBoard itself.

    check.py build/tenon FOLDER

Trains a small network into FOLDER and compares what TensorBoard's EventAccumulator reads with the log and with the saved network:
every number of every step, the histograms of the last weights, the norms of the gradients, the images. Says so and ends with 0 where
there is no tensorboard.
"""
import json
import math
import os
import shutil
import struct
import subprocess
import sys

try:
    import numpy as np
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as e:
    print(f"tensorboard: skipped, since {sys.executable} has no {e.name}; pip install tensorboard")
    sys.exit(0)

EPOCHS, FAILED = 2, []


def check(ok, what):
    if not ok:
        FAILED.append(what)
        print("tensorboard: wrong:", what)


def train(tool, folder, *more):
    subprocess.run([tool, "train", "--model", "lenet", "--data", "digits:count=640", "--batch", "64", "--epochs", str(EPOCHS), "--quiet",
                    "--eval-every", "5", "--log", f"{folder}/log.json", "--save", f"{folder}/net.safetensors",
                    "--tensorboard", f"{folder}/events", *more], check=True, stdout=subprocess.DEVNULL)


def read(folder):
    a = EventAccumulator(f"{folder}/events", size_guidance={"scalars": 0, "histograms": 0, "images": 0})
    a.Reload()
    return a


def tag_of(name):
    return "test/" + name[5:] if name.startswith("test_") else "train/" + name


def numbers(a, folder):
    """Every number of the log but the time, at its step; and nothing else."""
    want = {}
    for line in open(f"{folder}/log.json"):
        row = json.loads(line)
        for name, v in row.items():
            if name not in ("step", "epoch", "time"):
                want.setdefault(tag_of(name), {})[row["step"]] = v
    check(set(a.Tags()["scalars"]) == set(want), f"tags {a.Tags()['scalars']}, not {sorted(want)}")
    for tag, values in want.items():
        got = {e.step: e.value for e in a.Scalars(tag)}
        check(got.keys() == values.keys(), f"steps of {tag}: {sorted(got)}, not {sorted(values)}")
        for step in got.keys() & values.keys():
            # The log has 9 digits, of the rate 6; an event has a float.
            check(math.isclose(got[step], values[step], rel_tol=1e-5 if "per_s" in tag else 2e-7), f"{tag} of step {step}: {got[step]}, not {values[step]}")
    return len(want), sum(map(len, want.values())), want


def weights(folder):
    with open(f"{folder}/net.safetensors", "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {k: np.frombuffer(data[v["data_offsets"][0]:v["data_offsets"][1]], "<f4") for k, v in head.items() if k != "__metadata__" and v["dtype"] == "F32" and "running_" not in k}


def histograms(a, folder, want):
    steps, squares = max(want["train/loss"]), {}
    for name, w in weights(folder).items():
        last = [e for e in a.Histograms("weights/" + name) if e.step == steps]
        check(len(last) == 1, f"weights/{name} has no histogram of the last step")
        if not last:
            continue
        h, count = last[0].histogram_value, np.histogram(w.astype("f8"), 64)[0]
        check((h.min, h.max, h.num) == (w.min(), w.max(), w.size), f"range of weights/{name}")
        check(math.isclose(h.sum, w.sum(dtype="f8"), rel_tol=1e-9, abs_tol=1e-9), f"sum of weights/{name}")
        check(math.isclose(h.sum_squares, np.square(w, dtype="f8").sum(), rel_tol=1e-9), f"squares of weights/{name}")
        # An element on the edge of an interval may count for either.
        check(np.abs(np.array(h.bucket) - count).sum() <= 2 and sum(h.bucket) == w.size, f"counts of weights/{name}")
        for e in a.Histograms("gradients/" + name):
            squares[e.step] = squares.get(e.step, 0) + e.histogram_value.sum_squares
    for step, s in squares.items():
        check(math.isclose(math.sqrt(s), want["train/grad_norm"][step], rel_tol=1e-4), f"gradients of step {step}: norm {math.sqrt(s)}, not {want['train/grad_norm'][step]}")
    return len(squares)


def images(a):
    check(a.Tags()["images"] == ["test/images"], f"images {a.Tags()['images']}")
    for e in a.Images("test/images"):
        png = e.encoded_image_string
        check(png[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", png[16:24]) == (e.width, e.height), "the image is no PNG of its size")
        check((e.width, e.height) == (8 * 30 + 2, 2 * 30 + 2), f"16 images in two rows are {e.width} x {e.height}")


def main(tool, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    train(tool, folder)
    a = read(folder)
    tags, count, want = numbers(a, folder)
    steps = histograms(a, folder, want)
    images(a)
    # A run that goes on writes a second file; steps stay in order and appear once.
    train(tool, folder, "--resume", "--epochs", str(EPOCHS + 1))
    numbers(read(folder), folder)
    print(f"tensorboard: {tags} tags, {count} numbers, histograms of {steps} steps and an image agree" if not FAILED else f"tensorboard: {len(FAILED)} wrong")
    return bool(FAILED)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
