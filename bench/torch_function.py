#!/usr/bin/env python3
"""Layer norm + gelu + dropout in a PyTorch program: eager, torch.compile and tenon.torch.function, in one run.

    PYTHONPATH=build/python python3 bench/torch_function.py [ROWS COLUMNS]

Each line is one way and one dtype: microseconds of a forward pass, and of a forward and a backward pass, by PyTorch's CUDA events
where there is a GPU; and of the two passes for 8 rows, where the host's work is all there is to see. The ways take turns, and
the best of five rounds counts.
"""
import sys
import time

import torch
from torch.nn import functional as TF

import tenon as tn
import tenon.torch
from tenon.nn import functional as F

P = 0.1
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@tenon.torch.function(random=True)
def fused(x, w, b, p: float):
    return F.dropout(tn.gelu(F.layer_norm(x, x.shape[-1:], w, b)), p, True)


def plain(x, w, b, p):
    return TF.dropout(TF.gelu(TF.layer_norm(x, x.shape[-1:], w, b)), p)


def microseconds(step, times):
    """Of one call of step, without the time to fill the queue of the GPU."""
    for _ in range(3):
        step()
    if DEVICE == "cpu":
        start = time.perf_counter()
        for _ in range(times):
            step()
        return (time.perf_counter() - start) / times * 1e6
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(times):
        step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / times * 1e3


def steps(f, rows, columns, dtype):
    """The forward pass, and both passes, of f on tensors of a shape."""
    x = torch.randn(rows, columns, device=DEVICE, dtype=dtype, requires_grad=True)
    w = torch.rand(columns, device=DEVICE, dtype=dtype, requires_grad=True)
    b = torch.rand(columns, device=DEVICE, dtype=dtype, requires_grad=True)
    gy = torch.randn_like(x)

    def forward():
        with torch.no_grad():
            return f(x, w, b, P)

    def both():
        return torch.autograd.grad(f(x, w, b, P), (x, w, b), gy)

    return forward, both


def check(dtype):
    """The two functions agree where nothing is dropped."""
    x = torch.randn(64, 512, device=DEVICE, dtype=dtype, requires_grad=True)
    w, b = (torch.rand(512, device=DEVICE, dtype=dtype, requires_grad=True) for _ in range(2))
    gy = torch.randn_like(x)
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    for a, e in zip(torch.autograd.grad(fused(x, w, b, 0.0), (x, w, b), gy), torch.autograd.grad(plain(x, w, b, 0.0), (x, w, b), gy)):
        torch.testing.assert_close(a, e, rtol=tolerance, atol=tolerance * 10)
    kept = (fused(x, w, b, 0.25) != 0).float().mean().item()
    assert abs(kept - 0.75) < 0.02, kept


def main():
    rows, columns = (int(a) for a in sys.argv[1:3]) if len(sys.argv) > 2 else (8192, 4096) if DEVICE == "cuda" else (256, 1024)
    torch.manual_seed(1)
    ways = {"eager": plain, "torch.compile": torch.compile(plain), "tenon.torch.function": fused}
    times = 50 if DEVICE == "cuda" else 3
    print(f"layer norm + gelu + dropout, {rows} x {columns} on {torch.cuda.get_device_name() if DEVICE == 'cuda' else 'the cpu'}, "
          f"PyTorch {torch.__version__}")
    print(f"{'':9} {'':21} {'forward':>9} {'and backward':>13} {'of 8 rows':>10}   us")
    for dtype in (torch.float32, torch.bfloat16):
        check(dtype)
        made = {name: (*steps(f, rows, columns, dtype), steps(f, 8, columns, dtype)[1]) for name, f in ways.items()}
        best = {name: [float("inf")] * 3 for name in ways}
        for _ in range(5):
            for name, three in made.items():
                for i, step in enumerate(three):
                    best[name][i] = min(best[name][i], microseconds(step, times))
        for name, (forward, both, small) in best.items():
            print(f"{str(dtype).removeprefix('torch.'):9} {name:21} {forward:9.1f} {both:13.1f} {small:10.1f}")


if __name__ == "__main__":
    main()
