"""Functions of networks, with the names and arguments of torch.nn.functional."""
from __future__ import annotations

import math
from typing import Any, Sequence

from .. import _c
from .._dtypes import DTypeLike
from .._tensor import Tensor

_abs, _max, _min = abs, max, min


def places(v: Any, n: int) -> tuple[int, ...]:
    """One number for all n axes of places, or one for each."""
    if hasattr(v, "__index__"):
        return (int(v),) * n
    v = tuple(int(i) for i in v)
    if len(v) == 1:
        return v * n
    if len(v) != n:
        raise ValueError(f"{v} has {len(v)} numbers, and there are {n} axes of places")
    return v


def _batched(x: Tensor, rank: int, f: Any) -> Tensor:
    """f(x) of an x that has a batch; of one that has none, f of a batch of it."""
    return f(x) if x.ndim != rank - 1 else _c.squeeze(f(_c.unsqueeze(x, 0)), 0)


# ---- products

def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias."""
    return _c.linear(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input1 @ weight[o] @ input2 for each output o, plus bias."""
    y = _c.matmul(_c.unsqueeze(input1, -2), _c.reshape(_c.permute(weight, (1, 0, 2)), (weight.shape[1], -1)))
    y = _c.reshape(y, input1.shape[:-1] + (weight.shape[0], weight.shape[2]))
    y = _c.sum(y * _c.unsqueeze(input2, -2), -1)
    return y if bias is None else y + bias


