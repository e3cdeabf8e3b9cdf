"""NumPy's indexing by tensors, arrays, lists and masks, and writes to a part of a tensor.

Integers, slices, None and ... make views, in core/py_tensor.c. What is here records one index_select or one scatter: the
axes that integer arrays index are joined into one, and the arrays into one index of it,

    x[:, i, j]   of (A, B, C)  ->  index_select(x.reshape(A, B * C), 1, i * C + j)

A mask counts as the array of the places where it is true. To read by a mask is to wait for it, since the shape of the
result depends on it; so does `x[mask] = v` if v has a value for each place, and not if v is a number or broadcasts.
"""
from __future__ import annotations

import builtins
from math import prod
from operator import index as as_int
from typing import Any, Sequence

from . import _c
from ._dtypes import bool_, int32, int64

WRONG = "only integers, slices, None, ... and arrays of integers or bools are indices"


class Array:
    """An index array of a key: `index`, an integer tensor whose shape takes part in broadcasting, counts through `axes`
    axes of the tensor. A mask that is not read yet is in `mask`. `negative`: the numbers are not checked yet, and may
    count from the end."""

    __slots__ = ("index", "mask", "axes", "negative")

    def __init__(self, index: Any, axes: int = 1, mask: Any = None, negative: bool = False) -> None:
        self.index, self.axes, self.mask, self.negative = index, axes, mask, negative

    def known(self) -> Any:
        """The index, for which a mask is read."""
        if self.index is None:
            self.index = _c.true_places(self.mask)
        return self.index


class NewAxis(Array):
    """True or False as an index: an axis of one or no element."""

    __slots__ = ()


def _part(x: Any, part: Any, axis: int) -> Any:
    """One part of a key: as it is if it makes a view, otherwise an Array, or a mask whose axes are not known yet."""
    if part is None or part is Ellipsis or isinstance(part, builtins.slice):
        return part
    if isinstance(part, builtins.bool):
        return NewAxis(_c.index_array([0] if part else [], 1, axis, x.context))
    if isinstance(part, _c.Tensor):
        return part
    if isinstance(part, (list, tuple, range)):
        return part if len(part) else _c.index_array([], 0, axis, x.context)
    if not getattr(part, "ndim", 0) and getattr(getattr(part, "dtype", None), "kind", "") != "b":
        try:
            return as_int(part)  # also NumPy's integers, but not its bools, which NumPy 1 lets pass for integers
        except TypeError:
            pass
    return part if _is_array(part) else _wrong(part)


def _is_array(o: Any) -> bool:
    return hasattr(o, "__array__") or hasattr(o, "__dlpack__") or isinstance(o, memoryview)


def _wrong(part: Any) -> Any:
    raise IndexError(f"{WRONG}, not {type(part).__name__}")


def _array(x: Any, part: Any, axis: int) -> Array:
    """The Array of a tensor, list or array that stands for the axes from `axis` on."""
    host = None
    if not isinstance(part, _c.Tensor):
        host = part if not isinstance(part, range) else list(part)
        try:
            part = _c.from_object(host, x.context)
        except (TypeError, ValueError):
            _wrong(host)
    if part.dtype is bool_:
        if not part.ndim:
            return NewAxis(_c.true_places(part.reshape(1)))
        if part.shape != x.shape[axis:axis + part.ndim]:
            raise IndexError(f"a mask of shape {part.shape} does not fit a tensor of shape {x.shape} at axis {axis}")
        return Array(None, part.ndim, part)
    if part.dtype.kind not in "iu":
        raise IndexError(f"{WRONG}, not of {part.dtype.name}")
    if axis >= x.ndim:
        raise IndexError(f"too many indices for a tensor of {x.ndim} axes")
    if host is not None:
        return Array(_c.index_array(host, x.shape[axis], axis, x.context))
    return Array(part if part.dtype in (int32, int64) else _c.cast(part, int64), negative=True)


