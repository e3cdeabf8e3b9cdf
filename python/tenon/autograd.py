"""Switches of autograd, and gradients as values."""
from __future__ import annotations

import functools
import threading
from typing import Any, Callable

from . import _c
from ._dtypes import DTypeLike, as_dtype, bfloat16, float32
from ._errors import GradError
from ._functions import is_device
from ._tensor import Tensor

_GENERATOR = 0x20  # inspect.CO_GENERATOR: that module is slow to import


class _Mode:
    """A setting of this thread during a `with` block or the calls of a function."""

    _set: Any  # sets it and returns what was set before
    mode: Any

    def _entries(self) -> list[Any]:
        """What was set before each entry of this thread: one object may be entered by several, and inside itself."""
        return _entered.by_id.setdefault(id(self), [])

    def __enter__(self) -> Any:
        self._entries().append(type(self)._set(self.mode))
        return self

    def __exit__(self, *unused: Any) -> None:
        entries = self._entries()
        type(self)._set(entries.pop())
        if not entries:
            del _entered.by_id[id(self)]

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        change, mode = type(self)._set, self.mode
        code = getattr(function, "__code__", None)
        if code is not None and code.co_flags & _GENERATOR:
            return _around_generator(change, mode, function)

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            before = change(mode)
            try:
                return function(*args, **kwargs)
            finally:
                change(before)
        return inside


class _Entered(threading.local):
    def __init__(self) -> None:
        self.by_id: dict[int, list[Any]] = {}  # of a _Mode, which lives as long as its block


_entered = _Entered()


def _around_generator(change: Any, mode: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A generator function whose code runs in a mode and whose caller, between two items, does not."""
    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        resume, given = generator.send, None
        try:
            while True:
                before = change(mode)
                try:
                    item = resume(given)
                except StopIteration as end:
                    return end.value
                finally:
                    change(before)
                try:
                    given = yield item
                    resume = generator.send
                except GeneratorExit:
                    raise
                except BaseException as error:  # what the caller throws into it
                    resume, given = generator.throw, error
        finally:
            before = change(mode)
            try:
                generator.close()
            finally:
                change(before)
    return inside


class set_grad_enabled(_Mode):
    """Turns the recording of gradient history on or off, at once and, in a `with` block, until its end."""

    _set: Any = staticmethod(_c.grad_mode)

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self._first: bool | None = _c.grad_mode(self.mode)

    def __enter__(self) -> Any:
        super().__enter__()
        if self._first is not None:  # what was set before the object was made
            self._entries()[-1] = self._first
            self._first = None
        return self

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self._first is not None:  # a decorator changes nothing outside of the function
            _c.grad_mode(self._first)
            self._first = None
        return super().__call__(function)


class _GradMode(_Mode):
    _set: Any = staticmethod(_c.grad_mode)
    mode = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        self = super().__new__(cls)
        return self if function is None else self(function)  # @no_grad without parentheses


class no_grad(_GradMode):
    """In its `with` block, or in the function that it decorates, ops record no gradient history."""


inference_mode = no_grad


class enable_grad(_GradMode):
    """In its `with` block, or in the function that it decorates, ops record gradient history."""

    mode = True


def is_grad_enabled() -> bool:
    """Whether ops of this thread record gradient history."""
    return _c.is_grad_enabled()


class autocast(_Mode):
    """Mixed precision in a `with` block or a function: products in dtype, what needs range or digits in float32.

    autocast("cuda", dtype=tn.bfloat16) is PyTorch's form: the device is that of the context, whatever is named.
    """

    _set: Any = staticmethod(_c.autocast)

    def __init__(self, device_type: Any = None, dtype: DTypeLike | None = None, enabled: bool = True) -> None:
        if dtype is None and device_type is not None and not is_device(device_type):
            dtype = device_type
        self.mode = self.dtype = as_dtype(bfloat16 if dtype is None else dtype) if enabled else float32


# ---- gradients as values


def _many(x: Any) -> tuple[list[Any], bool]:
    return ([x], True) if x is None or isinstance(x, _c.Tensor) else (list(x), False)


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, *, create_graph: bool = False,
         allow_unused: bool = True) -> tuple[Tensor, ...]:
    """The gradients of outputs, each times its grad_outputs, by inputs: a tuple, also of one.

    They are zeros for an input that the outputs do not depend on; with allow_unused=False that is an error. With
    create_graph they can be differentiated again. Stored gradients do not change.
    """
    ys, _ = _many(outputs)
    xs, _ = _many(inputs)
    given = None if grad_outputs is None else _many(grad_outputs)[0]
    if not allow_unused:
        _refuse_unused(ys, xs)
    with set_grad_enabled(create_graph):
        gx = _c.grad(ys, xs, given)
    return tuple(gx)


def _refuse_unused(ys: list[Any], xs: list[Any]) -> None:
    """Raises an error if no output depends on some input."""
    # A gradient is linear in grad_outputs, so it depends on them if and only if the outputs depend on the input. It is
    # recorded, not computed.
    with set_grad_enabled(True):
        seeds = [_c.ones_like(y.detach()) for y in ys]
        for g in seeds:
            g.requires_grad = True
        unused = [i for i, g in enumerate(_c.grad(ys, xs, seeds)) if not g.requires_grad]
    if unused:
        raise GradError(f"grad: no gradient reaches input {unused[0]} from the outputs; allow_unused=True gives zeros "
                        "for it")


def gradcheck(function: Callable[..., Tensor], inputs: Any, *, second: bool = False) -> bool:
    """Compares the gradients of a function at float64 tensors with finite differences; raises GradError if they differ.

    With second, those of its gradients.
    """
    _c.gradcheck(function, _many(inputs)[0], second)
    return True


def gradgradcheck(function: Callable[..., Tensor], inputs: Any) -> bool:
    """gradcheck of the gradients of a function."""
    return gradcheck(function, inputs, second=True)


class Function:
    """Not there: what PyTorch writes as a class is an op here, tn.op()."""

    def __init_subclass__(cls) -> None:
        raise NotImplementedError(f"{cls.__name__}: Tenon has no autograd.Function; tn.op(expression, gradients) and "
                                  "tn.op(compute=function, grad=function) make ops with a gradient of the program's own")