def _same(weight: Tensor, dilation: tuple[int, ...]) -> list[tuple[int, int]]:
    """The padding before and after each axis of places that keeps their number."""
    total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
    return [(t // 2, t - t // 2) for t in total]


def _conv(n: int, x: Tensor, w: Tensor, b: Tensor | None, stride: Any, padding: Any, dilation: Any,
          groups: int) -> Tensor:
    stride, dilation = places(stride, n), places(dilation, n)
    if padding == "valid":
        padding = 0
    elif padding == "same":
        if _max(stride) > 1:
            raise ValueError("padding='same' needs a stride of 1")
        pairs = _same(w, dilation)
        if any(l != r for l, r in pairs):
            x, padding = pad(x, [v for pair in reversed(pairs) for v in pair]), 0
        else:
            padding = tuple(l for l, _ in pairs)
    f = (_c.conv1d, _c.conv2d, _c.conv3d)[n - 1]
    padding = places(padding, n)
    return _batched(x, n + 2, lambda v: f(v, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups))


def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Tensor:
    """Convolution of (N, C, L) or (C, L)."""
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Tensor:
    """Convolution of (N, C, H, W) or (C, H, W)."""
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Tensor:
    """Convolution of (N, C, D, H, W) or (C, D, H, W)."""
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(n: int, x: Tensor, w: Tensor, b: Tensor | None, stride: Any, padding: Any, output_padding: Any,
                    groups: int, dilation: Any) -> Tensor:
    f = (_c.conv_transpose1d, _c.conv_transpose2d, _c.conv_transpose3d)[n - 1]
    stride, padding, output_padding, dilation = (places(v, n) for v in (stride, padding, output_padding, dilation))
    return _batched(x, n + 2, lambda v: f(v, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups,
                                          output_padding=output_padding))


def conv_transpose1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Tensor:
    """Transposed convolution of (N, C, L) or (C, L)."""
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Tensor:
    """Transposed convolution of (N, C, H, W) or (C, H, W)."""
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Tensor:
    """Transposed convolution of (N, C, D, H, W) or (C, D, H, W)."""
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of weight at these indices; the row padding_idx gets no gradient."""
    y = _c.embed(input, weight)
    if padding_idx is None:
        return y
    row = padding_idx % weight.shape[0]
    return _c.where(_c.unsqueeze(input == row, -1), y.detach(), y)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A last axis of num_classes with 1 at the index; -1 reads the largest index, which waits for it."""
    return _c.one_hot(tensor, num_classes if num_classes >= 0 else int(_c.max_all(tensor)) + 1)


# ---- pools

def _max_pool(n: int, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
              return_indices: bool) -> Tensor:
    if return_indices:
        raise NotImplementedError(f"max_pool{n}d: return_indices")
    kernel = places(kernel, n)
    stride = kernel if stride is None else places(stride, n)
    padding, dilation = places(padding, n), places(dilation, n)
    if any(2 * p > k for p, k in zip(padding, kernel)):
        raise ValueError(f"max_pool{n}d: padding {padding} is more than half of the window {kernel}")
    f = (_c.max_pool1d, _c.max_pool2d, _c.max_pool3d)[n - 1]
    return _batched(x, n + 2, lambda v: f(v, *kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode))


def max_pool1d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Tensor:
    """The maximum of each window of (N, C, L) or (C, L)."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Tensor:
    """The maximum of each window of (N, C, H, W) or (C, H, W)."""
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Tensor:
    """The maximum of each window of (N, C, D, H, W) or (C, D, H, W)."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _avg_pool(n: int, x: Tensor, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
              divisor_override: int | None) -> Tensor:
    kernel = places(kernel, n)
    stride = kernel if stride is None else places(stride, n)
    padding = places(padding, n)
    if ceil_mode and divisor_override is not None:
        raise NotImplementedError(f"avg_pool{n}d: divisor_override with ceil_mode")
    f = (_c.avg_pool1d, _c.avg_pool2d, _c.avg_pool3d)[n - 1]
    exclude = not count_include_pad and divisor_override is None
    y = _batched(x, n + 2, lambda v: f(v, *kernel, stride=stride, padding=padding, exclude_padding=exclude, ceil_mode=ceil_mode))
    return y if divisor_override is None else y * (math.prod(kernel) / divisor_override)


def avg_pool1d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:
    """The average of each window of (N, C, L) or (C, L)."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
    """The average of each window of (N, C, H, W) or (C, H, W)."""
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
    """The average of each window of (N, C, D, H, W) or (C, D, H, W)."""
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _adaptive(f: Any, x: Tensor, output_size: Any) -> Tensor:
    single = output_size is None or hasattr(output_size, "__index__")
    size = (output_size, output_size) if single else tuple(output_size)
    h, w = (have if want is None else want for have, want in zip(x.shape[-2:], size))
    return _batched(x, 4, lambda v: f(v, h, w))


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """The average over windows that make (..., h, w); None keeps a size."""
    return _adaptive(_c.adaptive_avg_pool2d, input, output_size)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """The maximum over windows that make (..., h, w); None keeps a size."""
    if return_indices:
        raise NotImplementedError("adaptive_max_pool2d: return_indices")
    return _adaptive(_c.adaptive_max_pool2d, input, output_size)


def _adaptive1d(f: Any, x: Tensor, output_size: Any) -> Tensor:
    size = output_size if hasattr(output_size, "__index__") else output_size[0]
    return _batched(x, 3, lambda v: _c.squeeze(f(_c.unsqueeze(v, -2), 1, size), -2))


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """The average over windows that make (..., output_size)."""
    return _adaptive1d(_c.adaptive_avg_pool2d, input, output_size)


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """The maximum over windows that make (..., output_size)."""
    return _adaptive1d(_c.adaptive_max_pool2d, input, output_size)


# ---- activations

def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0). inplace is accepted and has no effect: activations are fused into their neighbours."""
    return _c.relu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x limited to 0 .. 6."""
    return _c.clamp(input, 0, 6)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x if x > 0, otherwise negative_slope * x."""
    return _c.leaky_relu(input, negative_slope)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """leaky_relu with a slope, or one for each channel (axis 1), that is trained."""
    return _c.prelu(input, weight)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x if x > 0, otherwise alpha * (exp(x) - 1)."""
    return _c.elu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu with the two numbers that keep mean and variance."""
    return _c.selu(input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""
    return _c.celu(input, alpha)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution's integral up to x; approximate="tanh" by tanh."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', not {approximate!r}")
    return _c.gelu_tanh(input) if approximate == "tanh" else _c.gelu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    return _c.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x))."""
    return _c.mish(input)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return _c.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return _c.tanh(input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x exceeds threshold."""
    y = _c.softplus(input) if beta == 1 else _c.softplus(input * beta) / beta
    return _c.where(input * beta > threshold, input, y)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))."""
    return _c.logsigmoid(input)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return _c.softsign(input)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return input - _c.tanh(input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, and 0 between."""
    return input - _c.clamp(input, -lambd, lambd)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, and 0 elsewhere."""
    return _c.masked_fill(input, _c.abs(input) <= lambd, 0)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x limited to min_val .. max_val."""
    return _c.clamp(input, min_val, max_val)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """(x + 3) / 6 limited to 0 .. 1."""
    return _c.clamp(input + 3, 0, 6) / 6


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * hardsigmoid(x)."""
    return _c.hardswish(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > threshold, and value elsewhere."""
    return _c.masked_fill(input, _c.logical_not(input > threshold), value)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of an axis times the sigmoid of the second."""
    return _c.glu(input, dim)


def softmax(input: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis."""
    return _c.softmax(input if dtype is None else _c.cast(input, dtype), dim)


