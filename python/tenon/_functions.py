"""Functions that Python has in another form than C: one for a family of C's, with defaults and names of NumPy and PyTorch."""
from __future__ import annotations

import builtins
from typing import Any, Callable, Sequence

from . import _c
from ._dtypes import DTypeLike, as_dtype, float32, int64
from ._exchange import borrowed, of_bytes

__all__ = """tensor asarray zeros ones empty full full_like arange linspace eye rand randn randint randperm manual_seed
    sum mean prod max min var std norm logsumexp any all argmax argmin""".split()

# ---- shapes


def sizes(shape: Any) -> Sequence[int]:
    """The sizes of f(2, 3) and of f((2, 3))."""
    if len(shape) == 1 and not hasattr(shape[0], "__index__"):
        return tuple(shape[0])
    return shape


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


def tensor(data: Any, dtype: DTypeLike | None = None, *, requires_grad: bool = False, device: Any = None) -> Any:
    """Makes a tensor of a number, of nested lists, or of an array, which is copied."""
    context = _on(device)
    if isinstance(data, _c.Tensor):
        x = _c.clone(data.detach()) if context is None or context is data.context else _c.copy_to(data, context=context)
    elif isinstance(data, (bool, int, float)):
        kind = as_dtype(dtype if dtype is not None else type(data))
        make: Callable[..., Any] = _c.full_i64 if isinstance(data, int) and kind.kind != "f" else _c.full
        x = make(kind, (), data, context=context)
    else:
        x = of_bytes(data, context)
        x = _c.from_object(data, context) if x is None else x
    if dtype is not None and as_dtype(dtype) is not x.dtype:
        x = _c.cast(x, dtype)
    if requires_grad:
        x.requires_grad = True
    return x


def asarray(data: Any, dtype: DTypeLike | None = None, *, device: Any = None) -> Any:
    """The same without a copy: of a tensor itself, and of an array of NumPy or another library on the same device, which must
    not be changed while the tensor is used."""
    if isinstance(data, _c.Tensor) and (device is None or _on(device) is data.context):
        return data if dtype is None or as_dtype(dtype) is data.dtype else _c.cast(data, dtype)
    if isinstance(data, (builtins.bool, int, float, list, tuple, _c.Tensor)):
        return tensor(data, dtype, device=device)
    x = borrowed(data, device)
    if x is None:
        return tensor(data, dtype, device=device)
    return x if dtype is None or as_dtype(dtype) is x.dtype else _c.cast(x, dtype)


def zeros(*shape: Any, dtype: DTypeLike = float32, requires_grad: bool = False, device: Any = None) -> Any:
    """Makes a tensor of zeros."""
    return _leaf(_c.zeros(dtype, sizes(shape), context=_on(device)), requires_grad)


def ones(*shape: Any, dtype: DTypeLike = float32, requires_grad: bool = False, device: Any = None) -> Any:
    """Makes a tensor of ones."""
    return _leaf(_c.ones(dtype, sizes(shape), context=_on(device)), requires_grad)


def empty(*shape: Any, dtype: DTypeLike = float32, requires_grad: bool = False, device: Any = None) -> Any:
    """Makes a tensor of zeros: memory without content does not exist here."""
    return zeros(*shape, dtype=dtype, requires_grad=requires_grad, device=device)


def full(shape: Any, value: float, dtype: DTypeLike | None = None, *, device: Any = None) -> Any:
    """Makes a tensor of one number."""
    shape = (shape,) if hasattr(shape, "__index__") else tuple(shape)
    kind = as_dtype(dtype if dtype is not None else type(value) if type(value) in (bool, int) else float32)
    make: Callable[..., Any] = _c.full_i64 if isinstance(value, int) and kind.kind != "f" else _c.full
    return make(kind, shape, value, context=_on(device))


