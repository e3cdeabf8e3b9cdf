"""Functions that programs for PyTorch and NumPy use, composed of others; and the facts of dtypes."""
from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, NoReturn

from . import _c, _functions as F
from ._dtypes import DType, DTypeLike, as_dtype, float32, int64

if TYPE_CHECKING:
    from ._tensor import Tensor

__all__ = ["addcmul", "addcdiv", "baddbmm", "broadcast_tensors", "bucketize", "cdist", "fliplr", "flipud", "frac", "inner",
           "isin", "mv", "nanmean", "nansum", "narrow", "normal", "searchsorted", "std_mean", "t", "take",
           "take_along_dim", "tensordot", "tril_indices", "triu_indices", "unflatten", "var_mean", "vdot", "xlogy", "deg2rad",
           "rad2deg", "get_default_dtype", "set_default_dtype", "device",
           "add", "sub", "div", "gather", "scatter", "index_add", "scatter_reduce", "nan_to_num", "diff", "multinomial", "finfo",
           "iinfo", "get_rng_state", "set_rng_state", "set_printoptions", "stft", "istft", "hann_window", "hamming_window", "is_complex"]


# ---- arithmetic


def add(a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    """a + alpha * b."""
    return _c.add(a, b if alpha == 1 else b * alpha)


def sub(a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    """a - alpha * b."""
    return _c.sub(a, b if alpha == 1 else b * alpha)


def div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Tensor:
    """a / b; with rounding_mode "floor" or "trunc" rounded down or towards 0, in the dtype of a and b."""
    if rounding_mode is None:
        return _c.div(a, b)
    if rounding_mode not in ("floor", "trunc"):
        raise ValueError(f"rounding_mode is None, 'floor' or 'trunc', not {rounding_mode!r}")
    return (_c.floor_divide if rounding_mode == "floor" else _c.trunc_divide)(a, b)


def nan_to_num(x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """x with numbers in the places of NaN and the infinities: 0, and the largest and smallest of its dtype."""
    x = F.as_tensor(x)
    if x.dtype.kind != "f":
        return _c.clone(x)
    most = finfo(x.dtype).max
    y = F.where(_c.isnan(x), nan, x)
    y = F.where(_c.eq(x, math.inf), most if posinf is None else posinf, y)
    return F.where(_c.eq(x, -math.inf), -most if neginf is None else neginf, y)


def diff(x: Any, n: int = 1, axis: int = -1, *, dim: int | None = None) -> Tensor:
    """The differences of neighbours along an axis, n times."""
    x, axis = F.as_tensor(x), axis if dim is None else dim
    for _ in range(n):
        size = x.shape[axis]
        after, before = _c.slice(x, axis, min(1, size), size, 1), _c.slice(x, axis, 0, max(size - 1, 0), 1)
        x = _c.ne(after, before) if x.dtype.kind == "b" else _c.sub(after, before)
    return x


def addcmul(x: Any, a: Any, b: Any, *, value: float = 1) -> Tensor:
    """x + value * a * b."""
    return _c.add(x, _c.mul(a, b) * value)


def addcdiv(x: Any, a: Any, b: Any, *, value: float = 1) -> Tensor:
    """x + value * a / b."""
    return _c.add(x, _c.div(a, b) * value)


def frac(x: Any) -> Tensor:
    """What follows the point."""
    return _c.sub(x, _c.trunc(x))


def xlogy(x: Any, y: Any) -> Tensor:
    """x * log(y), and 0 where x is 0."""
    x, y = F.as_tensor(x), F.as_tensor(y)
    none = _c.logical_and(_c.eq(x, 0), _c.logical_not(_c.isnan(y)))
    return F.where(none, 0.0, x * _c.log(F.where(none, 1.0, y)))


def deg2rad(x: Any) -> Tensor:
    """Degrees as radians."""
    return F.as_tensor(x) * (math.pi / 180)


def rad2deg(x: Any) -> Tensor:
    """Radians as degrees."""
    return F.as_tensor(x) * (180 / math.pi)


# ---- products


def mv(a: Any, b: Any) -> Tensor:
    """The product of a matrix and a row of numbers."""
    if a.ndim != 2 or b.ndim != 1:
        raise ValueError(f"mv takes tensors of 2 axes and 1 axis, not of {a.ndim} and {b.ndim}")
    return _c.matmul(a, b)


def vdot(a: Any, b: Any) -> Tensor:
    """The inner product of two rows of numbers."""
    return _c.sum_all(_c.mul(a, b))


def inner(a: Any, b: Any) -> Tensor:
    """The sums of products along the last axes."""
    return tensordot(a, b, dims=([-1], [-1])) if F.as_tensor(a).ndim and F.as_tensor(b).ndim else _c.mul(a, b)


def baddbmm(x: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * x + alpha * a @ b, of rows of matrices."""
    return _c.add(x * beta, F.bmm(a, b) * alpha)


def tensordot(a: Any, b: Any, dims: Any = 2) -> Tensor:
    """The sums of products over axes of both: over the last `dims` of a and the first of b, or over two lists of axes."""
    a, b = F.as_tensor(a), F.as_tensor(b)
    left, right = (range(a.ndim - dims, a.ndim), range(dims)) if isinstance(dims, int) else dims
    return _c.tensordot(a, b, list(left), list(right))


def cdist(a: Any, b: Any, p: float = 2.0) -> Tensor:
    """The distances of all rows of a from all rows of b, by the p-norm."""
    return F.norm(_c.unsqueeze(a, -2) - _c.unsqueeze(b, -3), p, -1)


# ---- statistics


def nansum(x: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum of what is not NaN."""
    return F.sum(nan_to_num(x, 0.0, math.inf, -math.inf), dim, keepdim)


def nanmean(x: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The mean of what is not NaN."""
    count = F.sum(_c.cast(_c.logical_not(_c.isnan(x)), x.dtype), dim, keepdim)
    return nansum(x, dim, keepdim) / count


def var_mean(x: Any, dim: Any = None, *, correction: float = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The variance and the mean."""
    return F.var(x, dim, keepdim, correction=correction), F.mean(x, dim, keepdim)


def std_mean(x: Any, dim: Any = None, *, correction: float = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean."""
    return F.std(x, dim, keepdim, correction=correction), F.mean(x, dim, keepdim)


# ---- shape


def t(x: Any) -> Tensor:
    """The transpose of a matrix; a row of numbers stays."""
    return F.as_tensor(x).t()


def narrow(x: Any, dim: int, start: int, length: int) -> Tensor:
    """The `length` elements from start on along an axis."""
    return F.as_tensor(x).narrow(dim, start, length)


def unflatten(x: Any, dim: int, sizes: Any) -> Tensor:
    """An axis as several, of these sizes, of which one may be -1."""
    dim %= x.ndim
    return _c.reshape(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1:]))


def flipud(x: Any) -> Tensor:
    """The first axis in the opposite order."""
    return F.flip(x, 0)


def fliplr(x: Any) -> Tensor:
    """The second axis in the opposite order."""
    return F.flip(x, 1)


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """The tensors, broadcast to one shape."""
    from ._index import broadcast
    shape = broadcast(*(x.shape for x in tensors))
    return tuple(_c.expand(x, shape) for x in tensors)


# ---- elements at indices


def take(x: Any, index: Any) -> Tensor:
    """The elements of x, as one row, at the places of index."""
    index = F.as_tensor(index)
    return _c.reshape(_c.index_select(_c.reshape(x, (-1,)), 0, _c.reshape(index, (-1,))), index.shape)


def take_along_dim(x: Any, index: Any, dim: int | None = None) -> Tensor:
    """The elements of x at index along an axis, where the others broadcast."""
    return _c.take_along_axis(x, index, dim) if dim is not None else take(x, index)


def isin(x: Any, among: Any) -> Tensor:
    """Where an element of x is among others."""
    return _c.any(_c.eq(_c.unsqueeze(x, -1), _c.reshape(among, (-1,))), -1)


def searchsorted(rows: Any, values: Any, *, right: bool = False) -> Tensor:
    """The places where values would be put into sorted rows; right: behind equal ones."""
    return _c.searchsorted(F.as_tensor(rows), F.as_tensor(values), right)


def bucketize(values: Any, boundaries: Any, *, right: bool = False) -> Tensor:
    """The numbers of the buckets that values are in."""
    return searchsorted(boundaries, values, right=right)


def tril_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """The row and column numbers of the elements on and below a diagonal."""
    return F.tensor([[i for i in range(row) for j in range(col) if j <= i + offset],
                     [j for i in range(row) for j in range(col) if j <= i + offset]], int64)


def triu_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """The row and column numbers of the elements on and above a diagonal."""
    return F.tensor([[i for i in range(row) for j in range(col) if j >= i + offset],
                     [j for i in range(row) for j in range(col) if j >= i + offset]], int64)


def _corner(x: Any, dim: int, index: Any) -> Any:
    """The part of x that an index covers: PyTorch's may be smaller along the other axes."""
    if index.ndim != x.ndim:
        return x  # which the op refuses
    return x[tuple(slice(0, x.shape[i] if i == dim % x.ndim else n) for i, n in enumerate(index.shape))]


def gather(x: Any, dim: int, index: Any) -> Tensor:
    """The elements of x at index along an axis: y[i][j] = x[index[i][j]][j] for axis 0."""
    x, index = F.as_tensor(x), F.as_tensor(index)
    return _c.gather(_corner(x, dim, index), dim, index)


def scatter(x: Any, dim: int, index: Any, src: Any = None, *, value: float | None = None, reduce: str | None = None) -> Tensor:
    """A copy of x with the elements of src, or one number, at index along an axis; reduce="add" adds them."""
    if (src is None) == (value is None):
        raise TypeError("scatter() takes src or value")
    if reduce not in (None, "add"):
        raise NotImplementedError(f"scatter: reduce={reduce!r}; 'add' is there")
    x, index = F.as_tensor(x), F.as_tensor(index)
    src = value if src is None else src
    if not isinstance(src, _c.Tensor) or not src.ndim:
        src = _c.expand(F.tensor(src, x.dtype, device=x.context), index.shape)
    src = src[tuple(slice(0, n) for n in index.shape)] if src.shape != index.shape else src
    write = _c.scatter if reduce is None else _c.scatter_add
    part = _corner(x, dim, index)
    if part.shape == x.shape:
        return write(x, dim, index, src)
    y = _c.clone(x)
    _c.assign(_corner(y, dim, index), write(part, dim, index, src))
    return y


def index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Tensor:
    """A copy of x with the slices of source added at index along an axis."""
    return _c.index_add(x, dim, index, source if alpha == 1 else source * alpha)


def scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Tensor:
    """A copy of x with the elements of src folded at index along an axis: reduce is sum, mean, prod, amax or amin."""
    folds = ("sum", "mean", "prod", "amax", "amin")
    if reduce not in folds:
        raise ValueError(f"scatter_reduce: reduce is one of {folds}, not {reduce!r}")
    return _c.scatter_reduce(x, dim, index, src, folds.index(reduce), include_self)


# ---- random numbers


def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None) -> Tensor:
    """Random numbers of normal distributions with these means and standard deviations."""
    if size is None:
        size = (mean + std if F.is_tensor(mean) else std + mean).shape
    return F.randn(*size) * std + mean


def multinomial(x: Any, num_samples: int, replacement: bool = False) -> Tensor:
    """Draws indices of each row, with probabilities proportional to its weights; without replacement no index twice."""
    if replacement:
        return _c.multinomial(x, num_samples)
    x = F.as_tensor(x)
    if num_samples > x.shape[-1]:
        raise ValueError(f"multinomial: {num_samples} of {x.shape[-1]} indices cannot be drawn without replacement")
    # The largest of log(weight) plus Gumbel noise are such a draw.
    u = _c.rand(float32, x.shape, context=x.context)
    noise = -_c.log(-_c.log(_c.clamp(u, 1e-20, 1 - 6e-8)))
    return _c.topk(_c.log(_c.cast(x.detach(), float32)) + noise, num_samples, -1, True)[1]


def get_rng_state(device: Any = None) -> Tensor:
    """The place in the sequence of random numbers, as bytes for set_rng_state."""
    context = F._on(device) or _c.current_context()
    return _c.from_bytes(struct.pack("<QQ", *context.random_state), "uint8", (16,), context)


def set_rng_state(state: Tensor, device: Any = None) -> None:
    """Returns to a place in the sequence of random numbers."""
    if state.dtype.name != "uint8" or state.shape != (16,):
        raise ValueError("set_rng_state takes what get_rng_state has returned")
    context = F._on(device) or _c.current_context()
    context.random_state = struct.unpack("<QQ", _c.read_bytes(state))


# ---- facts of dtypes


class finfo:
    """The limits of a floating-point dtype."""

    def __init__(self, dtype: DTypeLike = float32) -> None:
        self.dtype: DType = as_dtype(dtype)
        if self.dtype.name not in _FLOATS:
            raise TypeError(f"finfo takes a floating-point dtype, not {self.dtype.name}; iinfo is for integers")
        digits, least, self.max = _FLOATS[self.dtype.name]
        self.bits, self.min = 8 * self.dtype.itemsize, -self.max
        self.eps, self.tiny = 2.0 ** -digits, 2.0 ** least
        self.smallest_normal = self.tiny
        self.resolution = 10.0 ** -math.floor(digits * math.log10(2))

    def __repr__(self) -> str:
        return f"finfo({self.dtype.name}, max={self.max:g}, min={self.min:g}, eps={self.eps:g}, tiny={self.tiny:g})"


# Bits of the fraction, the exponent of the smallest normal number, the largest number.
_FLOATS = {
    "float64": (52, -1022, (2 - 2.0 ** -52) * 2.0 ** 1023), "float32": (23, -126, (2 - 2.0 ** -23) * 2.0 ** 127),
    "float16": (10, -14, 65504.0), "bfloat16": (7, -126, (2 - 2.0 ** -7) * 2.0 ** 127),
    "float8_e4m3fn": (3, -6, 448.0), "float8_e5m2": (2, -14, 57344.0)}


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, dtype: DTypeLike = int64) -> None:
        self.dtype: DType = as_dtype(dtype)
        if self.dtype.kind not in "iu":
            raise TypeError(f"iinfo takes an integer dtype, not {self.dtype.name}; finfo is for floats")
        self.bits = 8 * self.dtype.itemsize
        signed = self.dtype.kind == "i"
        self.min: int = -(1 << self.bits - 1) if signed else 0
        self.max: int = (1 << self.bits - signed) - 1

    def __repr__(self) -> str:
        return f"iinfo({self.dtype.name}, max={self.max}, min={self.min})"


def get_default_dtype() -> DType:
    """float32: numbers of Python that have a fraction become it."""
    return float32


def set_default_dtype(dtype: DTypeLike) -> None:
    """There is one default, float32."""
    if as_dtype(dtype) is not float32:
        raise NotImplementedError("set_default_dtype: it is float32; pass dtype= where a tensor is made")


def device(name: Any = "cpu", index: int | None = None) -> str:
    """The name of a device, which is what tensors have: device("cuda", 1) is "cuda:1"."""
    if not F.is_device(name):
        raise RuntimeError(f"{name!r} is not a device; there are cpu, cuda, opencl and ref")
    return f"{name}:{index}" if index else str(name)


def set_printoptions(*unused: Any, **unused_too: Any) -> NoReturn:
    raise NotImplementedError("tensors are printed as NumPy prints arrays by default; print(x.numpy()) follows "
                              "numpy.set_printoptions")


# ---- signals


def is_complex(x: Any) -> bool:
    """Whether the elements are complex numbers."""
    return x.dtype.is_complex


def hann_window(window_length: int, periodic: bool = True, *, dtype: Any = "float32", device: Any = None) -> Tensor:
    """0.5 - 0.5 cos(2 pi k / n); n - 1 in the place of n if it is not periodic."""
    return _c.hann_window(dtype, window_length, not periodic, context=F._on(device))


def hamming_window(window_length: int, periodic: bool = True, *, dtype: Any = "float32", device: Any = None) -> Tensor:
    """0.54 - 0.46 cos(2 pi k / n)."""
    return _c.hamming_window(dtype, window_length, not periodic, context=F._on(device))


def stft(input: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None, center: bool = True,
         pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None, return_complex: bool = True) -> Tensor:
    """Short-time Fourier transforms of a signal (..., T): (..., frequencies, windows), complex."""
    if pad_mode not in ("reflect", "constant"):
        raise ValueError(f"stft: pad_mode is {pad_mode!r}; there are reflect and constant")
    y = _c.stft(input, n_fft, hop=hop_length or 0, win=win_length or 0, window=window, no_center=not center, pad_zeros=pad_mode == "constant",
                normalized=normalized, two_sided=onesided is False)
    return y if return_complex else _c.view_as_real(y)


def istft(input: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None, center: bool = True,
          normalized: bool = False, onesided: bool | None = None, length: int | None = None) -> Tensor:
    """The signal of such transforms. Where no window reaches it is not finite."""
    return _c.istft(input, n_fft, hop=hop_length or 0, win=win_length or 0, window=window, no_center=not center, normalized=normalized,
                    two_sided=onesided is False, length=length or 0)
