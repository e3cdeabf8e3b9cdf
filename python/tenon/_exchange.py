"""Memory that tensors share with NumPy, PyTorch, JAX and others.

What a tensor exports is a snapshot of its value: it is read-only, and a later write to the tensor does not change it, since
the tensor then has other memory. On the cpu nothing is copied. What it imports is read in place too: the program must not
change that memory while the tensor is used. Consumers that know no read-only memory (PyTorch, and those of DLPack before
version 1) get it all the same: they must not write to it.
"""
from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from . import _c
from ._dtypes import DTypeLike, as_dtype, float32
from ._errors import Error

if TYPE_CHECKING:
    from ._tensor import Tensor

__all__ = ["from_numpy", "from_dlpack", "eval_into"]

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_NO_FORMAT = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def _ml_dtypes() -> Any:
    """The package of NumPy's dtypes for 8- and 16-bit floats, if it is installed."""
    try:
        import ml_dtypes  # type: ignore[import-not-found]
    except ImportError:
        return None
    return ml_dtypes


def _cuda_number(device: str) -> int | None:
    """The number of a GPU: 1 of "cuda:1"."""
    name, _, number = device.partition(":")
    return int(number or 0) if name == "cuda" else None


def rounded_float32(x: Any) -> Tensor:
    """The elements of a shorter float dtype as float32: stored first, since what is not stored is not yet rounded."""
    _c.eval_of(x)
    return _c.cast(x, float32)


