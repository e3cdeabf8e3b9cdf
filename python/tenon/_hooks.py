"""What PyTorch does in the middle of a backward pass: hooks of leaves, and gradients of tensors that are no leaves."""
from __future__ import annotations

import weakref
from typing import Any, Callable

from . import _c
from ._errors import Error


class Handle:
    """A hook that was registered; remove() ends it."""

    def __init__(self, x: Any, hook: Callable[[Any], Any]) -> None:
        self._key = id(x)
        self.hook = hook
        if self._key not in _hooks:
            _hooks[self._key] = (weakref.ref(x), [])
            weakref.finalize(x, _hooks.pop, self._key, None)
        _hooks[self._key][1].append(self)

    def remove(self) -> None:
        """Ends the hook."""
        x, handles = _hooks.get(self._key, (None, []))
        if self in handles:
            handles.remove(self)
        if x is not None and not handles:
            del _hooks[self._key]


class ValueHandle:
    """A hook of a tensor that is no leaf; it ends with the tensor's history, or by remove()."""

    def __init__(self, x: Any, hook: Callable[[Any], Any]) -> None:
        self._number, self._context = _c.hook_add(x, hook), x.context

    def remove(self) -> None:
        """Ends the hook."""
        _c.hook_remove(self._number, self._context)


# By the id of a tensor that lives: its hooks; a tensor whose gradient is kept.
_hooks: dict[int, tuple[weakref.ref[Any], list[Handle]]] = {}
_retained: dict[int, weakref.ref[Any]] = {}


def retain(x: Any) -> None:
    """From now on backward passes keep the gradient of x."""
    if id(x) not in _retained:
        _retained[id(x)] = weakref.ref(x)
        weakref.finalize(x, _retained.pop, id(x), None)


def active() -> bool:
    """Whether a backward pass has anything to do here."""
    return bool(_hooks or _retained)


def keep_gradients(y: Any, gradient: Any) -> None:
    """Adds the gradients of y to those of the tensors that keep theirs."""
    for key, found in list(_retained.items()):
        x = found()
        if x is None or x.context is not y.context:
            continue
        try:
            g = _c.grad([y], [x], None if gradient is None else [gradient])[0]
        except Error:  # its history was freed: it belongs to an earlier step
            _retained.pop(key, None)
            continue
        x._keep_grad(g if x.grad is None else x.grad + g)


def hooked(parameters: Any) -> bool:
    """Whether one of the tensors has a hook."""
    return any(id(p) in _hooks for p in parameters)


def backward(y: Any, gradient: Any) -> None:
    """A backward pass: the hooks of each leaf get its gradient, before that is added to an earlier one."""
    keep_gradients(y, gradient)
    leaves = [(x, list(handles)) for x, handles in ((found(), handles) for found, handles in list(_hooks.values()))
              if x is not None and x.context is y.context]
    before = [x.grad for x, _ in leaves]
    for x, _ in leaves:
        x.grad = None
    _c.backward(y, gradient)
    for (x, handles), old in zip(leaves, before):
        g = x.grad
        if g is not None:
            for handle in handles:
                changed = handle.hook(g)
                g = g if changed is None else changed
            x.grad = g if old is None else old + g
        else:
            x.grad = old
