#!/usr/bin/env python3
"""The programs of tenon-peer in PyTorch.

As a program it serves tenon-peer: it is handed the text of a program on stdin, runs it in the program's
own dtypes and in double, and writes what each gave, and how far the first is from the second, to
stdout. As a module it has what such a text needs:

    import sys; sys.path.insert(0, "test/peer")
    from torch_side import *
    t0 = data('1 2 3', 'f32', (3,), leaf=False, free=True)
    show([torch.exp(t0)])
"""
import re
import struct
import sys
import warnings

try:
    import torch
    from torch.nn import functional as F
except ImportError:  # tenon-peer looks for another Python, or says that there is none
    sys.exit(3)

OWN = {
    "boolean": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64,
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
}
CODES = {dtype: i for i, dtype in enumerate(OWN.values())}
DOUBLE = {name: torch.float64 if dtype.is_floating_point else dtype for name, dtype in OWN.items()}
SINGLE = {name: torch.float32 if name == "f64" else dtype for name, dtype in OWN.items()}
# Data that no limit depends on is moved by up to this part, to see what errors nearby programs have.
NEARBY = 2.0**-5

globals().update(OWN)
names = OWN  # the dtypes that a text's names mean in this run
moved = None  # a generator of random numbers, where data moves


# ---- what texts call


def data(values, dtype, shape, leaf, free):
    own = OWN[dtype]
    t = torch.tensor([float(v) for v in values.split()], dtype=torch.float64)
    if moved is not None and free:
        t = t * (1 + NEARBY * (2 * torch.rand(t.shape, dtype=torch.float64, generator=moved) - 1))
    t = t.to(own).to(names[dtype]).reshape(shape)
    return t.requires_grad_() if leaf else t


def show(values):
    for t in values:
        print(t)


def cut(x, axis, start, stop, step):
    index = [slice(None)] * x.dim()
    index[axis] = slice(start, stop if start >= 0 or stop != 0 else None, step)
    return x[tuple(index)]


def stack(values, axis):
    return torch.stack(promoted(values), axis)


def promoted(values):
    dtype = values[0].dtype
    for v in values[1:]:
        dtype = torch.promote_types(dtype, v.dtype)
    return [v.to(dtype) for v in values]


def pad(x, before, after, v):
    both = [n for pair in reversed(list(zip(before, after))) for n in pair]
    return F.pad(x, both, value=v)