class Exchange:
    """The part of the class of tensors that other libraries use."""

    __slots__ = ()

    def numpy(self: Any) -> Any:
        """Its elements as a NumPy array, read-only and without a copy where that is possible; np.array(x) is a copy.
        bfloat16 is the dtype of the package ml_dtypes, and float32 where that is not installed."""
        import numpy  # type: ignore[import-not-found]
        if self.dtype.name not in _NO_FORMAT:
            return numpy.asarray(memoryview(self))
        more = _ml_dtypes()
        if more is None:
            return rounded_float32(self).numpy()
        return numpy.frombuffer(_c.memory(self), getattr(more, self.dtype.name)).reshape(self.shape)

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy  # type: ignore[import-not-found]
        a = self.numpy()
        if dtype is not None and a.dtype != dtype:
            if copy is False:
                raise ValueError(f"a tensor of {self.dtype.name} is an array of {dtype} by a copy only")
            return a.astype(dtype)
        return numpy.array(a) if copy else a

    # NumPy's functions. Those that Tenon has with the same meaning are Tenon's, with a gradient; the others compute with
    # NumPy and return arrays.

    def __array_ufunc__(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = ufunc.__name__
        own = _same(_UFUNCS.get(name, name)) if method == "__call__" and not kwargs else None
        return own(*inputs) if own else _by_numpy(getattr(ufunc, method), name, inputs, kwargs)

    def __array_function__(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        own = _same(_FUNCTIONS.get(name)) if kwargs.keys() <= {"axis", "keepdims", "dtype"} else None
        return own(*args, **kwargs) if own else _by_numpy(function, name, args, kwargs)

    @property
    def __array_interface__(self: Any) -> dict:
        """NumPy's array interface, version 3: `data` is an object that keeps the memory."""
        if self.dtype.name in _NO_FORMAT:
            raise AttributeError(f"elements of {self.dtype.name} have no type string")
        order = "|" if self.dtype.itemsize == 1 else "<"
        return {"shape": self.shape, "typestr": f"{order}{self.dtype.kind}{self.dtype.itemsize}", "data": _c.memory(self),
                "version": 3}

    def __dlpack_device__(self: Any) -> tuple[int, int]:
        """Where its memory is, in DLPack's words. Devices whose memory has no addresses export copies on the host."""
        number = _cuda_number(self.device)
        return (CPU, 0) if number is None else (CUDA, number)

    def __dlpack__(self: Any, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A capsule of DLPack: a snapshot of its value. On cuda the consumer's stream waits for it by an event; the host
        does not wait. A tensor that requires gradients exports its value."""
        own = self.__dlpack_device__()
        if own[0] == CPU and stream is not None:
            raise BufferError(f"__dlpack__: a tensor on {self.device} has no streams, but stream is {stream}")
        if own[0] == CUDA and stream == 0:
            raise BufferError("__dlpack__: the stream 0 is ambiguous on cuda: 1 and 2 are the default streams")
        if stream is not None and stream < -1:
            raise BufferError(f"__dlpack__: {stream} is not a stream")
        to_host = dl_device is not None and tuple(dl_device) == (CPU, 0) and own[0] != CPU
        if dl_device is not None and not to_host and tuple(dl_device) != own:
            raise BufferError(f"__dlpack__: a tensor on {self.device} cannot be exported to DLPack's device {dl_device}")
        copies = to_host or self.device.partition(":")[0] not in ("cpu", "cuda")
        if copy is False and copies:
            raise BufferError(f"__dlpack__: a tensor on {self.device} is exported by a copy only")
        where = 0 if own[0] == CPU or to_host or stream == -1 else 1 if stream is None else stream
        versioned = max_version is not None and max_version[0] >= 1
        return _c.to_dlpack(self, where, versioned, copy is True, to_host)

    @property
    def __cuda_array_interface__(self: Any) -> dict:
        """Numba's and CuPy's array interface, version 3. The snapshot lives as long as the tensor."""
        if _cuda_number(self.device) is None:
            raise AttributeError(f"a tensor on {self.device} has no __cuda_array_interface__")
        if self.dtype.name in _NO_FORMAT:
            raise AttributeError(f"elements of {self.dtype.name} have no type string")
        address, strides = _keep_snapshot(self)
        order = "|" if self.dtype.itemsize == 1 else "<"
        return {"shape": self.shape, "typestr": f"{order}{self.dtype.kind}{self.dtype.itemsize}",
                "data": (address if self.size else 0, True), "strides": strides, "version": 3,
                "stream": _c.stream_of(self.context) or None}


# Elementwise functions that NumPy has under another name, and functions of the same meaning.
_UFUNCS: dict[str, str] = {
    "equal": "eq", "arctan": "atan", "arcsin": "asin", "arccos": "acos", "arctanh": "atanh", "arcsinh": "asinh",
    "arccosh": "acosh", "arctan2": "atan2", "invert": "bitwise_not", "left_shift": "shl", "right_shift": "shr", "rint": "round"}
_FUNCTIONS: dict[str, str] = {n: n for n in (
    "sum mean prod amax amin any all argmax argmin cumsum cumprod concatenate stack vstack hstack where squeeze expand_dims ravel "
    "transpose swapaxes moveaxis broadcast_to tile dot outer einsum tril triu isclose allclose").split()}
_FUNCTIONS |= {"max": "amax", "min": "amin"}


def _same(name: str | None) -> Any:
    import tenon
    return getattr(tenon, name, None) if name else None


def _by_numpy(function: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """A function of NumPy, called with arrays in the places of tensors."""
    def plain(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return type(x)(map(plain, x)) if type(x) in (list, tuple) else x
        tensor: Any = x if isinstance(x, _c.Tensor) else None
        if tensor is None:
            return x
        if tensor.requires_grad:
            raise RuntimeError(f"numpy.{name} has no gradient: call it with x.detach(), or use a function of Tenon")
        return tensor.numpy()

    return function(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})


_snapshots: dict[int, list] = {}


def _keep_snapshot(x: Any) -> tuple[int, tuple | None]:
    """Exports x for as long as x lives; the address, and the strides in bytes."""
    capsule = _c.to_dlpack(x, 0, True, False, False)
    kept = _snapshots.get(id(x))
    if kept is None:
        kept = _snapshots[id(x)] = []
        weakref.finalize(x, _snapshots.pop, id(x), None)
    kept.append(capsule)
    address, strides = _c.capsule_layout(capsule)
    return address, tuple(s * x.dtype.itemsize for s in strides)


# ---- imports


def _context_for(device: Any, number: int | None = None) -> _c.Context:
    from ._functions import _on, context_on
    current = _on(device) or _c.current_context()
    if device is not None:
        return current
    if number is None or _cuda_number(current.device) == number:
        return current
    return context_on("cuda" if not number else f"cuda:{number}")


def of_bytes(a: Any, context: _c.Context | None) -> Any:
    """A copy of an array of ml_dtypes, which has no buffer; None for others."""
    dtype: Any = getattr(a, "dtype", None)
    if getattr(dtype, "isbuiltin", 1) != 2 or dtype.name not in _NO_FORMAT:  # 2: a dtype that a package has added
        return None
    return _c.from_bytes(a.tobytes(), dtype.name, a.shape, context)


def copied(a: Any, context: _c.Context | None) -> Any:
    """A tensor with the elements of an array of any library: without a buffer by DLPack, which has bfloat16 too."""
    x = of_bytes(a, context)
    if x is None and hasattr(a, "__dlpack__") and not isinstance(a, _c.Tensor):
        try:
            memoryview(a).release()
        except TypeError:
            try:
                return from_dlpack(a, device=context, copy=True)
            except (BufferError, Error):  # memory or a dtype that DLPack does not have; __array__ may convert it
                pass
    return _c.from_object(a, context) if x is None else x


def borrowed(a: Any, device: Any = None) -> Any:
    """A tensor that reads the memory of an array without a copy; None for what is no array."""
    x = of_bytes(a, _context_for(device))
    if x is not None:
        return x
    try:
        memoryview(a).release()
    except TypeError:
        return from_dlpack(a, device=device) if hasattr(a, "__dlpack__") else None
    return _c.borrow(a, _context_for(device))


def from_numpy(a: Any) -> Tensor:
    """A tensor that reads the memory of a NumPy array, or of another object with a buffer, without a copy on the cpu. The
    array must not be changed while the tensor is used; tn.tensor(a) is a copy."""
    x = borrowed(a)
    if x is None:
        raise TypeError(f"from_numpy takes an array, not a {type(a).__name__}")
    return x


def from_dlpack(x: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor that reads the memory of an array of another library, without a copy on the same device. The array must not
    be changed while the tensor is used. Memory of a GPU is used on a context of that GPU, in the order of its stream."""
    if isinstance(x, _c.Tensor) and device is None and not copy:
        return x.detach()
    if not hasattr(x, "__dlpack__"):  # a capsule
        return _c.from_capsule(x, _context_for(device))
    if getattr(x, "requires_grad", False) and hasattr(x, "detach"):
        x = x.detach()  # PyTorch exports values without history alone
    kind, number = x.__dlpack_device__()
    if kind not in (CPU, CUDA, CUDA_HOST, CUDA_MANAGED):
        raise BufferError(f"from_dlpack: memory of DLPack's device type {kind} cannot be used")
    on_gpu = kind in (CUDA, CUDA_MANAGED)
    context = _context_for(device, number if on_gpu else None)
    wanted: dict[str, Any] = {"max_version": (1, 1)}
    if on_gpu:
        if _cuda_number(context.device) != number:  # to another device by the host
            wanted |= {"dl_device": (CPU, 0), "copy": True}
        else:
            wanted["stream"] = _c.stream_of(context)
    if copy:
        wanted["copy"] = True
    capsule = _ask(x, wanted)
    y = _c.from_capsule(capsule, context)
    if copy and "copy" not in wanted:
        y = _c.from_bytes(_c.read_bytes(y), y.dtype, y.shape, context)
    return y


def _ask(x: Any, wanted: dict[str, Any]) -> Any:
    """x.__dlpack__ with the keywords that its library knows: older ones take a stream alone."""
    for name in ("", "max_version", "copy", "dl_device"):
        if name == "dl_device" and name in wanted:
            break  # the memory would be where it cannot be read
        wanted.pop(name, None)
        try:
            return x.__dlpack__(**wanted)
        except TypeError:
            if name == "copy":
                raise
    raise BufferError("from_dlpack: this library cannot copy to the host")


# ---- results in the memory of others


def eval_into(out: Any, x: Any) -> Any:
    """Evaluates x into the memory of out: a writable NumPy array or another object with a buffer, or a tensor of PyTorch on
    the device of x, row-major and of the dtype and shape of x; or lists of both. Results of kernels are computed there,
    and x then reads that memory: it must not be changed while x is used. Returns out."""
    outs, xs = (tuple(out), tuple(x)) if isinstance(out, (list, tuple)) else ((out,), (x,))
    if len(outs) != len(xs):
        raise ValueError(f"eval_into: {len(xs)} tensors and {len(outs)} places")
    places = tuple(_place(o, t) for o, t in zip(outs, xs))
    _c.eval_into(xs, tuple(p[0] for p in places), outs)
    return out


def _place(out: Any, x: Any) -> tuple[Any]:
    shape, dtype = tuple(getattr(out, "shape", x.shape)), getattr(out, "dtype", None)
    if shape != x.shape or dtype is not None and as_dtype(dtype) is not x.dtype:
        raise ValueError(f"eval_into: a tensor of {x.dtype.name} {x.shape} does not fit into {dtype} {shape}")
    if not hasattr(out, "data_ptr"):
        return (out,)
    if out.__dlpack_device__() != x.__dlpack_device__():
        raise ValueError(f"eval_into: a tensor on {x.device} is not computed on {out.device}")
    if not out.is_contiguous():
        raise ValueError("eval_into: the memory is not row-major")
    return (out.data_ptr(),)
