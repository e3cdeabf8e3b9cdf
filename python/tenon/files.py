"""Files of tensors: safetensors, by the names of its own package, and NumPy's npy."""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Union

from . import _c
from ._functions import asarray
from ._tensor import Tensor

__all__ = ["File", "TensorInfo", "open", "safe_open", "save_file", "load_file", "save", "load", "save_npy", "load_npy"]

Path = Union[str, "os.PathLike[str]"]


class TensorInfo(NamedTuple):
    """What a file says of one of its tensors."""

    dtype: str  # as the file spells it
    shape: tuple[int, ...]
    nbytes: int


class File(Mapping[str, Any]):
    """An open file of tensors, which are read one by one: file["weight"]. An npy file has one tensor, named ""."""

    def __init__(self, path: Path, *, context: _c.Context | None = None) -> None:
        self.path = os.fspath(path)
        self._handle = _c.file_open(self.path, context=context)
        count = _c.file_count(self._handle)
        rows = [row for i in range(count) if (row := _c.file_info(self._handle, i)) is not None]
        self._info = {row[0]: TensorInfo(*row[1:]) for row in rows}

    def __getitem__(self, name: str) -> Any:
        if name not in self._info:
            raise KeyError(name)
        return _c.file_tensor(self._handle, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._info)

    def __len__(self) -> int:
        return len(self._info)

    def __contains__(self, name: object) -> bool:
        return name in self._info

    def get_tensor(self, name: str) -> Any:
        """The tensor of a name, as safetensors' safe_open has it."""
        return self[name]

    def info(self, name: str) -> TensorInfo:
        """The dtype, shape and size of a tensor, which is not read."""
        return self._info[name]

    def metadata(self) -> dict[str, str]:
        """The metadata: pairs of texts."""
        keys, i = [], 0
        while (key := _c.file_meta_key(self._handle, i)) is not None:
            keys.append(key)
            i += 1
        return {key: _c.file_meta(self._handle, key) for key in keys}

    def __enter__(self) -> File:
        return self

    def __exit__(self, *unused: Any) -> None:
        pass

    def __repr__(self) -> str:
        return f"<tenon.files.File {self.path!r} with {len(self)} tensor{'' if len(self) == 1 else 's'}>"


def open(path: Path, *, context: _c.Context | None = None) -> File:
    """Opens a safetensors file, the index.json of several, or an npy file."""
    return File(path, context=context)


safe_open = open


def save_file(tensors: Mapping[str, Any], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors by their names as safetensors. The file is replaced as a whole: it has its old or its new content."""
    values = [asarray(x) for x in tensors.values()]
    pairs = [text for pair in (metadata or {}).items() for text in pair]
    _c.file_write(os.fspath(path), list(tensors), values, pairs)


def load_file(path: Path, *, context: _c.Context | None = None) -> dict[str, Any]:
    """All tensors of a file by their names."""
    return dict(File(path, context=context))


def save(obj: Any, path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a module, or a dict of tensors such as its state_dict(), as safetensors; a tensor to a path that ends in .npy."""
    if isinstance(obj, _c.Tensor):
        if not os.fspath(path).endswith(".npy"):
            raise ValueError("save: one tensor has no name; save {name: tensor}, or to a path that ends in .npy")
        save_npy(path, obj)
        return
    tensors = _state(obj) if hasattr(obj, "named_modules") else obj
    if not isinstance(tensors, Mapping):
        raise TypeError(f"save: a module, a tensor or a dict of tensors is needed, not a {type(obj).__name__}")
    save_file(tensors, path, metadata)


def _state(module: Any) -> dict[str, Any]:
    """The state of a module, in which a tied tensor comes once, under its first name, as in files of C."""
    first: dict[int, str] = {}
    state = module.state_dict(keep_vars=True)
    return {n: t for n, t in state.items() if first.setdefault(id(t), n) == n}


def load(path: Path, *, context: _c.Context | None = None) -> Any:
    """The tensors of a safetensors file by their names, for load_state_dict(); of an npy file the tensor."""
    if os.fspath(path).endswith(".npy"):
        return load_npy(path, context=context)
    return load_file(path, context=context)


def save_npy(path: Path, x: Any) -> None:
    """Writes one tensor as npy, which numpy.load reads."""
    _c.npy_write(asarray(x), os.fspath(path))


def load_npy(path: Path, *, context: _c.Context | None = None) -> Tensor:
    """Reads an npy file."""
    return _c.npy_read(os.fspath(path), context=context)