def softmin(input: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """softmax(-x) along an axis."""
    return softmax(-input, dim, dtype)


def log_softmax(input: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """log(softmax(x)) along an axis."""
    return _c.log_softmax(input if dtype is None else _c.cast(input, dtype), dim)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A random category as softmax((logits + noise) / tau); hard: 1 at its largest, with the gradient of that."""
    u = _c.clamp(_c.rand_like(logits.detach()), 1e-7, 1 - 1e-7)
    y = _c.softmax((logits - _c.log(-_c.log(u))) / tau, dim)
    if not hard:
        return y
    soft = y.detach()
    first = _c.scatter(_c.zeros_like(soft), dim, _c.argmax_keep(soft, dim), _c.ones_like(_c.max_keep(soft, dim)))
    return first - soft + y


# ---- dropout

def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, sets elements to 0 with probability p and scales the others by 1 / (1 - p)."""
    return _c.dropout(input, p, training)


def _feature_dropout(x: Tensor, p: float, training: bool, rank: int) -> Tensor:
    if not training or p == 0:
        return x
    shape = x.shape[:2] if x.ndim == rank else x.shape[:1]
    mask = _c.dropout(_c.ones(x.dtype, shape + (1,) * (x.ndim - len(shape)), context=x.context), p, True)
    return x * mask


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """dropout of whole channels of (N, C, L) or (C, L)."""
    return _feature_dropout(input, p, training, 3)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """dropout of whole channels of (N, C, H, W) or (C, H, W)."""
    return _feature_dropout(input, p, training, 4)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """dropout of whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    return _feature_dropout(input, p, training, 5)


# ---- norms

def _eps(eps: float | None) -> float:
    """C takes 0 for its default; a zero that is given is -0.0."""
    return 0.0 if eps is None else float(eps) or -0.0


def _last_axes(x: Tensor, normalized_shape: Any, name: str) -> int:
    shape = places(normalized_shape, 1) if hasattr(normalized_shape, "__index__") else tuple(normalized_shape)
    if x.shape[x.ndim - len(shape):] != shape:
        raise ValueError(f"{name}: the last axes of {x.shape} are not {shape}")
    return len(shape)


def layer_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
               eps: float = 1e-5) -> Tensor:
    """Normalizes over the last axes, of that shape, to mean 0 and variance 1."""
    return _c.layer_norm(input, _last_axes(input, normalized_shape, "layer_norm"), weight, bias, _eps(eps))


def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Divides by the root of the mean square over the last axes, of that shape."""
    return _c.rms_norm(input, _last_axes(input, normalized_shape, "rms_norm"), weight, _eps(eps))


def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
               eps: float = 1e-5) -> Tensor:
    """Normalizes (N, C, ...) over each group of channels and all following axes."""
    return _c.group_norm(input, num_groups, weight, bias, _eps(eps))


def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
               bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5, *,
               dist: _c.Dist | None = None) -> Tensor:
    """Normalizes each channel of (N, C, ...), in training by the batch, which changes the running statistics.

    With a world of several ranks, dist, the batch is that of all of them.
    """
    if running_mean is None or running_var is None:
        if not training:
            raise ValueError("batch_norm: without training there must be running_mean and running_var")
        channels = (input.shape[1],)
        running_mean, running_var = (_c.zeros("float32", channels, context=input.context) for _ in range(2))
    return _c.batch_norm(input, running_mean, running_var, weight, bias, training=training, momentum=momentum, eps=eps,
                         dist=dist)


