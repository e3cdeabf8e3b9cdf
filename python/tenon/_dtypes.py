"""The types of elements."""
from __future__ import annotations

from typing import Any, Union


class DType:
    """The type of a tensor's elements: tenon.float32. Equal to its names, "float32" and "f32"."""

    __slots__ = ("name", "short", "itemsize", "kind", "_number")

    def __init__(self, number: int, name: str, short: str, itemsize: int, kind: str) -> None:
        self._number, self.name, self.short, self.itemsize, self.kind = number, name, short, itemsize, kind

    @property
    def is_floating_point(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    def __repr__(self) -> str:
        return f"tenon.{self.name}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        try:
            return as_dtype(other) is self
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> Any:
        return as_dtype, (self.name,)


# In the order of tn_dtype.
DTYPES = [DType(i, *row) for i, row in enumerate([
    ("bool", "bool", 1, "b"), ("uint8", "u8", 1, "u"), ("int8", "i8", 1, "i"), ("int32", "i32", 4, "i"),
    ("int64", "i64", 8, "i"), ("float16", "f16", 2, "f"), ("bfloat16", "bf16", 2, "f"), ("float32", "f32", 4, "f"),
    ("float64", "f64", 8, "f"), ("int16", "i16", 2, "i"), ("uint16", "u16", 2, "u"), ("uint32", "u32", 4, "u"),
    ("uint64", "u64", 8, "u"), ("float8_e4m3fn", "f8_e4m3", 1, "f"), ("float8_e5m2", "f8_e5m2", 1, "f"),
    ("complex64", "c64", 8, "c"), ("complex128", "c128", 16, "c")])]

(bool_, uint8, int8, int32, int64, float16, bfloat16, float32, float64, int16, uint16, uint32, uint64, float8_e4m3fn,
 float8_e5m2, complex64, complex128) = DTYPES

__all__ = ["DType", "DTypeLike"] + [d.name for d in DTYPES if d.name != "bool"] + ["bool_"]

# The letters of the struct module; bfloat16 and the floats of 8 bits have none.
FORMATS = {"bool": "?", "uint8": "B", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
           "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
           "complex64": "Zf", "complex128": "Zd"}

DTypeLike = Union[DType, str, type, Any]

_by_name = {name: d for d in DTYPES for name in (d.name, d.short)}
_by_name |= {"half": float16, "float": float32, "double": float64, "int": int64, "long": int64, "bool_": bool_,
             "cfloat": complex64, "cdouble": complex128}
_by_type = {bool: bool_, int: int64, float: float32, complex: complex64}


def as_dtype(x: DTypeLike) -> DType:
    """The dtype of a name, of a type of Python, or of a dtype of NumPy or PyTorch."""
    if isinstance(x, DType):
        return x
    if isinstance(x, type) and x in _by_type:
        return _by_type[x]
    name = x if isinstance(x, str) else getattr(x, "name", None) or getattr(x, "__name__", None) or str(x)
    found = _by_name.get(name.rpartition(".")[2]) if isinstance(name, str) else None
    if found is None:
        raise TypeError(f"{x!r} is not a dtype; there are {', '.join(d.name for d in DTYPES)}")
    return found