class Places:
    """What a key with arrays stands for in x.

    `view` is x under the parts that make views, with the axes of `arrays` next to each other at `at`. The result's axes
    are those of the view, with the `shape` that the arrays broadcast to instead of theirs, at `to`."""

    def __init__(self, x: Any, key: tuple[Any, ...]) -> None:
        parts, ellipsis = [], False
        used = 0  # axes of x that the parts so far stand for; what follows ... is counted from the end
        for part in key:
            part = _part(x, part, used)
            if part is Ellipsis:
                if ellipsis:
                    raise IndexError("an index has one ellipsis at most")
                ellipsis = True
            used += _axes_of(part)
            parts.append(part)
        if used > x.ndim:
            raise IndexError(f"{used} indices for a tensor of {x.ndim} axes")
        if not ellipsis:
            parts.append(Ellipsis)
        self._place(x, parts, x.ndim - used)

    def _place(self, x: Any, parts: list[Any], skip: int) -> None:
        """Finds the view and the places of its axes; `...` stands for `skip` axes."""
        plain: list[Any] = []
        axes: list[int] = []  # of the view, that arrays index
        self.arrays: list[Array] = []
        axis = out = 0  # axes of x, and of the view, before the next part
        runs: list[int] = []  # of neighbouring arrays and integers: where in the result each begins
        inside = False
        for part in parts:
            is_view = part is None or part is Ellipsis or isinstance(part, builtins.slice)
            if not is_view and not inside:
                runs.append(out - len(axes))
            inside = not is_view
            taken, made = skip if part is Ellipsis else part is not None, skip if part is Ellipsis else is_view
            if not is_view and not isinstance(part, int):
                array = part if isinstance(part, NewAxis) else _array(x, part, axis)
                taken, made = 0 if isinstance(array, NewAxis) else array.axes, array.axes
                self.arrays.append(array)
                axes += range(out, out + made)
                plain += [builtins.slice(None) if taken else None] * made
            else:
                plain.append(part)
            axis, out = axis + taken, out + made
        self.view = x[tuple(plain)]
        self.to = runs[0] if len(runs) == 1 else 0
        n = len(axes)
        adjacent = axes == list(range(axes[0], axes[0] + n)) if axes else True
        self.at = axes[0] if axes and adjacent else 0
        if not adjacent:
            rest = [i for i in range(self.view.ndim) if i not in axes]
            self.view = _c.permute(self.view, axes + rest)
        self.joined = n
        self.sizes = self.view.shape[self.at:self.at + n]

    def index(self) -> Any:
        """The arrays as one index of the joined axes; `shape` is theirs."""
        if len(self.arrays) == 1:
            index = self.arrays[0].known()
            self.shape = index.shape
            return index
        try:
            self.shape = broadcast(*(a.known().shape for a in self.arrays))
        except ValueError as e:
            raise IndexError(f"index arrays {e}") from None
        total, index, outside, place = prod(self.sizes), None, None, len(self.sizes)
        stride = 1
        for a in self.arrays[::-1]:
            size = prod(self.sizes[place - a.axes:place])
            place -= a.axes
            i = _c.cast(a.index, int64)
            if a.negative:
                # An index of one axis that is out of its range must not become one of its neighbours.
                wrong = _c.logical_or(i < -size, i >= size)
                outside = wrong if outside is None else _c.logical_or(outside, wrong)
                i = _c.where(i < 0, i + size, i)
            i = i * stride if stride != 1 else i
            index = i if index is None else index + i
            stride *= size
        return index if outside is None else _c.where(outside, total, index)

    def joined_view(self) -> Any:
        shape = self.view.shape
        if self.joined == 1:
            return self.view
        return _c.reshape(self.view, shape[:self.at] + (prod(self.sizes),) + shape[self.at + self.joined:])

    def moved(self, y: Any, source: int, to: int) -> Any:
        """y with the arrays' axes at another place."""
        n = len(self.shape)
        if source == to or not n:
            return y
        axes = [i for i in range(y.ndim) if not source <= i < source + n]
        axes[to:to] = range(source, source + n)
        return _c.permute(y, axes)

    def flat(self, index: Any) -> Any:
        return _c.reshape(_c.expand(index, self.shape), (prod(self.shape),))

    def read(self) -> Any:
        index = self.index()
        shape = self.view.shape
        y = _c.index_select(self.joined_view(), self.at, self.flat(index))
        y = _c.reshape(y, shape[:self.at] + self.shape + shape[self.at + self.joined:])
        return self.moved(y, self.at, self.to)

    def write(self, value: Any) -> None:
        a = self.arrays[0]
        if len(self.arrays) == 1 and a.index is None and self._write_masked(a.mask, value):
            return
        index = self.index()
        base = self.view.shape
        rest = base[:self.at] + base[self.at + self.joined:]
        shape = rest[:self.to] + self.shape + rest[self.to:]
        value = _c.expand(_fit(value, shape, self.view), shape)
        joined = base[:self.at] + (prod(self.shape),) + base[self.at + self.joined:]
        value = _c.reshape(self.moved(value, self.to, self.at), joined)
        if not value.size:
            return
        flat = self.flat(index)
        wide = [1] * value.ndim
        wide[self.at] = flat.size
        y = _c.scatter(self.joined_view(), self.at, _c.expand(_c.reshape(flat, wide), value.shape), value)
        _c.assign(self.view, _c.reshape(y, base))

    def _write_masked(self, mask: Any, value: Any) -> bool:
        """Writes a value that is the same for all places of the mask, without waiting for the mask."""
        base = self.view.shape
        rest = base[:self.to] + (1,) + base[self.to + self.joined:] if self.to == self.at else None
        if rest is None:
            return False
        value = _fit(value, None, self.view)
        try:
            if broadcast(value.shape, rest) != rest:
                return False
        except ValueError:
            return False  # perhaps it has one value for each place
        after = len(base) - self.at - self.joined
        if value.ndim > after:  # the axis of places is there, of size 1
            shape = value.shape[:value.ndim - after - 1] + (1,) * self.joined + value.shape[value.ndim - after:]
            value = _c.reshape(value, shape)
        mask = _c.reshape(mask, mask.shape + (1,) * after)
        _c.assign(self.view, _c.where(mask, value, self.view))
        return True


