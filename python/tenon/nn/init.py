"""Initializers, with the names and arguments of torch.nn.init: each writes into a tensor, without gradient."""
from __future__ import annotations

import math

from .. import _c
from .._tensor import Tensor


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which weights before a nonlinearity should be larger."""
    gains = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity in gains:
        return gains[nonlinearity]
    if nonlinearity in ("linear", "sigmoid") or nonlinearity.startswith("conv"):
        return 1.0
    raise ValueError(f"unsupported nonlinearity {nonlinearity}")


def _fans(t: Tensor) -> tuple[int, int]:
    if t.ndim < 2:
        raise ValueError(f"a tensor of shape {t.shape} has no fan-in and fan-out")
    taps = math.prod(t.shape[2:])
    return t.shape[1] * taps, t.shape[0] * taps


_calculate_fan_in_and_fan_out = _fans  # PyTorch's programs use this name


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Random numbers in [a, b)."""
    return _c.init_uniform(tensor, a, b)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Random numbers of a normal distribution."""
    return _c.init_normal(tensor, mean, std)


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Random numbers of the part of a normal distribution that is in a .. b."""
    if std == 0:
        return constant_(tensor, mean)
    if math.isclose(a - mean, -2 * std) and math.isclose(b - mean, 2 * std):
        return _c.init_trunc_normal(tensor, mean, std)
    # By rejection: draws that are outside are replaced by the next ones, for so many rounds that one of 1e12 is left,
    # which is clamped.
    low, high = (a - mean) / std, (b - mean) / std
    inside = 0.5 * (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2)))
    if inside < 0.3:
        raise NotImplementedError(f"trunc_normal_: only {inside:.2g} of the distribution is in {a} .. {b}")
    shape, context = tensor.shape, tensor.context
    x = _c.randn("float32", shape, context=context)
    rounds = math.ceil(-28 / math.log(max(1 - inside, 1e-12)))
    for _ in range(rounds):
        x = _c.where((x >= low) & (x <= high), x, _c.randn("float32", shape, context=context))
    _c.assign(tensor.detach(), _c.clamp(x * std + mean, a, b))
    return tensor


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One number."""
    return _c.init_constant(tensor, val)


def ones_(tensor: Tensor) -> Tensor:
    return _c.init_constant(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    return _c.init_constant(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    if tensor.ndim != 2:
        raise ValueError("eye_: only matrices have a diagonal")
    _c.assign(tensor.detach(), _c.eye(tensor.dtype, *tensor.shape, context=tensor.context))
    return tensor


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Uniform, scaled by fan-in + fan-out."""
    fan_in, fan_out = _fans(tensor)
    bound = gain * math.sqrt(6 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Normal, scaled by fan-in + fan-out."""
    fan_in, fan_out = _fans(tensor)
    return normal_(tensor, 0, gain * math.sqrt(2 / (fan_in + fan_out)))


def _kaiming(t: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode must be fan_in or fan_out, not {mode!r}")
    return calculate_gain(nonlinearity, a) / math.sqrt(_fans(t)[mode == "fan_out"])


def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Uniform, scaled by fan-in or fan-out."""
    bound = math.sqrt(3) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Normal, scaled by fan-in or fan-out."""
    return normal_(tensor, 0, _kaiming(tensor, a, mode, nonlinearity))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """A matrix, of the first axis by all others, whose rows or columns are orthogonal, at random."""
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: a tensor of shape {tensor.shape} is no matrix")
    n, m = tensor.shape[0], math.prod(tensor.shape[1:])
    x = _c.randn("float32" if tensor.dtype.itemsize < 8 else "float64", (min(n, m), max(n, m)), context=tensor.context)
    # The orthogonal factor of a normal matrix is uniform among the orthogonal ones. These iterations only change the
    # singular values: the first bring all of them, however small, near 1, the last to 1 by squaring the error.
    x = x / _c.norm_all(x)
    for a, b, c in [(3.4445, -4.7750, 2.0315)] * 14 + [(1.5, -0.5, 0.0)] * 6:
        square = x @ x.mT
        x = x * a + (square * b + (square @ square) * c if c else square * b) @ x
    _c.assign(tensor.detach(), _c.reshape((x if n <= m else x.mT) * gain, tensor.shape))
    return tensor
