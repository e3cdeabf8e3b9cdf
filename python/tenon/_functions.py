"""Functions that Python has in another form than C: one for a family of C's, with defaults and names of NumPy and PyTorch."""
from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence, overload

from . import _c
from ._dtypes import FORMATS, DTypeLike, as_dtype, bool_, float32, int64
from ._exchange import borrowed, copied, rounded_float32

if TYPE_CHECKING:
    from ._tensor import Tensor

__all__ = ["tensor", "asarray", "zeros", "ones", "empty", "full", "full_like", "arange", "linspace", "eye", "rand",
           "randn", "randint", "randperm", "manual_seed", "sum", "mean", "prod", "max", "min", "var", "std", "norm",
           "logsumexp", "any", "all", "argmax", "argmin", "median", "cumsum", "cumprod", "count_nonzero", "amax",
           "amin", "sort", "topk", "argsort", "unique", "bincount", "nonzero", "as_tensor", "is_tensor", "empty_like",
           "stack", "concat", "cat", "concatenate", "vstack", "hstack", "split", "chunk", "unbind", "permute",
           "movedim", "squeeze", "flatten", "flip", "roll", "tril", "triu", "diag", "broadcast_to", "tile",
           "repeat_interleave", "meshgrid", "clamp", "clip", "lerp", "where", "softmax", "log_softmax", "isclose",
           "allclose", "equal", "mm", "bmm", "dot", "outer", "einsum", "cosine_similarity", "cross", "zeros_like", "ones_like", "subtract",
           "multiply", "divide", "true_divide", "power", "negative", "absolute", "bitwise_and", "bitwise_or",
           "bitwise_xor", "bitwise_not", "greater", "greater_equal", "less", "less_equal", "not_equal",
           "ravel", "expand_dims", "swapaxes",
           "moveaxis", "transpose", "numel", "is_floating_point", "masked_select", "addmm", "pi", "inf", "nan", "e",
           "newaxis"]

pi, inf, nan, e = math.pi, math.inf, math.nan, math.e
newaxis = None

# ---- shapes


def sizes(shape: Any) -> Sequence[int]:
    """The sizes of f(2, 3) and of f((2, 3))."""
    if len(shape) == 1 and not hasattr(shape[0], "__index__"):
        return tuple(shape[0])
    return shape


def is_device(x: Any) -> bool:
    """Whether x names a device: "cuda", "cuda:1"."""
    return isinstance(x, str) and x.partition(":")[0] in ("cpu", "cuda", "opencl", "ref")


_contexts: dict[str, _c.Context] = {}


def context_on(device: str) -> _c.Context:
    """A context on a device that is opened once and stays open."""
    current = _c.current_context()
    if current.device == device:
        return current
    c = _contexts.get(device)
    if c is None or c.closed:
        c = _contexts[device] = _c.Context(device)
    return c


def _on(device: Any) -> _c.Context | None:
    """The context that the argument `device` of a function names."""
    if device is None or isinstance(device, _c.Context):
        return device
    return context_on(str(device))


# ---- making tensors


