"""Helpers for training, with the names and arguments of torch.nn.utils."""
from __future__ import annotations

import math
from typing import Any, Iterable

from .. import _c
from .._tensor import Tensor
from ..autograd import no_grad
from .module import Module, Parameter


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


# ---- normalized weights

class _Normalized:
    """A forward pre-hook that computes a weight from others."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def apply(self, module: Module) -> None:
        if any(isinstance(h, _Normalized) and h.name == self.name for h in
               (module._forward_pre_hooks or {}).values()):
            raise RuntimeError(f"{type(module).__name__}: {self.name!r} is normalized already")
        weight = getattr(module, self.name)
        delattr(module, self.name)
        self.split(module, weight.detach())
        module.__dict__[self.name] = weight.detach()
        self.handle = module.register_forward_pre_hook(self)

    def remove(self, module: Module) -> None:
        with no_grad():
            weight = Parameter(self.compute(module, False).clone())
        module.__dict__.pop(self.name, None)
        self.handle.remove()
        for part in self.PARTS:
            delattr(module, self.name + part)
        module.register_parameter(self.name, weight)

    def __call__(self, module: Module, args: Any) -> None:
        module.__dict__[self.name] = self.compute(module)

    PARTS: tuple[str, ...] = ()

    def split(self, module: Module, weight: Tensor) -> None:
        raise NotImplementedError

    def compute(self, module: Module, training: bool = True) -> Tensor:
        raise NotImplementedError


class _WeightNorm(_Normalized):
    PARTS = ("_g", "_v")

    def lengths(self, v: Tensor) -> Tensor:
        if self.dim is None or self.dim == -1:  # both mean one length, as in PyTorch
            return _c.norm_all(v)
        others = [i for i in range(v.ndim) if i != self.dim]
        return _c.norm_axes(v, others, True) if others else _c.abs(v)

    def split(self, module: Module, weight: Tensor) -> None:
        module.register_parameter(self.name + "_g", Parameter(self.lengths(weight)))
        module.register_parameter(self.name + "_v", Parameter(weight.clone()))

    def compute(self, module: Module, training: bool = True) -> Tensor:
        v = getattr(module, self.name + "_v")
        return v * (getattr(module, self.name + "_g") / self.lengths(v))


class _SpectralNorm(_Normalized):
    PARTS = ("_orig", "_u", "_v")

    def __init__(self, name: str, dim: int, iterations: int, eps: float) -> None:
        super().__init__(name, dim)
        self.iterations, self.eps = iterations, eps

    def unit(self, x: Tensor) -> Tensor:
        n = _c.norm_all(x)
        return x / _c.maximum(n, _c.full_like(n, self.eps))

    def matrix(self, w: Tensor) -> Tensor:
        dim = (self.dim or 0) % w.ndim
        if dim:
            w = _c.permute(w, [dim] + [i for i in range(w.ndim) if i != dim])
        return _c.reshape(w, (w.shape[0], -1))

    def split(self, module: Module, weight: Tensor) -> None:
        h, n = self.matrix(weight).shape
        module.register_parameter(self.name + "_orig", Parameter(weight.clone()))
        for part, size in (("_u", h), ("_v", n)):
            start = self.unit(_c.randn("float32", (size,), context=weight.context))
            module.register_buffer(self.name + part, _c.cast(start, weight.dtype))

    def compute(self, module: Module, training: bool = True) -> Tensor:
        w = getattr(module, self.name + "_orig")
        m, u, v = self.matrix(w), getattr(module, self.name + "_u").clone(), getattr(module, self.name + "_v").clone()
        if module.training and training:
            with no_grad():
                fixed = m.detach()
                for _ in range(self.iterations):
                    v = self.unit(_c.matmul(_c.transpose(fixed, 0, 1), u))
                    u = self.unit(_c.matmul(fixed, v))
                _c.assign(getattr(module, self.name + "_u"), u)
                _c.assign(getattr(module, self.name + "_v"), v)
        return w / _c.sum_all(u * _c.matmul(m, v))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """From now on the weight is weight_g * weight_v / |weight_v|; returns the module."""
    _WeightNorm(name, dim).apply(module)
    return module


def spectral_norm(module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> Any:
    """From now on the weight is weight_orig divided by its largest singular value; returns the module."""
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    _SpectralNorm(name, dim, n_power_iterations, eps).apply(module)
    return module


class _Masked(_Normalized):
    PARTS = ("_orig", "_mask")

    def __init__(self, name: str, mask: Tensor) -> None:
        super().__init__(name, None)
        self.mask = mask

    def split(self, module: Module, weight: Tensor) -> None:
        if self.mask.shape != weight.shape:
            raise ValueError(f"a mask {tuple(self.mask.shape)} is not one of {self.name} {tuple(weight.shape)}")
        module.register_parameter(self.name + "_orig", Parameter(weight.clone()))
        module.register_buffer(self.name + "_mask", _c.cast(self.mask.detach() != 0, weight.dtype))

    def compute(self, module: Module, training: bool = True) -> Tensor:
        return getattr(module, self.name + "_orig") * getattr(module, self.name + "_mask")


class prune:
    """torch.nn.utils.prune, as far as it is here: weights under a mask that training keeps, such as that of prune_2_4."""

    @staticmethod
    def custom_from_mask(module: Any, name: str, mask: Any) -> Any:
        """From now on the weight is weight_orig * weight_mask; returns the module."""
        _Masked(name, mask).apply(module)
        return module

    @staticmethod
    def remove(module: Any, name: str) -> Any:
        """The weight is a parameter again, with zeros where the mask has them."""
        return _remove(_Masked, module, name)


def _remove(kind: type[_Normalized], module: Any, name: str) -> Any:
    for hook in list((module._forward_pre_hooks or {}).values()):
        if isinstance(hook, kind) and hook.name == name:
            hook.remove(module)
            return module
    raise ValueError(f"{name!r} of {type(module).__name__} is not normalized")


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """The weight is a parameter again, with the value that it has now."""
    return _remove(_WeightNorm, module, name)


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """The weight is a parameter again, with the value that it has now."""
    return _remove(_SpectralNorm, module, name)
