"""Helpers for training, with the names and arguments of torch.nn.utils."""
from __future__ import annotations

import math
from typing import Any, Iterable

from .. import _c
from .._tensor import Tensor
from ..autograd import no_grad
from .module import Module


def _gradients(parameters: Any) -> list[Tensor]:
    if isinstance(parameters, Module):
        parameters = parameters.parameters()
    elif isinstance(parameters, _c.Tensor):
        parameters = [parameters]
    return [p.grad for p in parameters if p.grad is not None]


def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False) -> Tensor:
    """Scales the gradients so that their common norm is at most max_norm. Returns the norm before, not read yet."""
    grads = _gradients(parameters)
    if not grads:
        return _c.zeros("float32", ())
    with no_grad():
        if norm_type == math.inf:
            total = _c.max_all(_c.stack([_c.cast(_c.max_all(_c.abs(g)), "float32") for g in grads], 0))
        else:
            powers = [_c.sum_all(_c.square(f) if norm_type == 2 else _c.abs(f) ** norm_type)
                      for f in (_c.cast(g, "float32") for g in grads)]
            total = _c.sum_all(_c.stack(powers, 0))
            total = _c.sqrt(total) if norm_type == 2 else total ** (1 / norm_type)
        if error_if_nonfinite and not bool(_c.isfinite(total)):
            raise RuntimeError(f"the norm of the gradients is {total.item()}, so that they cannot be clipped")
        scale = _c.clamp(max_norm / (total + 1e-6), 0, 1)
        for g in grads:
            _c.mul_(g, scale)
    return total


def clip_grad_value_(parameters: Any, clip_value: float) -> None:
    """Limits every element of the gradients to -clip_value .. clip_value."""
    for g in _gradients(parameters):
        _c.clamp_(g, -clip_value, clip_value)


def get_total_norm(tensors: Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """The common norm of tensors."""
    return _c.sum_all(_c.stack([_c.sum_all(_c.abs(t) ** norm_type) for t in tensors], 0)) ** (1 / norm_type)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of these parameters, one after the other."""
    return _c.concat([_c.reshape(p, (-1,)) for p in parameters], 0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Writes the elements of a vector into these parameters."""
    at = 0
    for p in parameters:
        _c.assign(p.detach(), _c.reshape(_c.slice(vec.detach(), 0, at, at + p.size, 1), p.shape))
        at += p.size