def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
                  weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Normalizes each channel of each item of (N, C, ...)."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    rows = _c.reshape(input.detach(), input.shape[:2] + (-1,)) if input.size else None
    for running, now in ((running_mean, _c.mean), (running_var, _c.var)):
        if running is not None and rows is not None:
            _c.assign(running, running * (1 - momentum) + _c.mean(now(rows, 2), 0) * momentum)
    return _c.group_norm(input, input.shape[1], weight, bias, _eps(eps))


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Divides by a power of the mean square of `size` neighbouring channels (axis 1)."""
    around = [0] * (2 * (input.ndim - 2)) + [size // 2, (size - 1) // 2]
    mean = _c.sum(_c.window(pad(_c.square(input), around), 1, size, 1), -1) / size
    return input / (mean * alpha + k) ** beta


def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Tensor:
    """Divides by the p-norm along an axis, which counts as at least eps."""
    if p == 2:
        n = _c.norm_keep(input, dim)
    elif p == math.inf:
        n = _c.max_keep(_c.abs(input), dim)
    else:
        n = _c.sum_keep(_c.abs(input) ** p, dim) ** (1 / p)
    return input / _c.maximum(n, _c.full_like(n, eps))


# ---- movement

def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Adds places at the ends of the last axes: (before, after) of the last one, then of the one before it, ..."""
    if len(pad) % 2 or len(pad) > 2 * input.ndim:
        raise ValueError(f"pad: {tuple(pad)} does not fit {input.shape}")
    before, after = [0] * input.ndim, [0] * input.ndim
    for i in range(len(pad) // 2):
        before[-1 - i], after[-1 - i] = pad[2 * i], pad[2 * i + 1]
    if mode == "constant":
        return _c.pad(input, before, after, 0.0 if value is None else value)
    modes = {"reflect": _c.pad_reflect, "replicate": _c.pad_replicate, "circular": _c.pad_circular}
    if mode not in modes:
        raise ValueError(f"pad: mode must be constant, reflect, replicate or circular, not {mode!r}")
    return modes[mode](input, before, after)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(..., C r r, H, W) as (..., C, H r, W r)."""
    return _c.pixel_shuffle(input, upscale_factor)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(..., C, H r, W r) as (..., C r r, H, W)."""
    return _c.pixel_unshuffle(input, downscale_factor)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Takes the channels (axis 1) of the groups by turns."""
    x = _c.reshape(input, (input.shape[0], groups, input.shape[1] // groups) + input.shape[2:])
    return _c.reshape(_c.transpose(x, 1, 2), input.shape)


def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The windows of (N, C, H, W) as columns: (N, C KH KW, windows)."""
    kernel, dilation, padding, stride = (places(v, 2) for v in (kernel_size, dilation, padding, stride))
    return _c.unfold(input, *kernel, stride=stride, padding=padding, dilation=dilation)


def fold(input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Adds columns (N, C KH KW, windows) up at the places of their windows: (N, C, H, W)."""
    size, kernel, dilation, padding, stride = (places(v, 2) for v in (output_size, kernel_size, dilation, padding, stride))
    return _c.fold_windows(input, *size, *kernel, stride=stride, padding=padding, dilation=dilation)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The coordinates that affine maps (N, 2, 3) give for the places of images of this size, (N, C, H, W)."""
    if len(size) != 4:
        raise NotImplementedError(f"affine_grid: of images (N, C, H, W), not of {tuple(size)}")
    return _c.affine_grid(theta, size[2], size[3], bool(align_corners))


def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: bool | None = None) -> Tensor:
    """Images (N, C, H, W) at coordinates (N, P, Q, 2) in -1 .. 1: (N, C, P, Q); or (N, C, D, H, W) at (N, O, P, Q, 3)."""
    borders = ("zeros", "border", "reflection")
    if mode not in ("bilinear", "nearest", "bicubic") or padding_mode not in borders:
        raise ValueError(f"grid_sample: mode {mode!r}, padding_mode {padding_mode!r}")
    return _c.grid_sample(input, grid, nearest=mode == "nearest", cubic=mode == "bicubic", align_corners=bool(align_corners), border=borders.index(padding_mode))


_MODES = {"nearest": 0, "linear": 1, "bilinear": 1, "trilinear": 1, "bicubic": 2, "area": 3}


def interpolate(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False) -> Tensor:
    """Changes the number of places of (N, C, ...): mode nearest, linear, bilinear, trilinear, bicubic or area."""
    n = input.ndim - 2
    scales = None
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: one of size and scale_factor must be given")
    if mode not in _MODES:
        raise NotImplementedError(f"interpolate: mode {mode!r}")
    if size is not None:
        sizes = places(size, n)
    else:
        scales = (scale_factor,) * n if isinstance(scale_factor, (int, float)) else tuple(scale_factor)
        sizes = tuple(int(math.floor(s * f)) for s, f in zip(input.shape[2:], scales))
    return _c.interpolate(input, sizes, mode=_MODES[mode], align_corners=bool(align_corners), antialias=antialias,
                          scale=None if recompute_scale_factor else scales)


# ---- attention

def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:
    """softmax(query @ key.T * scale + mask) @ value. A bool mask is True where a key is seen.

    Fewer heads of keys and values than of queries are shared, with enable_gqa or without.
    """
    return _c.attention(query, key, value, causal=is_causal, mask=attn_mask, dropout=dropout_p, scale=scale)


# ---- losses

_REDUCTIONS = {"mean": 0, "sum": 1, "none": 2}


def _reduction(reduction: str) -> int:
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction!r} is not a reduction; there are none, mean, sum")
    return _REDUCTIONS[reduction]


