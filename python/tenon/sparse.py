"""Sparse matrices, with the names of torch.sparse: values at places that are kept once, times dense matrices and vectors.

    a = tn.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
    y = a @ x                                      # gradients go to the values of a and to x

Elements are kept by rows, whichever function made the matrix: one kind serves as COO and as CSR. The indices are read, checked and
sorted when a matrix is made, and values at the same place are added up then.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from . import _c, _functions as F

if TYPE_CHECKING:
    from ._tensor import Tensor

__all__ = ["SparseTensor", "sparse_coo_tensor", "sparse_csr_tensor", "mm", "addmm", "sampled_addmm", "to_sparse_semi_structured"]


class SparseTensor:
    """A sparse matrix. It is made by sparse_coo_tensor, sparse_csr_tensor and Tensor.to_sparse."""

    __slots__ = ("_values", "_pattern", "_rows", "_cols", "_transposed")
    __array_ufunc__ = None  # so that NumPy leaves its operators to this class

    def __init__(self, values: Tensor, pattern: Tensor, rows: int, cols: int, transposed: bool = False) -> None:
        self._values, self._pattern, self._rows, self._cols, self._transposed = values, pattern, rows, cols, transposed

    def _parts(self) -> dict[str, Any]:
        return {"values": self._values, "pattern": self._pattern, "rows": self._rows, "cols": self._cols,
                "transposed": self._transposed}

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return (self._cols, self._rows) if self._transposed else (self._rows, self._cols)

    @property
    def dtype(self) -> Any:
        """That of the values."""
        return self._values.dtype

    @property
    def requires_grad(self) -> bool:
        """Whether the values do."""
        return self._values.requires_grad

    ndim = 2
    is_sparse = True

    def values(self) -> Tensor:
        """The values, by rows of the matrix that was made; those of a transposed one keep its order."""
        return self._values

    def indices(self) -> Tensor:
        """Rows and columns of the values, (2, count)."""
        return _c.sparse_indices(**self._parts())

    def crow_indices(self) -> Tensor:
        """Where the elements of each row begin, and the number of all, (rows + 1)."""
        if self._transposed:
            raise ValueError("crow_indices: the values of a transposed matrix are by its columns")
        return self._pattern[:self._rows + 1].long()

    def col_indices(self) -> Tensor:
        """The columns of the values."""
        return self.indices()[1]

    def with_values(self, values: Any) -> SparseTensor:
        """A matrix with other values at the same places."""
        return SparseTensor(F.as_tensor(values), self._pattern, self._rows, self._cols, self._transposed)

    def coalesce(self) -> SparseTensor:
        """The matrix itself: its elements are sorted and each place is there once."""
        return self

    def to_dense(self) -> Tensor:
        """All elements."""
        return _c.sparse_to_dense(**self._parts())

    def t(self) -> SparseTensor:
        """The transposed matrix, over the same values."""
        return SparseTensor(self._values, self._pattern, self._rows, self._cols, not self._transposed)

    T = property(t)

    def detach(self) -> SparseTensor:
        """The matrix without the history of its values."""
        return self.with_values(self._values.detach())

    def __matmul__(self, x: Any) -> Tensor:
        return _c.sparse_matmul(x, **self._parts())

    matmul = mm = mv = __matmul__

    def __rmatmul__(self, x: Any) -> Tensor:
        x = F.as_tensor(x)
        return _c.sparse_matmul(x, **self.t()._parts()) if x.ndim == 1 else _c.sparse_matmul(x.mT, **self.t()._parts()).mT

    def __mul__(self, by: Any) -> SparseTensor:
        return self.with_values(self._values * by)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"SparseTensor({self.shape[0]} x {self.shape[1]}, {self._values.shape[0]} of {self.dtype})"


def _size(name: str, size: Any, rows: int, cols: int) -> tuple[int, int]:
    if size is None:
        return rows, cols
    if len(size) != 2:
        raise ValueError(f"{name}: size {tuple(size)} is not that of a matrix")
    return int(size[0]), int(size[1])


def _floats(values: Any, dtype: Any) -> Tensor:
    values = F.as_tensor(values)
    return values.to(dtype) if dtype is not None and values.dtype != dtype else values


def _most(x: Tensor) -> int:
    return int(x.max().item()) + 1 if x.shape[-1] else 0


def sparse_coo_tensor(indices: Any, values: Any, size: Sequence[int] | None = None, *, dtype: Any = None) -> SparseTensor:
    """The matrix of values at indices (2, count): rows, then columns. Without a size, up to the largest of them."""
    at, v = F.as_tensor(indices), _floats(values, dtype)
    rows, cols = _size("sparse_coo_tensor", size, *((0, 0) if size is not None else (_most(at[0]), _most(at[1]))))
    return SparseTensor(*_c.sparse_coo(at, v, rows, cols), rows, cols)


def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Sequence[int] | None = None, *,
                      dtype: Any = None) -> SparseTensor:
    """The matrix of which row r has the values crow_indices[r] to crow_indices[r + 1] - 1, at these columns."""
    offsets, columns, v = F.as_tensor(crow_indices), F.as_tensor(col_indices), _floats(values, dtype)
    rows, cols = _size("sparse_csr_tensor", size, offsets.shape[0] - 1, 0 if size is not None else _most(columns))
    if rows != offsets.shape[0] - 1:
        raise ValueError(f"sparse_csr_tensor: crow_indices {tuple(offsets.shape)} are not those of {rows} rows")
    return SparseTensor(*_c.sparse_csr(offsets, columns, v, cols), rows, cols)


def from_dense(x: Any) -> SparseTensor:
    """The elements of a matrix that are not 0."""
    x = F.as_tensor(x)
    values, pattern = _c.sparse_from_dense(x)
    return SparseTensor(values, pattern, *x.shape)


def mm(a: SparseTensor, x: Any) -> Tensor:
    """a @ x."""
    return a @ x


def addmm(input: Any, a: SparseTensor, x: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * (a @ x)."""
    y = a @ x
    y = y if alpha == 1 else y * alpha
    return y + (input if beta == 1 else F.as_tensor(input) * beta) if beta else y


def sampled_addmm(input: SparseTensor, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> SparseTensor:
    """beta * input + alpha * (x @ y), at the places of input alone."""
    v = _c.sparse_sampled(x, y, **input._parts())
    v = v if alpha == 1 else v * alpha
    return input.with_values(v + input.values() * beta if beta else v)


def to_sparse_semi_structured(x: Tensor) -> Tensor:
    """The same tensor, a matrix with two zeros at least in each four elements of a row: from now on products with it along its rows, as
    those of nn.Linear, are by cuSPARSELt where that is faster, until it is written. Its other uses and its value stay as they are."""
    _c.compress_2_4(x)
    return x
