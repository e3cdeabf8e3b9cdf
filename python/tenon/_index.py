"""Indexing by tensors, lists and masks, and writes to a part of a tensor."""
from __future__ import annotations

from typing import Any

from . import _c


def get(x: Any, key: Any) -> Any:
    raise NotImplementedError("indexing by tensors")


def set(x: Any, key: Any, value: Any) -> None:
    _c.assign(x[key], value)
