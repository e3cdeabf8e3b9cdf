"""Linear algebra, with the names of torch.linalg and numpy.linalg. Matrices are the last two axes; the others are a batch.

A matrix that cannot be factored gives NaN: values are computed later, and nothing waits to look. The functions that end in _ex
return a number for each matrix beside the result, 0 if all is well; with check_errors they read it and raise.
"""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

from . import _c, _composed, _functions as F

if TYPE_CHECKING:
    from ._tensor import Tensor

__all__ = ["cholesky", "cholesky_ex", "solve", "solve_ex", "solve_triangular", "lstsq", "inv", "inv_ex", "pinv", "det", "slogdet",
           "qr", "eigh", "eigvalsh", "svd", "svdvals", "matrix_rank", "matrix_power", "multi_dot", "norm", "vector_norm",
           "matrix_norm", "cond", "diagonal", "vecdot", "cross", "matmul",
           "matrix_transpose", "outer", "tensordot", "trace"]

_NORMS = {"fro": 0, "nuc": 1, 1: 2, math.inf: 3, 2: 4, -1: 5, -math.inf: 6, -2: 7}


class CholeskyEx(NamedTuple):
    L: Tensor
    info: Tensor


class SolveEx(NamedTuple):
    result: Tensor
    info: Tensor


class InvEx(NamedTuple):
    inverse: Tensor
    info: Tensor


