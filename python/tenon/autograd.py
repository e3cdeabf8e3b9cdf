"""Switches of autograd, and gradients as values."""
from __future__ import annotations

import functools
from typing import Any, Callable

from . import _c
from ._dtypes import DTypeLike, as_dtype, bfloat16, float32
from ._tensor import Tensor


class _Mode:
    """A setting of the current context during a `with` block or the calls of a function."""

    _stack: list[tuple[_c.Context, Any]]

    def _set(self, context: _c.Context) -> Any:
        raise NotImplementedError

    def _restore(self, context: _c.Context, before: Any) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        context = _c.current_context()
        before = self._set(context)
        # One object may be entered again inside itself.
        self.__dict__.setdefault("_stack", []).append((context, before))
        return self

    def __exit__(self, *unused: Any) -> None:
        context, before = self._stack.pop()
        if not context.closed:
            self._restore(context, before)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)
        return inside


class set_grad_enabled(_Mode):
    """Turns the recording of gradient history on or off, at once and, in a `with` block, until its end."""

    def __init__(self, mode: bool) -> None:
        self._mode = bool(mode)
        context = _c.current_context()
        self._first: tuple[Any, Any] = (context, _c.grad_mode(self._mode, context=context))

    def _set(self, context: _c.Context) -> bool:
        before = _c.grad_mode(self._mode, context=context)
        first, self._first = self._first, (None, None)
        return first[1] if first[0] is context else before

    def _restore(self, context: _c.Context, before: bool) -> None:
        _c.grad_mode(before, context=context)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        context, before = self._first
        if context is not None:  # a decorator changes nothing outside of the function
            _c.grad_mode(before, context=context)
            self._first = (None, None)
        return super().__call__(function)


class _GradMode(_Mode):
    mode = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        self = super().__new__(cls)
        return self if function is None else self(function)  # @no_grad without parentheses

    def _set(self, context: _c.Context) -> bool:
        return _c.grad_mode(self.mode, context=context)

    def _restore(self, context: _c.Context, before: bool) -> None:
        _c.grad_mode(before, context=context)


class no_grad(_GradMode):
    """In its `with` block, or in the function that it decorates, ops record no gradient history."""


inference_mode = no_grad


class enable_grad(_GradMode):
    """In its `with` block, or in the function that it decorates, ops record gradient history."""

    mode = True


def is_grad_enabled() -> bool:
    """Whether ops record gradient history."""
    before = _c.grad_mode(True)
    if not before:
        _c.grad_mode(False)
    return before


class autocast(_Mode):
    """Mixed precision in a `with` block or a function: products in dtype, what needs range or digits in float32.

    autocast("cuda", dtype=tn.bfloat16) is PyTorch's form: the device is that of the context, whatever is named.
    """

    def __init__(self, device_type: Any = None, dtype: DTypeLike | None = None, enabled: bool = True) -> None:
        if dtype is None and device_type is not None and not (
                isinstance(device_type, str) and device_type.partition(":")[0] in ("cpu", "cuda", "opencl", "ref")):
            dtype = device_type
        self.dtype = as_dtype(bfloat16 if dtype is None else dtype) if enabled else float32

    def _set(self, context: _c.Context) -> Any:
        return _c.autocast(self.dtype, context=context)

    def _restore(self, context: _c.Context, before: Any) -> None:
        _c.autocast(before, context=context)


# ---- gradients as values


def _many(x: Any) -> tuple[list[Any], bool]:
    return ([x], True) if x is None or isinstance(x, _c.Tensor) else (list(x), False)


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, *, create_graph: bool = False,
         allow_unused: bool = True) -> tuple[Tensor, ...]:
    """The gradients of outputs, each times its grad_outputs, by inputs: a tuple, also of one.

    They are zeros for an input that the outputs do not depend on. With create_graph they can be differentiated again.
    Stored gradients do not change.
    """
    ys, _ = _many(outputs)
    xs, _ = _many(inputs)
    given = None if grad_outputs is None else _many(grad_outputs)[0]
    with set_grad_enabled(create_graph):
        gx = _c.grad(ys, xs, given)
    return tuple(gx)


def gradcheck(function: Callable[..., Tensor], inputs: Any, *, second: bool = False) -> bool:
    """Compares the gradients of a function at float64 tensors with finite differences; raises GradError if they differ.

    With second, those of its gradients.
    """
    _c.gradcheck(function, _many(inputs)[0], second)
    return True


def gradgradcheck(function: Callable[..., Tensor], inputs: Any) -> bool:
    """gradcheck of the gradients of a function."""
    return gradcheck(function, inputs, second=True)
