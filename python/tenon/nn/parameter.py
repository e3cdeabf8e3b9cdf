"""Parameters: the tensors of a module that are trained."""
from __future__ import annotations

import weakref
from typing import Any

from .. import _c
from .._functions import asarray
from .._tensor import Tensor

__all__ = ["Parameter"]


class Parameter(Tensor):
    """A tensor that a Module has as a parameter when it is one of its attributes, and that requires a gradient."""

    __slots__ = ()

    def __new__(cls, data: Any, requires_grad: bool = True) -> Parameter:
        data = asarray(data)
        if data.requires_grad:  # a leaf of its own, not a result of the other
            data = _c.clone(data.detach())
        p = _c.Tensor.__new__(cls, data)
        if requires_grad:
            p.requires_grad = True
        return p

    @property
    def data(self) -> Tensor:
        """The same elements without gradient history: a write to it changes the parameter."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        rebind(self, asarray(value))

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict) -> Parameter:
        copy = memo[id(self)] = Parameter(_c.clone(self.detach()), self.requires_grad)
        return copy

    def __reduce__(self) -> Any:
        return _unpickle, (_c.read_bytes(self), self.dtype.name, self.shape, self.requires_grad)


def _unpickle(data: bytes, dtype: str, shape: Any, requires_grad: bool) -> Parameter:
    return Parameter(_c.from_bytes(data, dtype, shape), requires_grad)


# Optimizers, whose _rebound(x) is called for each object x that stands for another tensor.
watchers: weakref.WeakSet[Any] = weakref.WeakSet()


def rebind(x: Tensor, value: Tensor) -> None:
    """Makes x, the object, stand for another tensor, so that all that hold x have the new one."""
    if x is value:
        return
    requires_grad = x.requires_grad
    _c.rebind(x, value.detach())
    if requires_grad:
        x.requires_grad = True
    rebound(x)


def rebound(x: Tensor) -> None:
    """Tells the optimizers that x, the object, stands for another tensor now."""
    for w in list(watchers):
        w._rebound(x)