def _reduce(x: Tensor, reduction: str) -> Tensor:
    return (_c.mean_all, _c.sum_all, lambda v: v)[_reduction(reduction)](x)


def _classes(f: Any, x: Tensor, target: Tensor, ignore_index: int, options: dict) -> Tensor:
    if ignore_index != -100:
        options.update(ignore=ignore_index, use_ignore=True)
    if x.ndim > 1:
        return f(x, target, **options)
    y = f(_c.unsqueeze(x, 0), _c.unsqueeze(target, 0), **options)
    return _c.squeeze(y, 0) if y.ndim else y


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100,
                  reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """Cross entropy of logits (N, C, ...) and class indices (N, ...), or probabilities of the logits' shape."""
    if weight is None and ignore_index == -100 and reduction == "mean" and not label_smoothing and input.ndim > 1:
        return _c.cross_entropy(input, target)
    return _classes(_c.cross_entropy_with, input, target, ignore_index,
                    dict(weight=weight, label_smoothing=label_smoothing, reduce=_reduction(reduction)))


def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100,
             reduction: str = "mean") -> Tensor:
    """Negative log-likelihood of log-probabilities (N, C, ...) and class indices (N, ...)."""
    return _classes(_c.nll_with, input, target, ignore_index, dict(weight=weight, reduce=_reduction(reduction)))


def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Tensor:
    """Connectionist temporal classification of log-probabilities (T, N, C), or (T, C), and targets (N, S), or (S); or all
    targets one after the other, of which the lengths are then read."""
    single, lengths = log_probs.ndim == 2, [input_lengths, target_lengths]
    for i, n in enumerate(lengths):
        if not isinstance(n, Tensor):
            lengths[i] = list(n) if hasattr(n, "__len__") else [int(n)]
        elif n.ndim == 0:
            lengths[i] = _c.reshape(n, (1,))
    if single:
        log_probs = _c.unsqueeze(log_probs, 1)
    if targets.ndim == 1:
        each, rows, at = lengths[1].tolist() if isinstance(lengths[1], Tensor) else lengths[1], [], 0
        for n in each:
            rows.append(_c.pad(_c.slice(targets, 0, at, at + n, 1), (0,), (_max(each) - n,), 0))
            at += n
        targets = _c.stack(rows, 0)
    y = _c.ctc_loss(log_probs, targets, lengths[0], lengths[1], blank=blank, zero_infinity=zero_infinity,
                    reduce=_reduction(reduction))
    return _c.squeeze(y, 0) if single and reduction == "none" else y