def tensor(data: Any, dtype: DTypeLike | None = None, *, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Makes a tensor of a number, of nested lists, or of an array, which is copied."""
    context = _on(device)
    if isinstance(data, _c.Tensor):
        x = _c.clone(data.detach()) if context is None or context is data.context else _c.copy_to(data, context=context)
    elif isinstance(data, (bool, int, float)):
        kind = as_dtype(dtype if dtype is not None else type(data))
        make: Callable[..., Any] = _c.full_i64 if isinstance(data, int) and kind.kind != "f" else _c.full
        x = make(kind, (), data, context=context)
    elif isinstance(data, (list, tuple)) and dtype is not None and as_dtype(dtype).name == "float64":
        x = _c.from_object(data, context, True)
    else:
        x = copied(data, context)
    if dtype is not None and as_dtype(dtype) is not x.dtype:
        x = _c.cast(x, dtype)
    if requires_grad:
        x.requires_grad = True
    return x


def asarray(data: Any, dtype: DTypeLike | None = None, *, device: Any = None) -> Tensor:
    """The same without a copy: of a tensor itself, and of an array of NumPy or another library on the same device, which must
    not be changed while the tensor is used."""
    if is_tensor(data) and (device is None or _on(device) is data.context):
        return data if dtype is None or as_dtype(dtype) is data.dtype else _c.cast(data, dtype)
    if isinstance(data, (builtins.bool, int, float, list, tuple, _c.Tensor)):
        return tensor(data, dtype, device=device)
    x = borrowed(data, device)
    if x is None:
        return tensor(data, dtype, device=device)
    return x if dtype is None or as_dtype(dtype) is x.dtype else _c.cast(x, dtype)


def zeros(*shape: Any, dtype: DTypeLike = float32, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Makes a tensor of zeros."""
    return _leaf(_c.zeros(dtype, sizes(shape), context=_on(device)), requires_grad)


def ones(*shape: Any, dtype: DTypeLike = float32, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Makes a tensor of ones."""
    return _leaf(_c.ones(dtype, sizes(shape), context=_on(device)), requires_grad)


def empty(*shape: Any, dtype: DTypeLike = float32, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Makes a tensor of zeros: memory without content does not exist here."""
    return zeros(*shape, dtype=dtype, requires_grad=requires_grad, device=device)


def full(shape: Any, value: float, dtype: DTypeLike | None = None, *, device: Any = None) -> Tensor:
    """Makes a tensor of one number."""
    shape = (shape,) if hasattr(shape, "__index__") else tuple(shape)
    kind = as_dtype(dtype if dtype is not None else type(value) if type(value) in (bool, int) else float32)
    make: Callable[..., Any] = _c.full_i64 if isinstance(value, int) and kind.kind != "f" else _c.full
    return make(kind, shape, value, context=_on(device))


def full_like(x: Any, value: float, dtype: DTypeLike | None = None) -> Tensor:
    """The same, with the shape and the context of x."""
    return full(x.shape, value, x.dtype if dtype is None else dtype, device=x.context)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike | None = None, *,
           device: Any = None) -> Tensor:
    """Makes start, start + step, ... below stop; arange(n) is 0 .. n - 1."""
    if stop is None:
        start, stop = 0, start
    whole = builtins.all(isinstance(v, int) for v in (start, stop, step))
    kind = as_dtype(dtype if dtype is not None else int64 if whole else float32)
    make: Callable[..., Any] = _c.arange_i64 if whole else _c.arange
    return make(kind, start, stop, step, context=_on(device))


def linspace(start: float, stop: float, num: int = 50, dtype: DTypeLike = float32, *, device: Any = None) -> Tensor:
    """Makes num evenly spaced numbers from start to stop, both included."""
    return _c.linspace(dtype, start, stop, num, context=_on(device))


def eye(rows: int, cols: int | None = None, dtype: DTypeLike = float32, *, device: Any = None) -> Tensor:
    """Makes a matrix with ones on its diagonal."""
    return _c.eye(dtype, rows, rows if cols is None else cols, context=_on(device))


def rand(*shape: Any, dtype: DTypeLike = float32, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Makes random numbers in [0, 1)."""
    return _leaf(_c.rand(dtype, sizes(shape), context=_on(device)), requires_grad)


def randn(*shape: Any, dtype: DTypeLike = float32, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Makes random numbers of the normal distribution."""
    return _leaf(_c.randn(dtype, sizes(shape), context=_on(device)), requires_grad)


def randint(low: int, high: int | None = None, size: Any = (), dtype: DTypeLike = int64, *, device: Any = None) -> Tensor:
    """Makes random integers in low .. high - 1, or in 0 .. low - 1."""
    if high is not None and not hasattr(high, "__index__"):  # PyTorch's randint(high, size)
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    return _c.randint(dtype, low, high, size, context=_on(device))


def randperm(n: int, *, device: Any = None) -> Tensor:
    """Makes a random permutation of 0 .. n - 1."""
    return _c.randperm(n, context=_on(device))


def manual_seed(seed: int, *, device: Any = None) -> None:
    """Restarts the sequence of random numbers."""
    _c.seed(seed, context=_on(device))


def _leaf(x: Any, requires_grad: bool) -> Tensor:
    if requires_grad:
        x.requires_grad = True
    return x


def unpickle(data: bytes, dtype: str, shape: Sequence[int], requires_grad: bool) -> Tensor:
    return _leaf(_c.from_bytes(data, dtype, shape), requires_grad)


# ---- reductions


def _reduction(name: str) -> Callable[..., Tensor]:
    one, keep = getattr(_c, name), getattr(_c, name + "_keep")
    every, several = getattr(_c, name + "_all"), getattr(_c, name + "_axes")

    def reduce(x: Any, axis: Any = None, keepdims: bool = False, *, dtype: DTypeLike | None = None, dim: Any = None,
               keepdim: bool = False) -> Any:
        if dim is not None:
            axis = dim
        if dtype is not None:
            x = _c.cast(x, dtype)
        if axis is None:
            return several(x, (), True) if keepdims or keepdim else every(x)
        if isinstance(axis, (tuple, list)):
            return several(x, axis, keepdims or keepdim) if axis else x
        return keep(x, axis) if keepdims or keepdim else one(x, axis)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"{name} over all axes, one axis or several. " + (one.__doc__ or "")
    return reduce


sum: Callable[..., Tensor] = _reduction("sum")
mean: Callable[..., Tensor] = _reduction("mean")
prod: Callable[..., Tensor] = _reduction("prod")
amax: Callable[..., Tensor] = _reduction("max")
amin: Callable[..., Tensor] = _reduction("min")
_norm: Callable[..., Tensor] = _reduction("norm")
logsumexp: Callable[..., Tensor] = _reduction("logsumexp")
any: Callable[..., Tensor] = _reduction("any")
all: Callable[..., Tensor] = _reduction("all")


def norm(x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False,
         ord: Any = None, dtype: DTypeLike | None = None) -> Tensor:
    """The p-norm of the elements, over all axes, one axis or several: (|x| ** p).sum() ** (1 / p); also p = 0, inf, -inf."""
    axis, keep, p = axis if dim is None else dim, keepdims or keepdim, p if ord is None else ord
    if p in (2, "fro", None):
        return _norm(x, axis, keep, dtype=dtype)
    if not isinstance(p, (int, float)):
        raise NotImplementedError(f"norm: p = {p!r}")
    x = _c.abs(as_tensor(x, dtype))
    if p in (inf, -inf):
        return (amax if p > 0 else amin)(x, axis, keep)
    if p == 0:
        return sum(_c.cast(_c.ne(x, 0), x.dtype), axis, keep)
    return sum(x, axis, keep) if p == 1 else _c.pow(sum(_c.pow(x, p), axis, keep), 1 / p)


class ValuesIndices(NamedTuple):
    """Elements and their places along an axis."""

    values: Tensor
    indices: Tensor


def _extreme(x: Any, dim: Any, axis: Any, keep: bool, reduce: Any, pairs: Any, larger: Any) -> Any:
    """max and min: over axis= NumPy's, the elements; over a dim PyTorch's, also their indices; of two tensors."""
    if isinstance(dim, _c.Tensor):
        return larger(x, dim)
    if axis is None and isinstance(dim, int):
        return _pair(pairs(x, dim), dim, keep)
    return reduce(x, dim if axis is None else axis, keep)


@overload
def max(x: Any, dim: int, keepdim: bool = False) -> ValuesIndices: ...


@overload
def max(x: Any, dim: Tensor | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False) -> Tensor: ...


def max(x: Any, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest element; max(x, 1) and dim=1 give (values, indices) along an axis, axis=1 the values; the larger of two."""
    return _extreme(x, dim, axis, keepdims or keepdim, amax, _c.max_indexed, _c.maximum)


@overload
def min(x: Any, dim: int, keepdim: bool = False) -> ValuesIndices: ...


@overload
def min(x: Any, dim: Tensor | None = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False) -> Tensor: ...


def min(x: Any, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The smallest element; min(x, 1) and dim=1 give (values, indices) along an axis, axis=1 the values; the smaller of two."""
    return _extreme(x, dim, axis, keepdims or keepdim, amin, _c.min_indexed, _c.minimum)


def _pair(pair: tuple[Any, Any], axis: int, keep: bool) -> ValuesIndices:
    """Elements and their places along an axis, which is gone or stays with one element."""
    return ValuesIndices(*(_c.unsqueeze(v, axis if axis >= 0 else axis + v.ndim + 1) for v in pair)) if keep else ValuesIndices(*pair)


@overload
def median(x: Any, dim: int, keepdim: bool = False) -> ValuesIndices: ...


@overload
def median(x: Any, dim: None = None, keepdim: bool = False, *, axis: int | None = None, keepdims: bool = False) -> Tensor: ...


def median(x: Any, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None,
           keepdims: bool = False) -> Any:
    """The middle one of the sorted elements, or the mean of the middle two; along a dim the lower and its index."""
    x, keep = as_tensor(x), keepdims or keepdim
    if dim is not None:
        return _pair(_c.median(x, dim), dim, keep)
    if axis is None:
        m = median(_c.reshape(x, (-1,)), axis=0)
        return _c.reshape(m, (1,) * x.ndim) if keep else m
    n = x.shape[axis]
    if not n:
        raise ValueError("median of no elements")
    middle = _c.slice(_c.sort(x, axis, False)[0], axis, (n - 1) // 2, n // 2 + 1, 1)
    return mean(middle if x.dtype.kind == "f" else _c.cast(middle, float32), axis, keep)


def _spread(name: str) -> Callable[..., Tensor]:
    plain = _reduction(name)

    def reduce(x: Any, axis: Any = None, keepdims: bool = False, *, correction: float | None = None,
               unbiased: bool | None = None, ddof: float | None = None, dtype: DTypeLike | None = None, dim: Any = None,
               keepdim: bool = False) -> Any:
        axis, keep = axis if dim is None else dim, keepdims or keepdim
        less = next((v for v in (ddof, correction, unbiased) if v is not None), 1)
        if less == 1:
            return plain(x, axis, keep, dtype=dtype)
        x = as_tensor(x, dtype)
        square = sum(_c.square(x - mean(x, axis, True)), axis, keep)
        axes = (axis,) if isinstance(axis, int) else range(x.ndim) if axis is None else axis
        n = math.prod(x.shape[a] for a in axes)
        square = square * (1.0 / (n - less) if n > less else nan)
        return square if name == "var" else _c.sqrt(square)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"{name} over all axes, one axis or several, by n - 1 or n - correction (also ddof=, unbiased=)."
    return reduce


var: Callable[..., Tensor] = _spread("var")
std: Callable[..., Tensor] = _spread("std")


def argmax(x: Any, axis: int | None = None, keepdims: bool = False, *, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the first largest element, along an axis or of all."""
    axis = axis if dim is None else dim
    return _c.argmax_all(x) if axis is None else (_c.argmax_keep if keepdims or keepdim else _c.argmax)(x, axis)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False, *, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the first smallest element, along an axis or of all."""
    axis = axis if dim is None else dim
    return _c.argmin_all(x) if axis is None else (_c.argmin_keep if keepdims or keepdim else _c.argmin)(x, axis)


def count_nonzero(x: Any, axis: Any = None, *, dim: Any = None) -> Tensor:
    """The number of elements that are not 0, over all axes, one axis or several."""
    return sum(_c.cast(_c.ne(x, 0), int64), axis, dim=dim)


def one_axis(name: str, axis: Any, dim: Any) -> Any:
    """The axis that a function got by one of its two names."""
    axis = axis if dim is None else dim
    if axis is None:
        raise TypeError(f"{name}() misses its argument 'axis'")
    return axis


def cumsum(x: Any, axis: int | None = None, *, dim: int | None = None) -> Tensor:
    """The sums of the elements up to each one along an axis; without one, of all elements in one row."""
    axis = axis if dim is None else dim
    return _c.cumsum(_c.reshape(x, (-1,)), 0) if axis is None else _c.cumsum(x, axis)


def cumprod(x: Any, axis: int | None = None, *, dim: int | None = None) -> Tensor:
    """The products of the elements up to each one along an axis; without one, of all elements in one row."""
    axis = axis if dim is None else dim
    return _c.cumprod(_c.reshape(x, (-1,)), 0) if axis is None else _c.cumprod(x, axis)


# ---- order


def sort(x: Any, axis: int = -1, descending: bool = False, *, dim: int | None = None, stable: bool = True) -> ValuesIndices:
    """The elements in order along an axis, and the places that they had: (values, indices)."""
    return ValuesIndices(*_c.sort(x, axis if dim is None else dim, descending))


def argsort(x: Any, axis: int = -1, descending: bool = False, *, dim: int | None = None, stable: bool = True) -> Tensor:
    """The places of the elements in order along an axis."""
    return _c.argsort(x, axis if dim is None else dim, descending)


def topk(x: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True, *, dim: int | None = None) -> ValuesIndices:
    """The k largest or smallest elements along an axis, in order, and their places: (values, indices)."""
    return ValuesIndices(*_c.topk(x, k, axis if dim is None else dim, largest))


def unique_parts(x: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The different elements in order, where each is first, the place of each element among them, and their numbers."""
    x = as_tensor(x).detach()
    if not x.size:
        none = zeros(0, dtype=int64, device=x.context)
        return _c.reshape(x, (0,)), none, _c.reshape(none, x.shape), none
    values, order = _c.sort(_c.reshape(x, (-1,)), 0, False)  # equal ones keep their order
    fresh = _c.concat([ones(1, dtype=bool_, device=x.context), _c.ne(values[1:], values[:-1])], 0)
    places = _c.true_places(fresh)
    ends = _c.concat([places[1:], full(1, x.size, int64, device=x.context)], 0)
    rank = _c.cumsum(_c.cast(fresh, int64), 0) - 1
    inverse = _c.reshape(_c.scatter(_c.zeros_like(order), 0, order, rank), x.shape)
    return _c.index_select(values, 0, places), _c.index_select(order, 0, places), inverse, ends - places


def unique(x: Any, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The different elements in order; on request the place of each element among them, and their numbers."""
    values, _, inverse, counts = unique_parts(x)
    wanted = [values] + [inverse] * return_inverse + [counts] * return_counts
    return wanted[0] if len(wanted) == 1 else tuple(wanted)


def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 on occurs, or the sums of its weights; x is read."""
    weights = None if weights is None else _c.reshape(as_tensor(weights), (-1,))
    return _c.bincount(_c.reshape(as_tensor(x), (-1,)), weights, minlength)


def nonzero(x: Any, *, as_tuple: bool = True) -> Any:
    """The places of elements that are not 0: an index for each axis, or with as_tuple=False a row for each element."""
    x = as_tensor(x)
    found = _c.nonzero(x)
    return tuple(_c.select(found, 1, i) for i in range(x.ndim)) if as_tuple else found


# ---- shape


def as_tensor(data: Any, dtype: DTypeLike | None = None, *, device: Any = None) -> Tensor:
    """The same as asarray."""
    if is_tensor(data) and dtype is None and device is None:
        return data
    return asarray(data, dtype, device=device)


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor."""
    return isinstance(x, _c.Tensor)


def empty_like(x: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Makes zeros with the shape and the context of x: memory without content does not exist here."""
    return _c.zeros_like(x) if dtype is None else _c.zeros(dtype, x.shape, context=x.context)


def zeros_like(x: Any, dtype: DTypeLike | None = None, *, requires_grad: bool = False) -> Tensor:
    """Makes zeros with the shape and the context of x."""
    return _leaf(_c.zeros_like(x) if dtype is None else _c.zeros(dtype, x.shape, context=x.context), requires_grad)


def ones_like(x: Any, dtype: DTypeLike | None = None, *, requires_grad: bool = False) -> Tensor:
    """Makes ones with the shape and the context of x."""
    return _leaf(_c.ones_like(x) if dtype is None else _c.ones(dtype, x.shape, context=x.context), requires_grad)


def numel(x: Any) -> int:
    """The number of elements."""
    return x.size


def is_floating_point(x: Any) -> bool:
    """Whether the elements are floating-point numbers."""
    return x.dtype.kind == "f"


def ravel(x: Any) -> Tensor:
    """All elements along one axis."""
    return _c.reshape(x, (-1,))


def transpose(x: Any, axis1: Any = None, axis2: int | None = None) -> Tensor:
    """Two axes exchanged; without them, or with one list, NumPy's: the axes in the opposite or in that order."""
    if axis1 is not None and axis2 is not None:
        return _c.transpose(x, axis1, axis2)
    x = as_tensor(x)
    return _c.permute(x, range(x.ndim)[::-1] if axis1 is None else axis1)


def expand_dims(x: Any, axis: int) -> Tensor:
    """With a new axis of size 1."""
    return _c.unsqueeze(x, axis)


def masked_select(x: Any, mask: Any) -> Tensor:
    """The elements where the mask holds, along one axis; the mask is read."""
    return _c.masked_select(x, mask)


swapaxes = _c.transpose
subtract, multiply, divide, true_divide, power = _c.sub, _c.mul, _c.div, _c.div, _c.pow
negative, absolute = _c.neg, _c.abs
bitwise_and: Callable[..., Tensor] = _c.bit_and
bitwise_or: Callable[..., Tensor] = _c.bit_or
bitwise_xor: Callable[..., Tensor] = _c.bit_xor
bitwise_not: Callable[..., Tensor] = _c.bit_not
greater, greater_equal, less, less_equal, not_equal = _c.gt, _c.ge, _c.lt, _c.le, _c.ne


def stack(tensors: Sequence[Any], axis: int = 0, *, dim: int | None = None) -> Tensor:
    """Tensors of one shape along a new axis."""
    return _c.stack(tensors, axis if dim is None else dim)


def concat(tensors: Sequence[Any], axis: int = 0, *, dim: int | None = None) -> Tensor:
    """Tensors one after the other along an axis."""
    return _c.concat(tensors, axis if dim is None else dim)


cat = concatenate = concat


def vstack(tensors: Sequence[Any]) -> Tensor:
    """Rows or matrices one below the other."""
    return _c.concat([x if x.ndim > 1 else _c.reshape(x, (1, -1)) for x in map(as_tensor, tensors)], 0)


def hstack(tensors: Sequence[Any]) -> Tensor:
    """Tensors side by side: along axis 1, and rows along their only one."""
    parts = [x if x.ndim else _c.reshape(x, (1,)) for x in map(as_tensor, tensors)]
    return _c.concat(parts, 0 if parts and parts[0].ndim == 1 else 1)


def split(x: Any, split_size: Any, axis: int = 0, *, dim: int | None = None) -> tuple[Tensor, ...]:
    """Parts of split_size elements along an axis, or of the sizes in a list, as torch.split."""
    axis = axis if dim is None else dim
    n = x.shape[axis]
    if isinstance(split_size, int):
        if split_size < 1:
            raise ValueError(f"split: parts of {split_size} elements")
        parts = [builtins.min(split_size, n - i) for i in range(0, n, split_size)] or [0]
    else:
        parts = [int(v) for v in split_size]
        if builtins.sum(parts) != n:
            raise ValueError(f"split: the sizes {parts} do not add up to {n}")
    made, start = [], 0
    for size in parts:
        made.append(_c.slice(x, axis, start, start + size, 1))
        start += size
    return tuple(made)


def chunk(x: Any, chunks: int, axis: int = 0, *, dim: int | None = None) -> tuple[Tensor, ...]:
    """At most this number of parts of equal size along an axis; the last may be smaller."""
    axis = axis if dim is None else dim
    if chunks < 1:
        raise ValueError(f"chunk: {chunks} parts")
    return split(x, builtins.max(-(-x.shape[axis] // chunks), 1), axis)


def unbind(x: Any, axis: int = 0, *, dim: int | None = None) -> tuple[Tensor, ...]:
    """The slices along an axis, without it."""
    axis = axis if dim is None else dim
    return tuple(_c.select(x, axis, i) for i in range(x.shape[axis]))


def permute(x: Any, *axes: Any, dims: Any = None) -> Tensor:
    """The axes in another order."""
    return _c.permute(x, sizes(axes) if dims is None else dims)


def movedim(x: Any, source: Any, destination: Any) -> Tensor:
    """One or several axes moved to other places; the others keep their order."""
    x = as_tensor(x)
    old = [a % x.ndim for a in ((source,) if isinstance(source, int) else source)]
    new = [a % x.ndim for a in ((destination,) if isinstance(destination, int) else destination)]
    if len(old) != len(new) or len({*old}) != len(old) or len({*new}) != len(new):
        raise ValueError(f"movedim: {source} to {destination}")
    order = [a for a in range(x.ndim) if a not in old]
    for to, a in sorted(zip(new, old)):
        order.insert(to, a)
    return _c.permute(x, order)


moveaxis = movedim


def squeeze(x: Any, axis: Any = None, *, dim: Any = None) -> Tensor:
    """Without an axis of size 1, without several, or without all of them."""
    axis = axis if dim is None else dim
    if axis is None:
        return _c.squeeze_all(x)
    if isinstance(axis, int):
        return _c.squeeze(x, axis)
    for a in sorted({a % x.ndim for a in axis}, reverse=True):
        x = _c.squeeze(x, a)
    return x


def flatten(x: Any, start: int = 0, end: int = -1, *, start_dim: int | None = None, end_dim: int | None = None) -> Tensor:
    """The axes start .. end joined into one."""
    return _c.flatten(x, start if start_dim is None else start_dim, end if end_dim is None else end_dim)


def flip(x: Any, axis: Any = None, *more: int, dims: Any = None) -> Tensor:
    """The elements in the opposite order along an axis, several, or all."""
    x, axis = as_tensor(x), axis if dims is None else dims
    for a in range(x.ndim) if axis is None else (axis, *more) if isinstance(axis, int) else axis:
        x = _c.flip(x, a)
    return _c.clone(x)  # as PyTorch; x[::-1] is a view


def roll(x: Any, shift: Any = None, axis: Any = None, *, shifts: Any = None, dims: Any = None) -> Tensor:
    """Moved along an axis or several, where what leaves at the end enters at the start; without one as a single row."""
    shift, axis = shift if shifts is None else shifts, axis if dims is None else dims
    if axis is None:
        x = as_tensor(x)
        return _c.reshape(_c.roll(_c.reshape(x, (-1,)), shift, 0), x.shape)
    axes = (axis,) if isinstance(axis, int) else axis
    for s, a in zip((shift,) * len(axes) if isinstance(shift, int) else shift, axes, strict=True):
        x = _c.roll(x, s, a)
    return x


def tril(x: Any, diagonal: int = 0, *, k: int | None = None) -> Tensor:
    """The elements on and below a diagonal of each matrix, and 0 above."""
    return _c.tril(x, diagonal if k is None else k)


def triu(x: Any, diagonal: int = 0, *, k: int | None = None) -> Tensor:
    """The elements on and above a diagonal of each matrix, and 0 below."""
    return _c.triu(x, diagonal if k is None else k)


def diag(x: Any, diagonal: int = 0, *, k: int | None = None) -> Tensor:
    """The diagonal of a matrix, or the matrix with a row of numbers on its diagonal."""
    x, k = as_tensor(x), diagonal if k is None else k
    if x.ndim == 2:
        return _c.clone(_c.diagonal(x, k, 0, 1))  # as PyTorch; x.diagonal() is a view
    if x.ndim != 1:
        raise ValueError(f"diag takes one or two axes, not {x.ndim}")
    n = x.shape[0]
    above, below = builtins.max(k, 0), builtins.max(-k, 0)
    square = _c.where(_c.cast(_c.eye(float32, n, n, context=x.context), bool_), x, _c.zeros_like(x))
    return _c.pad(square, (below, above), (above, below), 0) if k else square


def broadcast_to(x: Any, *shape: Any) -> Tensor:
    """Broadcast to a shape."""
    return _c.expand(x, sizes(shape))


def tile(x: Any, *times: Any) -> Tensor:
    """Repeated along each axis; the last number is that of the last axis."""
    return _c.tile(as_tensor(x), tuple(sizes(times)))


def repeat_interleave(x: Any, repeats: Any, axis: int | None = None, *, dim: int | None = None) -> Tensor:
    """Each element, or each slice along an axis, several times in a row, as numpy.repeat; a tensor of repeats is read."""
    x, axis = as_tensor(x), axis if dim is None else dim
    if axis is None:
        x, axis = _c.reshape(x, (-1,)), 0
    counts = tolist(repeats) if isinstance(repeats, _c.Tensor) else repeats
    return _c.repeat_interleave(x, (counts,) if isinstance(counts, int) else tuple(counts), axis)


def meshgrid(*tensors: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """The coordinates of a grid, one tensor for each row of numbers; indexing="ij" is PyTorch's default."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing is 'xy' or 'ij', not {indexing!r}")
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    rows = [_c.reshape(as_tensor(x), (-1,)) for x in tensors]
    n = len(rows)
    shape = [x.size for x in rows]
    grids = [_c.expand(_c.reshape(x, (1,) * i + (-1,) + (1,) * (n - 1 - i)), shape) for i, x in enumerate(rows)]
    return tuple(_c.transpose(g, 0, 1) for g in grids) if indexing == "xy" and n > 1 else tuple(grids)


# ---- elements


def clamp(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """Each element, raised to min and lowered to max, which are numbers or tensors."""
    if min is None and max is None:
        raise TypeError("clamp() needs min or max")
    x = as_tensor(x)
    if x.dtype.kind == "f" and isinstance(min, (int, float, type(None))) and isinstance(max, (int, float, type(None))):
        return _c.clamp(x, -inf if min is None else min, inf if max is None else max)
    x = x if min is None else _c.maximum(x, min)
    return x if max is None else _c.minimum(x, max)


def clip(x: Any, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> Tensor:
    """The same as clamp."""
    return clamp(x, min if a_min is None else a_min, max if a_max is None else a_max)


def lerp(start: Any, end: Any, weight: Any) -> Tensor:
    """start + weight * (end - start)."""
    return _c.add(start, _c.mul(_c.sub(end, start), weight))


@overload
def where(condition: Any) -> tuple[Tensor, ...]: ...


@overload
def where(condition: Any, a: Any, b: Any) -> Tensor: ...


def where(condition: Any, a: Any = None, b: Any = None) -> Any:
    """Elements of a where the condition holds, and of b where not; without a and b, the places where it holds."""
    if a is None and b is None:
        return nonzero(condition)
    return _c.where(condition, a, b)


def softmax(x: Any, axis: int | None = None, *, dim: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """exp(x), divided by its sum along an axis."""
    return _c.softmax(x if dtype is None else _c.cast(x, dtype), one_axis("softmax", axis, dim))


def log_softmax(x: Any, axis: int | None = None, *, dim: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """The logarithm of softmax."""
    return _c.log_softmax(x if dtype is None else _c.cast(x, dtype), one_axis("log_softmax", axis, dim))


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Where |a - b| <= atol + rtol * |b|."""
    return _c.isclose(as_tensor(a), as_tensor(b), rtol, atol, equal_nan)


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether isclose holds everywhere."""
    return _c.allclose(as_tensor(a), as_tensor(b), rtol, atol, equal_nan)


def equal(a: Any, b: Any) -> bool:
    """Whether two tensors have the same shape and the same elements."""
    a, b = as_tensor(a), as_tensor(b)
    return a.shape == b.shape and bool(_c.all_all(_c.eq(a, b)))


# ---- products


def mm(a: Any, b: Any) -> Tensor:
    """The product of two matrices."""
    _need_axes("mm", 2, a, b)
    return _c.matmul(a, b)


def bmm(a: Any, b: Any) -> Tensor:
    """The products of two rows of matrices."""
    _need_axes("bmm", 3, a, b)
    return _c.matmul(a, b)


def dot(a: Any, b: Any) -> Tensor:
    """The inner product of two rows of numbers, and the product of matrices."""
    return _c.matmul(a, b)


def _need_axes(name: str, n: int, *tensors: Any) -> None:
    for x in tensors:
        if x.ndim != n:
            raise ValueError(f"{name} takes tensors of {n} axes, not of {x.ndim}")


def addmm(x: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * x + alpha * a @ b."""
    product = mm(a, b)
    return _c.add(x if beta == 1 else x * beta, product if alpha == 1 else product * alpha)


def outer(a: Any, b: Any) -> Tensor:
    """The products of all pairs of elements of two rows of numbers."""
    return _c.outer(_c.reshape(a, (-1,)), _c.reshape(b, (-1,)))


def einsum(equation: str, *operands: Any) -> Tensor:
    """Sums of products by Einstein's convention, as numpy.einsum: einsum("bij,bjk->bik", a, b)."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    return _c.einsum(equation, [as_tensor(x) for x in operands])


def cosine_similarity(a: Any, b: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis."""
    return _c.cosine_similarity(a, b, dim, eps)


def cross(a: Any, b: Any, dim: int = -1) -> Tensor:
    """The cross product of vectors of 3 elements along an axis."""
    return _c.cross(a, b, dim)


# ---- reading


def _pairs(values: Any, depth: int) -> Any:
    """Nested lists of real and imaginary parts as lists of complex numbers."""
    return [_pairs(v, depth - 1) for v in values] if depth else complex(*values)


def tolist(x: Any) -> Any:
    """The elements as nested lists, or as one number."""
    if x.dtype.is_complex:
        return _pairs(tolist(_c.view_as_real(x)), x.ndim)
    format = FORMATS.get(x.dtype.name, "e")
    if format == "e":  # memoryview has no halves
        x = rounded_float32(x)
        format = "f"
    data: Any = list(memoryview(_c.read_bytes(x)).cast(format))  # type: ignore[call-overload]
    if not x.ndim:
        return data[0]
    for size in x.shape[:0:-1]:
        if not size:
            return _empty_lists(x.shape)
        data = [data[i:i + size] for i in range(0, len(data), size)]
    return data


def _empty_lists(shape: Sequence[int]) -> Any:
    return [_empty_lists(shape[1:]) for _ in range(shape[0])] if len(shape) > 1 else []
