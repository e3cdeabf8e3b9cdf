"""Checkpoints: everything that resuming a run needs, in one file that is replaced as a whole."""
from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from . import _c, distributed
from .nn.module import Module


class Loaded(NamedTuple):
    """What the program itself had saved."""

    step: int
    user: Any


def layer_of(module: Any) -> Any:
    """A layer of C with the parameters and buffers of a module, by the same names."""
    if not isinstance(module, Module):
        raise TypeError(f"checkpoint: nets are Modules, not {type(module).__name__}")
    if "_handle" in module.__dict__:
        return module._handle
    state = module.state_dict(keep_vars=True)
    if not state:
        raise ValueError(f"checkpoint: {type(module).__name__} has no parameters and no buffers")
    layer = _c.layer_container(next(iter(state.values())).context)
    seen: set[int] = set()
    for name, t in state.items():
        if id(t) not in seen:
            seen.add(id(t))
            (_c.layer_param if t.requires_grad else _c.layer_buffer)(layer, name, t)
    return layer


def _list(objects: Any) -> list[Any]:
    return list(objects) if isinstance(objects, (list, tuple)) else [] if objects is None else [objects]


def _context(layers: list[Any], optims: list[Any]) -> Any:
    """The context of what is saved; of datasets alone the current one."""
    return layers[0] if layers else next((o._context for o in optims), None)


def save(path: Any, nets: Any = None, optims: Any = None, data: Any = None, *, step: int = 0, user: Any = None,
         sharded: bool = False) -> None:
    """Saves networks, optimizers, positions of datasets (one or a list of each), random numbers, step, and `user`.

    user is what json can write. Save between steps. In a world of several ranks (tn.distributed) all call it: rank 0 writes the
    file, or with `sharded` each a part of it, of which the path becomes an index. It succeeds on all ranks or on none.
    """
    layers, optims = [layer_of(m) for m in _list(nets)], _list(optims)
    for o in optims:
        o._apply_groups()
    text = b"" if user is None else json.dumps(user).encode()
    _c.checkpoint_save(os.fspath(path), layers, [o._handle for o in optims], _list(data), step, text,
                       _context(layers, optims), distributed.world(), sharded)


def load(path: Any, nets: Any = None, optims: Any = None, data: Any = None) -> Loaded:
    """Loads what save() has saved into the same networks, kinds of optimizers and datasets: all or nothing of it, on all ranks."""
    layers, optims = [layer_of(m) for m in _list(nets)], _list(optims)
    for o in optims:
        o._apply_groups()
    context = _context(layers, optims)
    file = _c.file_open(os.fspath(path), context=context)
    rows = [_c.file_info(file, i) for i in range(_c.file_count(file))]
    room = next((row[2][0] for row in rows if row is not None and row[0] == "user"), 0)
    step, text = _c.checkpoint_load(os.fspath(path), layers, [o._handle for o in optims], _list(data), room, context,
                                    False, distributed.world())
    for k, o in enumerate(optims):
        o._read_groups(*[_c.file_tensor(file, f"opt.{k}.{name}").tolist() for name in ("settings", "groups")])
    return Loaded(step, json.loads(text) if text else None)


__all__ = ["save", "load", "Loaded"]