def prod(x, axes, keep):
    for axis in sorted((a % x.dim() for a in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x if axes else torch.prod(x)


def var(x, axes, keep):
    """In the run for the best values by two passes: PyTorch adds to a mean element by element, in double whatever
    x is, and loses digits that neither its run in single nor one in double would show."""
    if names is not DOUBLE:
        return torch.var(x, axes, keepdim=keep)
    far = x - torch.mean(x, axes, keepdim=True)
    return torch.sum(far * far, axes, keepdim=keep) / (x.numel() // max(x.sum(axes).numel(), 1) - 1)


def std(x, axes, keep):
    return torch.std(x, axes, keepdim=keep) if names is not DOUBLE else torch.sqrt(var(x, axes, keep))


def arg(f, x, axes, keep):
    return f(x, axes[0], keepdim=keep) if len(axes) == 1 else f(x)


def attention(q, k, v, mask, causal, scale):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale or None)


def flatten(x, first, last):
    """Never x itself, which has a gradient where a view made without gradients has none."""
    return torch.flatten(x.view_as(x), first, last)


def layer_norm(x, axes, w, b, eps):
    """The bias apart: PyTorch's second gradient forgets it."""
    y = F.layer_norm(x, x.shape[-axes:], w, None, eps)
    return y if b is None else y + b


def batch_norm(x, mean, var, w, b, training, eps):
    """The bias apart: PyTorch's second gradient forgets it where there is no weight."""
    y = F.batch_norm(x, mean, var, w, None, training, eps=eps)
    return y if b is None else y + b.reshape([-1] + [1] * (x.dim() - 2))


def grad(ys, xs, gys):
    """Gradients that can be differentiated again; zeros where there is no way from a y to an x."""
    ways = [(y, torch.ones_like(y) if g is None else g) for y, g in zip(ys, gys) if y.requires_grad]
    if not ways:
        return [torch.zeros_like(x) for x in xs]
    got = torch.autograd.grad([y for y, _ in ways], xs, [g for _, g in ways], create_graph=True, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(xs, got)]


# ---- serving


def run(code, dtypes, seed=None):
    """What a program shows, with its names of dtypes standing for others."""
    global names, moved
    shown = []
    names, moved = dtypes, None if seed is None else torch.Generator().manual_seed(seed)
    torch.set_default_dtype(torch.float64 if dtypes is DOUBLE else torch.float32)
    torch.set_grad_enabled(True)
    space = dict(globals(), show=lambda values: shown.extend(v.detach().clone() for v in values))
    space.update(dtypes)
    exec(code, space)
    torch.set_default_dtype(torch.float32)
    return shown, space


def magnitudes(space):
    """Of each step t0, t1, ... the largest magnitude of a finite element of its values, and their dtype's
    distance from 1 to the next number."""
    steps = max((int(name[1:]) for name in space if re.fullmatch(r"t\d+", name)), default=-1) + 1
    found, unit = [0.0] * steps, [0.0] * steps
    for i in range(steps):
        values = space.get("t%d" % i, ())
        for v in [values] if isinstance(values, torch.Tensor) else values:
            unit[i] = torch.finfo(v.dtype).eps if v.dtype.is_floating_point else 0.0
            v = v.detach().double()
            found[i] = max([found[i]] + v[torch.isfinite(v)].abs().flatten().tolist())
    return found + unit


def distance(a, b):
    """The largest difference of elements that are finite in both."""
    a, b = a.double(), b.double()
    both = torch.isfinite(a) & torch.isfinite(b)
    return (a - b)[both].abs().max().item() if both.any() else 0.0


def errors(code, has_f64, seed=None):
    """Own and best values, and of each the error of PyTorch. Double is compared with single, whose errors
    are 2**29 as large."""
    (own, space), best = run(code, OWN, seed), run(code, DOUBLE, seed)[0]
    slack = [distance(a, b) for a, b in zip(own, best)]
    if has_f64:
        single = run(code, SINGLE, seed)[0]
        slack = [max(e, distance(a, b) * 2.0**-29) if b.dtype.is_floating_point else e
                 for e, a, b in zip(slack, single, best)]
    return own, best, slack, space


def answer(code, has_f64, more):
    own, best, slack, space = errors(code, has_f64)
    for seed in range(more):
        slack = [max(a, b) for a, b in zip(slack, errors(code, has_f64, seed)[2])]
    large = magnitudes(space)
    parts = [struct.pack("<i%dd" % len(large), len(large) // 2, *large), struct.pack("<i", len(own))]
    for a, b, e in zip(own, best, slack):
        parts.append(struct.pack("<ii8qd", CODES[a.dtype], a.dim(), *a.shape, *[0] * (8 - a.dim()), e))
        wide = torch.float64 if a.dtype.is_floating_point else torch.int64
        parts.append(a.to(wide).contiguous().numpy().tobytes())
        parts.append(b.to(wide).contiguous().numpy().tobytes())
    return b"".join(parts)


def serve():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    out = sys.stdout.buffer
    sys.stdout = sys.stderr
    out.write(("torch %s\n" % torch.__version__).encode())
    out.flush()
    while True:
        head = sys.stdin.buffer.readline().split()
        if not head:
            return
        text = sys.stdin.buffer.read(int(head[0])).decode()
        try:
            reply = b"\0" + answer(compile(text, "program", "exec"), "f64" in text, int(head[1]))
        except Exception as problem:  # PyTorch refuses the program
            reply = b"\1" + (type(problem).__name__ + ": " + str(problem)).encode()[:400]
        out.write(struct.pack("<q", len(reply)) + reply)
        out.flush()


if __name__ == "__main__":
    serve()