def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Squared error."""
    return _c.mse_with(input, target, weight=weight, reduce=_reduction(reduction))


def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Absolute error."""
    return _c.l1_with(input, target, weight=weight, reduce=_reduction(reduction))


def huber_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", delta: float = 1.0,
               weight: Tensor | None = None) -> Tensor:
    """Half the squared error up to delta, and a line beyond."""
    return _c.huber_with(input, target, delta=delta, weight=weight, reduce=_reduction(reduction))


def smooth_l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """huber_loss with delta beta, divided by beta."""
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return huber_loss(input, target, reduction=reduction, delta=beta) / beta


def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, *,
                         reduction: str = "mean") -> Tensor:
    """Binary cross entropy of probabilities."""
    return _c.bce_with(input, target, weight=weight, reduce=_reduction(reduction))


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None, *,
                                     reduction: str = "mean", pos_weight: Tensor | None = None) -> Tensor:
    """Binary cross entropy of logits."""
    return _c.bce_logits_with(input, target, weight=weight, pos_weight=pos_weight, reduce=_reduction(reduction))


def kl_div(input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Kullback-Leibler divergence of log-probabilities from probabilities."""
    if reduction == "batchmean":
        return _c.kl_with(input, target, log_target=log_target, batch_mean=True)
    return _c.kl_with(input, target, log_target=log_target, reduce=_reduction(reduction))


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along an axis."""
    return _c.cosine_similarity(x1, x2, dim, eps)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 along the last axis."""
    d = _c.abs(x1 - x2 + eps)
    if p == 2:
        return (_c.norm_keep if keepdim else _c.norm)(d, -1)
    return (_c.sum_keep if keepdim else _c.sum)(d ** p, -1) ** (1 / p)


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *,
                        reduction: str = "mean") -> Tensor:
    """max(0, -target * (input1 - input2) + margin)."""
    return _c.margin_ranking(input1, input2, target, margin=margin, reduce=_reduction(reduction))


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, *, reduction: str = "mean") -> Tensor:
    """The input where target is 1, and max(0, margin - input) where it is -1."""
    return _reduce(_c.where(target == 1, input, _c.relu(margin - input)), reduction)


def soft_margin_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input))."""
    return _reduce(_c.softplus(-target * input), reduction)


def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, *,
                                reduction: str = "mean") -> Tensor:
    """The mean over classes of the binary cross entropy of logits."""
    y = _c.bce_logits_with(input, target, weight=weight, reduce=2)
    return _reduce(_c.mean(y, -1), reduction)


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *,
                          reduction: str = "mean") -> Tensor:
    """1 - cos where target is 1, and max(0, cos - margin) where it is -1."""
    return _c.cosine_embedding(input1, input2, target, margin=margin, reduce=_reduction(reduction))


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0,
                        eps: float = 1e-6, *, reduction: str = "mean") -> Tensor:
    """max(0, distance to positive - distance to negative + margin)."""
    near, far = (pairwise_distance(anchor, v, p, eps) for v in (positive, negative))
    return _reduce(_c.relu(near - far + margin), reduction)


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, *, eps: float = 1e-8,
                     reduction: str = "mean") -> Tensor:
    """Negative log-likelihood of counts, of a Poisson distribution, without Stirling's term."""
    y = _c.exp(input) - target * input if log_input else input - target * _c.log(input + eps)
    return _reduce(y, reduction)


def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Tensor:
    """Negative log-likelihood of numbers, of a normal distribution with this mean and variance."""
    return _c.gaussian_nll(input, target, var, full=full, eps=_eps(eps), reduce=_reduction(reduction))