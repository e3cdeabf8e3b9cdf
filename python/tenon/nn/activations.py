"""Activations as modules, with the names and arguments of torch.nn."""
from __future__ import annotations

from typing import Any, Callable

from .. import _c
from .._tensor import Tensor
from . import functional as F
from . import init
from .layers import _empty
from .module import Module

__all__ = ["CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
           "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU", "ReLU6", "Sigmoid", "SiLU", "Softmax", "Softmax2d",
           "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold"]


class _Activation(Module):
    """An activation, whose arguments are attributes: ARGUMENTS has their names and defaults, in order."""

    ARGUMENTS: dict[str, Any] = {}
    SHOWN: tuple[str, ...] | None = None
    function: Callable[..., Tensor]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        names = list(self.ARGUMENTS)
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} takes at most {len(names)} arguments")
        given = dict(zip(names, args))
        for name, value in kwargs.items():
            if name not in self.ARGUMENTS or name in given:
                raise TypeError(f"{type(self).__name__}: {name}")
            given[name] = value
        for name, default in self.ARGUMENTS.items():
            value = given.get(name, default)
            if value is _NEEDED:
                raise TypeError(f"{type(self).__name__} misses its argument {name}")
            self.__dict__[name] = value

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, *[self.__dict__[n] for n in self.ARGUMENTS])

    def extra_repr(self) -> str:
        shown = [(n, self.__dict__[n]) for n in (self.SHOWN if self.SHOWN is not None else self.ARGUMENTS)]
        return ", ".join(f"{n}={v!r}" for n, v in shown if n != "inplace" or v)


_NEEDED = object()


def _activation(name: str, function: Callable[..., Tensor], direct: Callable[..., Tensor] | None = None,
                **arguments: Any) -> type[_Activation]:
    """A class; `direct` is the function of C that it is whatever its arguments say, which is called without a frame."""
    body: dict[str, Any] = {"ARGUMENTS": arguments, "function": staticmethod(function), "__doc__": function.__doc__,
                            "__module__": __name__}
    if direct is not None:
        body["forward"] = staticmethod(direct)
    return type(name, (_Activation,), body)


ReLU = _activation("ReLU", F.relu, _c.relu, inplace=False)
ReLU6 = _activation("ReLU6", F.relu6, inplace=False)
LeakyReLU = _activation("LeakyReLU", F.leaky_relu, negative_slope=0.01, inplace=False)
ELU = _activation("ELU", F.elu, alpha=1.0, inplace=False)
SELU = _activation("SELU", F.selu, inplace=False)
CELU = _activation("CELU", F.celu, alpha=1.0, inplace=False)
GELU = _activation("GELU", F.gelu, approximate="none")
SiLU = _activation("SiLU", F.silu, _c.silu, inplace=False)
Mish = _activation("Mish", F.mish, inplace=False)
Sigmoid = _activation("Sigmoid", F.sigmoid, _c.sigmoid)
Tanh = _activation("Tanh", F.tanh, _c.tanh)
Softplus = _activation("Softplus", F.softplus, beta=1.0, threshold=20.0)
LogSigmoid = _activation("LogSigmoid", F.logsigmoid)
Softsign = _activation("Softsign", F.softsign)
Tanhshrink = _activation("Tanhshrink", F.tanhshrink)
Softshrink = _activation("Softshrink", F.softshrink, lambd=0.5)
Hardshrink = _activation("Hardshrink", F.hardshrink, lambd=0.5)
Hardtanh = _activation("Hardtanh", F.hardtanh, min_val=-1.0, max_val=1.0, inplace=False)
Hardsigmoid = _activation("Hardsigmoid", F.hardsigmoid, inplace=False)
Hardswish = _activation("Hardswish", F.hardswish, _c.hardswish, inplace=False)
Threshold = _activation("Threshold", F.threshold, threshold=_NEEDED, value=_NEEDED, inplace=False)
GLU = _activation("GLU", F.glu, dim=-1)


class PReLU(Module):
    """leaky_relu with a slope, or one for each channel, that is trained."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = _empty((num_parameters,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class _AlongAxis(Module):
    function: Callable[..., Tensor]

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        dim = self.dim
        if dim is None:  # PyTorch's rule where none is given
            dim = 0 if input.ndim in (0, 1, 3) else 1
        return type(self).function(input, dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongAxis):
    """exp(x) / sum(exp(x)) along an axis."""

    function = staticmethod(_c.softmax)


class LogSoftmax(_AlongAxis):
    """log(softmax(x)) along an axis."""

    function = staticmethod(_c.log_softmax)


class Softmin(_AlongAxis):
    """softmax(-x) along an axis."""

    function = staticmethod(F.softmin)


class Softmax2d(Module):
    """softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return _c.softmax(input, -3)