class Slogdet(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class QR(NamedTuple):
    Q: Tensor
    R: Tensor


class Eigh(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class SVD(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


class Lstsq(NamedTuple):
    solution: Tensor
    residuals: Tensor


def _mT(x: Tensor) -> Tensor:
    return _c.transpose(x, -2, -1)


def _checked(name: str, both: Any, check_errors: bool) -> Any:
    if check_errors:
        _c.linalg_check(name, both[1])
    return both


# ---- factorizations and equations


def cholesky(A: Any, *, upper: bool = False) -> Tensor:
    """L of A = L L.mT, by the lower triangle of A; with upper U of A = U.mT U, by the upper one."""
    return _c.cholesky(A, upper)


def cholesky_ex(A: Any, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """The same, and info: the order of the first minor that is not positive definite."""
    return _checked("cholesky", CholeskyEx(*_c.cholesky_ex(A, upper)), check_errors)


def _columns(A: Any, B: Any) -> tuple[Tensor, Tensor, bool]:
    """B as matrices, where it is a batch of vectors as PyTorch and NumPy 1 have it."""
    A, B = F.as_tensor(A), F.as_tensor(B)
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    return A, _c.unsqueeze(B, -1) if vector else B, vector


def solve(A: Any, B: Any, *, left: bool = True) -> Tensor:
    """X of A X = B, or of X A = B; B is a matrix, or a vector for each matrix of A."""
    A, B, vector = _columns(A, B) if left else (_mT(F.as_tensor(A)), _mT(F.as_tensor(B)), False)
    X = _c.solve(A, B)
    return _c.squeeze(X, -1) if vector else X if left else _mT(X)


def solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> SolveEx:
    """The same, and info: the first pivot that is 0, counted from 1."""
    A, B, vector = _columns(A, B) if left else (_mT(F.as_tensor(A)), _mT(F.as_tensor(B)), False)
    X, info = _checked("solve", _c.solve_ex(A, B), check_errors)
    return SolveEx(_c.squeeze(X, -1) if vector else X if left else _mT(X), info)


def solve_triangular(A: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X of A X = B, or of X A = B, by one triangle of A; unitriangular: its diagonal counts as ones."""
    if left:
        return _c.solve_triangular(A, B, upper, unitriangular)
    A, B = _mT(F.as_tensor(A)), _mT(F.as_tensor(B))
    return _mT(_c.solve_triangular(A, B, not upper, unitriangular))


def lstsq(A: Any, B: Any) -> Lstsq:
    """The X with the smallest |A X - B|, for A of full rank, and the sums of squares that are left; see pinv for less rank."""
    A, B, vector = _columns(A, B)
    X = _c.lstsq(A, B)
    left = _c.sub(B, _c.matmul(A, X))
    rest = _c.sum_axes(_c.mul(left, left), [-2], False)
    return Lstsq(_c.squeeze(X, -1) if vector else X, rest)


def inv(A: Any) -> Tensor:
    """The inverse."""
    return _c.inv(A)


def inv_ex(A: Any, *, check_errors: bool = False) -> InvEx:
    """The inverse, and info: the first pivot that is 0, counted from 1."""
    return _checked("inv", InvEx(*_c.inv_ex(A)), check_errors)


def pinv(A: Any, rtol: float | None = None) -> Tensor:
    """The pseudo-inverse; singular values below rtol times the largest count as 0."""
    return _c.pinv(A, rtol or 0)


def det(A: Any) -> Tensor:
    """The determinant."""
    return _c.det(A)


def slogdet(A: Any) -> Slogdet:
    """The sign of the determinant, and the logarithm of its absolute value."""
    return Slogdet(*_c.slogdet(A))


def qr(A: Any, mode: str = "reduced") -> QR:
    """A = Q R: orthonormal columns and an upper triangle. mode "complete": Q is square; "r": no Q."""
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"mode is 'reduced', 'complete' or 'r', not {mode!r}")
    q, r = _c.qr(A, mode == "complete")
    return QR(_c.zeros_like(_c.slice(q, -1, 0, 0, 1)) if mode == "r" else q, r)


def eigh(A: Any, UPLO: str = "L") -> Eigh:
    """Eigenvalues, rising, and eigenvectors, as columns, of symmetric matrices, by the triangle that UPLO names."""
    return Eigh(*_c.eigh(A, UPLO in "Uu"))


def eigvalsh(A: Any, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric matrices, rising."""
    return _c.eigvalsh(A, UPLO in "Uu")


def svd(A: Any, full_matrices: bool = True) -> SVD:
    """A = U diag(S) Vh, with singular values S, falling; full_matrices: U and Vh are square."""
    return SVD(*_c.svd(A, full_matrices))


def svdvals(A: Any) -> Tensor:
    """The singular values, falling."""
    return _c.svdvals(A)


def matrix_rank(A: Any, rtol: float | None = None) -> Tensor:
    """The number of singular values above rtol times the largest."""
    return _c.matrix_rank(A, rtol or 0)


def matrix_power(A: Any, n: int) -> Tensor:
    """The product of n times A; of the inverse, if n is negative."""
    return _c.matrix_power(A, n)


def multi_dot(tensors: Sequence[Any]) -> Tensor:
    """The product of matrices, in the order that takes the fewest multiplications."""
    x = [F.as_tensor(t) for t in tensors]
    if len(x) < 2:
        raise ValueError("multi_dot: give two matrices at least")
    while len(x) > 1:
        saved = [x[i].shape[-1] for i in range(len(x) - 1)]
        i = max(range(len(saved)), key=saved.__getitem__)
        x[i:i + 2] = [_c.matmul(x[i], x[i + 1])]
    return x[0]


# ---- norms


def vector_norm(x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, axis: Any = None,
                keepdims: bool | None = None) -> Tensor:
    """(sum |x|^ord)^(1/ord) over axes, or over all elements."""
    dim = dim if axis is None else axis
    axes = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return _c.vector_norm(x, float(ord), axes, keepdim if keepdims is None else keepdims)


def matrix_norm(A: Any, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False) -> Tensor:
    """A norm of matrices: "fro", "nuc", 1, 2, inf and -1, -2, -inf."""
    if ord not in _NORMS:
        raise ValueError(f"matrix_norm: there is no norm {ord!r}")
    A = F.as_tensor(A)
    rows, columns = (d % A.ndim for d in dim)
    order = [i for i in range(A.ndim) if i not in (rows, columns)] + [rows, columns]
    y = _c.matrix_norm(_c.permute(A, order), _NORMS[ord])
    for d in sorted((rows, columns)) if keepdim else ():
        y = _c.unsqueeze(y, d)
    return y


def norm(A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, axis: Any = None,
         keepdims: bool | None = None) -> Tensor:
    """The norm of a vector or a matrix, as PyTorch chooses: of a matrix if dim has two axes, or A has and ord is given."""
    A, dim = F.as_tensor(A), dim if axis is None else axis
    keep = keepdim if keepdims is None else keepdims
    matrix = isinstance(ord, str) or (ord is not None and (A.ndim == 2 if dim is None else
                                                           not isinstance(dim, int) and len(dim) == 2))
    if matrix:
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keep)
    return vector_norm(A, 2 if ord is None else ord, dim, keep)


def cond(A: Any, p: Any = None) -> Tensor:
    """The norm of A times that of its inverse; by singular values if p is None."""
    if p is not None and p not in _NORMS:
        raise ValueError(f"cond: there is no norm {p!r}")
    return _c.cond(A, _NORMS[2 if p is None else p])


# ---- others that torch.linalg has


def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices."""
    return _c.diagonal(A, offset, dim1, dim2)


def vecdot(x: Any, y: Any, *, dim: int = -1) -> Tensor:
    """The sums of products along an axis."""
    return _c.sum_axes(_c.mul(x, y), [dim], False)


def cross(x: Any, y: Any, *, dim: int = -1) -> Tensor:
    """The cross product along an axis of 3 elements."""
    return _c.cross(x, y, dim)


def matmul(a: Any, b: Any) -> Tensor:
    """The product of matrices."""
    return _c.matmul(a, b)


def matrix_transpose(x: Any) -> Tensor:
    """The last two axes exchanged."""
    return _c.transpose(x, -2, -1)


def outer(a: Any, b: Any) -> Tensor:
    """The products of all elements of one vector with all of another."""
    return _c.outer(a, b)


def tensordot(a: Any, b: Any, *, axes: Any = 2) -> Tensor:
    """The sums of products over some axes of both, or the last and first ones, as many as axes says."""
    return _composed.tensordot(a, b, axes)


def trace(x: Any, *, offset: int = 0) -> Tensor:
    """The sum of a diagonal of each matrix."""
    return _c.sum(_c.diagonal(x, offset, -2, -1), -1)