def _axes_of(part: Any) -> int:
    """The axes of x that a part of a key stands for."""
    if part is None or part is Ellipsis or isinstance(part, NewAxis):
        return 0
    if isinstance(part, (int, builtins.slice)):
        return 1
    if isinstance(part, (list, tuple, range)):
        depth, first = 0, part
        while isinstance(first, (list, tuple)) and len(first):
            first, depth = first[0], depth + 1
        return depth if isinstance(first, builtins.bool) or getattr(first, "dtype", None) == bool else 1
    dtype = str(getattr(part, "dtype", getattr(part, "format", "")))
    is_mask = dtype.rpartition(".")[2] in ("bool", "?")
    return part.ndim if is_mask else 1


def broadcast(*shapes: Sequence[int]) -> tuple:
    """The shape that shapes broadcast to."""
    rank = max(map(len, shapes))
    out = [1] * rank
    for shape in shapes:
        for i, n in enumerate(shape, rank - len(shape)):
            if n != 1 and out[i] not in (1, n):
                raise ValueError(f"of shapes {', '.join(str(tuple(s)) for s in shapes)} do not broadcast")
            if n != 1:
                out[i] = n
    return tuple(out)


def _fit(value: Any, shape: Any, x: Any) -> Any:
    """A value to be written into x, with x's dtype, and without axes of size 1 in front for which a shape has no room."""
    if not isinstance(value, _c.Tensor):
        value = _c.from_object(value, x.context)
    if value.dtype is not x.dtype:
        value = _c.cast(value, x.dtype)
    rank = x.ndim if shape is None else len(shape)
    while value.ndim > rank and value.shape[0] == 1:
        value = value[0]
    return value


def _is_plain(key: Any) -> bool:
    return key is None or key is Ellipsis or isinstance(key, builtins.slice) or \
        isinstance(key, int) and not isinstance(key, builtins.bool)


def get(x: Any, key: Any) -> Any:
    """x[key] for a key of which a part is an array, a list or a number that is not Python's."""
    places = Places(x, key if isinstance(key, tuple) else (key,))
    return places.read() if places.arrays else places.view


def set(x: Any, key: Any, value: Any) -> None:
    """x[key] = value."""
    key = key if isinstance(key, tuple) else (key,)
    if all(map(_is_plain, key)):
        view = x[key]
    else:
        places = Places(x, key)
        if places.arrays:
            return places.write(value)
        view = places.view
    if isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > view.ndim:
        value = _fit(value, view.shape, view)
    _c.assign(view, value)