def full_like(x: Any, value: float, dtype: DTypeLike | None = None) -> Any:
    """The same, with the shape and the context of x."""
    return full(x.shape, value, x.dtype if dtype is None else dtype, device=x.context)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike | None = None, *,
           device: Any = None) -> Any:
    """Makes start, start + step, ... below stop; arange(n) is 0 .. n - 1."""
    if stop is None:
        start, stop = 0, start
    whole = builtins.all(isinstance(v, int) for v in (start, stop, step))
    kind = as_dtype(dtype if dtype is not None else int64 if whole else float32)
    make: Callable[..., Any] = _c.arange_i64 if whole else _c.arange
    return make(kind, start, stop, step, context=_on(device))


def linspace(start: float, stop: float, num: int = 50, dtype: DTypeLike = float32, *, device: Any = None) -> Any:
    """Makes num evenly spaced numbers from start to stop, both included."""
    return _c.linspace(dtype, start, stop, num, context=_on(device))


def eye(rows: int, cols: int | None = None, dtype: DTypeLike = float32, *, device: Any = None) -> Any:
    """Makes a matrix with ones on its diagonal."""
    return _c.eye(dtype, rows, rows if cols is None else cols, context=_on(device))


def rand(*shape: Any, dtype: DTypeLike = float32, requires_grad: bool = False, device: Any = None) -> Any:
    """Makes random numbers in [0, 1)."""
    return _leaf(_c.rand(dtype, sizes(shape), context=_on(device)), requires_grad)


def randn(*shape: Any, dtype: DTypeLike = float32, requires_grad: bool = False, device: Any = None) -> Any:
    """Makes random numbers of the normal distribution."""
    return _leaf(_c.randn(dtype, sizes(shape), context=_on(device)), requires_grad)


def randint(low: int, high: int | None = None, size: Any = (), dtype: DTypeLike = int64, *, device: Any = None) -> Any:
    """Makes random integers in low .. high - 1, or in 0 .. low - 1."""
    if high is not None and not hasattr(high, "__index__"):  # PyTorch's randint(high, size)
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    return _c.randint(dtype, low, high, size, context=_on(device))


def randperm(n: int, *, device: Any = None) -> Any:
    """Makes a random permutation of 0 .. n - 1."""
    return _c.randperm(n, context=_on(device))


def manual_seed(seed: int, *, device: Any = None) -> None:
    """Restarts the sequence of random numbers."""
    _c.seed(seed, context=_on(device))


def _leaf(x: Any, requires_grad: bool) -> Any:
    if requires_grad:
        x.requires_grad = True
    return x


def unpickle(data: bytes, dtype: str, shape: Sequence[int], requires_grad: bool) -> Any:
    return _leaf(_c.from_bytes(data, dtype, shape), requires_grad)


# ---- reductions


def _reduction(name: str) -> Callable[..., Any]:
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


sum: Callable[..., Any] = _reduction("sum")
mean: Callable[..., Any] = _reduction("mean")
prod: Callable[..., Any] = _reduction("prod")
max: Callable[..., Any] = _reduction("max")
min: Callable[..., Any] = _reduction("min")
var: Callable[..., Any] = _reduction("var")
std: Callable[..., Any] = _reduction("std")
norm: Callable[..., Any] = _reduction("norm")
logsumexp: Callable[..., Any] = _reduction("logsumexp")
any: Callable[..., Any] = _reduction("any")
all: Callable[..., Any] = _reduction("all")


def argmax(x: Any, axis: int | None = None, keepdims: bool = False, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """The index of the first largest element, along an axis or of all."""
    axis = axis if dim is None else dim
    return _c.argmax_all(x) if axis is None else (_c.argmax_keep if keepdims or keepdim else _c.argmax)(x, axis)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """The index of the first smallest element, along an axis or of all."""
    axis = axis if dim is None else dim
    return _c.argmin_all(x) if axis is None else (_c.argmin_keep if keepdims or keepdim else _c.argmin)(x, axis)


# ---- reading

_FORMATS = {"bool": "?", "uint8": "B", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
            "uint64": "Q", "float32": "f", "float64": "d"}


def tolist(x: Any) -> Any:
    """The elements as nested lists, or as one number."""
    format = _FORMATS.get(x.dtype.name)
    if format is None:
        x = _c.cast(x, float32)
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
