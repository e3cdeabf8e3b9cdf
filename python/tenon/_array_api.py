"""The names of the array API standard (2024.12) that NumPy and PyTorch have otherwise: thin forms of other functions."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from . import _c, _composed, _functions as F
from ._dtypes import DType, DTypeLike, as_dtype

if TYPE_CHECKING:
    from ._tensor import Tensor

__all__ = ["astype", "can_cast", "isdtype", "result_type", "bitwise_invert", "bitwise_left_shift", "bitwise_right_shift", "positive",
           "matrix_transpose", "vecdot", "broadcast_arrays", "permute_dims", "unstack", "unique_all", "unique_counts", "unique_inverse",
           "unique_values", "cumulative_sum", "cumulative_prod"]

# ---- dtypes


def astype(x: Any, dtype: DTypeLike, /, *, copy: bool = True) -> Tensor:
    """x converted to a dtype; without copy, x itself if it has that dtype."""
    return x if not copy and x.dtype is as_dtype(dtype) else _c.cast(x, dtype)


_NUMBERS = (bool, int, float, complex)


def _sample(x: Any) -> Any:
    """What promotes as x does: a number of Python, or a tensor of one element, since one without axes would count as a number."""
    if isinstance(x, _NUMBERS):
        return x
    return _c.zeros(x.dtype if F.is_tensor(x) else as_dtype(x), (1,))


def result_type(*args: Any) -> DType:
    """The dtype that tensors, dtypes and numbers of Python promote to together."""
    tensors = [_sample(x) for x in args if not isinstance(x, _NUMBERS)]
    if not tensors:
        raise ValueError("result_type: there is no tensor or dtype among the arguments")
    y = tensors[0]
    for x in tensors[1:] + [x for x in args if isinstance(x, _NUMBERS)]:
        y = _c.add(y, x)
    return y.dtype


def can_cast(of: Any, to: DTypeLike, /) -> bool:
    """Whether promotion takes a dtype, or that of a tensor, to another."""
    return result_type(of, as_dtype(to)) is as_dtype(to)


_KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
          "complex floating": "c", "numeric": "iufc"}


def isdtype(dtype: DTypeLike, kind: Any) -> bool:
    """Whether a dtype is of a kind ("integral", "real floating", ...), a dtype, or one of several."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return as_dtype(dtype).kind in _KINDS[kind]
    return as_dtype(dtype) is as_dtype(kind)


# ---- maps

bitwise_invert: Callable[..., Tensor] = _c.bit_not
bitwise_left_shift: Callable[..., Tensor] = _c.shl
bitwise_right_shift: Callable[..., Tensor] = _c.shr


def positive(x: Any, /) -> Tensor:
    """x itself, as a new tensor."""
    return _c.clone(x)


# ---- shapes and products


def matrix_transpose(x: Any, /) -> Tensor:
    """The last two axes exchanged."""
    return _c.transpose(x, -2, -1)


def vecdot(a: Any, b: Any, /, *, axis: int = -1) -> Tensor:
    """The sums of products along an axis."""
    return _c.sum_axes(_c.mul(a, b), [axis], False)


def permute_dims(x: Any, /, axes: Any) -> Tensor:
    """The axes in another order."""
    return _c.permute(x, axes)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without it."""
    return F.unbind(x, axis)


def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """Tensors broadcast to their common shape."""
    return list(_composed.broadcast_tensors(*arrays))


# ---- sets


class UniqueAll(NamedTuple):
    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Any, /) -> UniqueAll:
    """The different elements in order, where each is first, the place of each element of x among them, and their numbers."""
    return UniqueAll(*F.unique_parts(x))


def unique_counts(x: Any, /) -> UniqueCounts:
    """The different elements in order, and their numbers."""
    all = F.unique_parts(x)
    return UniqueCounts(all[0], all[3])


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The different elements in order, and the place of each element of x among them."""
    all = F.unique_parts(x)
    return UniqueInverse(all[0], all[2])


def unique_values(x: Any, /) -> Tensor:
    """The different elements in order."""
    return F.unique_parts(x)[0]


# ---- running sums


def _running(name: str, f: Any, first: int, x: Any, axis: int | None, dtype: DTypeLike | None, include_initial: bool) -> Tensor:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{name}: x has {x.ndim} axes, and there is no axis")
        axis = 0
    y = f(x if dtype is None else _c.cast(x, dtype), axis)
    if dtype is not None and y.dtype is not as_dtype(dtype):  # sums of small integers are int64
        y = _c.cast(y, dtype)
    if include_initial:
        shape = list(y.shape)
        shape[axis] = 1
        y = _c.concat([F.full(shape, first, y.dtype, device=y.context), y], axis)
    return y


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False) -> Tensor:
    """The sums of the elements up to each one along an axis; include_initial puts a 0 before them."""
    return _running("cumulative_sum", _c.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False) -> Tensor:
    """The products of the elements up to each one along an axis; include_initial puts a 1 before them."""
    return _running("cumulative_prod", _c.cumprod, 1, x, axis, dtype, include_initial)
