"""Modules that hold modules or parameters, with the names and arguments of torch.nn."""
from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping

from .._tensor import Tensor
from .module import Module, Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _List(Module):
    """Items named "0", "1", ..."""

    kind: type = Module

    def _items(self) -> list[Any]:
        return [v for v in self.__dict__.values() if isinstance(v, self.kind)]

    def _set_items(self, items: Iterable[Any]) -> None:
        for name in [n for n, v in self.__dict__.items() if isinstance(v, self.kind)]:
            del self.__dict__[name]
        for i, item in enumerate(items):
            self._add(str(i), item)

    def _add(self, name: str, item: Any) -> None:
        if not isinstance(item, self.kind):
            raise TypeError(f"{type(item).__name__} is not a {self.kind.__name__}")
        self.__dict__[name] = item

    def __len__(self) -> int:
        return len(self._items())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())

    def __contains__(self, item: Any) -> bool:
        return any(v is item for v in self._items())

    def _at(self, i: Any) -> str:
        names = [n for n, v in self.__dict__.items() if isinstance(v, self.kind)]
        if not -len(names) <= i < len(names):
            raise IndexError(f"index {i} of {len(names)} items")
        return names[i]

    def _some(self, items: list[Any]) -> Any:
        make: Any = type(self)
        return make(items)

    def __getitem__(self, i: Any) -> Any:
        return self._some(self._items()[i]) if isinstance(i, slice) else self.__dict__[self._at(i)]

    def __setitem__(self, i: int, item: Any) -> None:
        self._add(self._at(i), item)

    def __delitem__(self, i: Any) -> None:
        items = self._items()
        del items[i]
        self._set_items(items)

    def append(self, item: Any) -> Any:
        """Adds an item at the end."""
        self._add(str(len(self)), item)
        return self

    def extend(self, items: Iterable[Any]) -> Any:
        """Adds items at the end."""
        for item in items:
            self.append(item)
        return self

    def insert(self, index: int, item: Any) -> Any:
        """Puts an item before that one."""
        items = self._items()
        items.insert(index, item)
        self._set_items(items)
        return self

    def pop(self, index: int = -1) -> Any:
        """Takes an item out."""
        item = self[index]
        del self[index]
        return item


class Sequential(_List):
    """Runs modules one after the other: of a list of arguments, or of a dict by its names."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, m in args[0].items():
                self._add(name, m)
        else:
            self._set_items(args)

    def _some(self, items: list[Any]) -> Any:
        return type(self)(*items)

    def forward(self, input: Any) -> Any:
        return self._run_in_order(input)


class ModuleList(_List):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self._set_items(modules or ())

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __iadd__(self, other: Iterable[Module]) -> ModuleList:
        return self.extend(other)


class ParameterList(_List):
    """A list of parameters; tensors become parameters."""

    kind = Parameter

    def __init__(self, values: Iterable[Tensor] | None = None) -> None:
        super().__init__()
        self._set_items(values or ())

    def _add(self, name: str, item: Any) -> None:
        self.__dict__[name] = item if isinstance(item, Parameter) else Parameter(item)

    def extra_repr(self) -> str:
        return "\n".join(f"({i}): Parameter of {p.dtype.name} {p.shape}" for i, p in enumerate(self))


class _Dict(Module):
    """Items by name. They are kept apart from the attributes, so that names such as "keys" are possible."""

    kind: type = Module

    def __init__(self, items: Any = None) -> None:
        super().__init__()
        self.__dict__["_dict"] = {}
        if items is not None:
            self.update(items)

    def __getitem__(self, key: str) -> Any:
        return self._dict[key]

    def __setitem__(self, key: str, item: Any) -> None:
        if not isinstance(key, str) or not key or "." in key:
            raise KeyError(f"{key!r} is no name of an item")
        self._dict[key] = self._item(item)

    def _item(self, item: Any) -> Any:
        if not isinstance(item, self.kind):
            raise TypeError(f"{type(item).__name__} is not a {self.kind.__name__}")
        return item

    def __delitem__(self, key: str) -> None:
        del self._dict[key]

    def __len__(self) -> int:
        return len(self._dict)

    def __iter__(self) -> Iterator[str]:
        return iter(self._dict)

    def __contains__(self, key: Any) -> bool:
        return key in self._dict

    def keys(self) -> Iterable[str]:
        return self._dict.keys()

    def values(self) -> Iterable[Any]:
        return self._dict.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._dict.items()

    def clear(self) -> None:
        self._dict.clear()

    def pop(self, key: str) -> Any:
        """Takes an item out."""
        return self._dict.pop(key)

    def update(self, items: Any) -> None:
        """Adds items of a dict or of pairs."""
        for key, item in items.items() if hasattr(items, "items") else items:
            self[key] = item

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__.get("_dict", {}).get(name)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")
        return found


class ModuleDict(_Dict):
    """A dict of modules."""

    @property
    def _modules(self) -> dict[str, Module]:
        return self._dict


class ParameterDict(_Dict):
    """A dict of parameters; tensors become parameters."""

    kind = Parameter

    def _item(self, item: Any) -> Any:
        return item if isinstance(item, Parameter) else Parameter(item)

    @property
    def _parameters(self) -> dict[str, Parameter]:
        return self._dict

    def extra_repr(self) -> str:
        return "\n".join(f"({n}): Parameter of {p.dtype.name} {p.shape}" for n, p in self._dict.items())
