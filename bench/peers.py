"""The same training steps in PyTorch: peers.py CASE prints `seconds T` and `torch VERSION`.

Each case is measured as Tenon measures it: a fixed random batch, warm-up, the median of repeated
steps. Of the ways PyTorch offers to run Adam the fastest counts.
"""
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))


CASES = {"mlp_64": (mlp, 64), "mlp_128": (mlp, 128), "lenet_64": (lenet, 64)}


def median(step):
    start = time.perf_counter()
    for i in range(10):
        step()
        if i >= 2 and time.perf_counter() - start > 1:
            break
    took, start = [], time.perf_counter()
    while len(took) < 7 or (len(took) < 1000 and time.perf_counter() - start < 1.5):
        before = time.perf_counter()
        step()
        took.append(time.perf_counter() - before)
    return statistics.median(took)


def measure(make, batch, **settings):
    net = make()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3, **settings)
    x, y = torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,))

    def step():
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()

    return median(step)


def main():
    make, batch = CASES[sys.argv[1]]
    best = None
    for settings in ({}, {"foreach": True}, {"fused": True}):
        try:
            took = measure(make, batch, **settings)
        except (TypeError, RuntimeError):  # this version has no such way on the CPU
            continue
        best = took if best is None else min(best, took)
    print("torch", torch.__version__)
    print("seconds %.9f" % best)


if __name__ == "__main__":
    main()
