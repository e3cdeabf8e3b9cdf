"""Several processes that train together, with the names of torch.distributed.

    import tenon as tn
    from tenon import distributed as dist

    dist.init_process_group()                    # one rank without a launcher
    loader = dist.shard(tn.data.DataLoader(dataset, 256, shuffle=True, seed=0))  # 256 items of all ranks together
    opt = tn.optim.AdamW(net, lr=1e-3).distribute()
    for batch in loader:
        x, y = batch
        loss = tn.cross_entropy(net(x), y) * batch.weight
        opt.step(loss)

    tenon launch -n 4 python train.py

Collectives return new tensors, are recorded like all ops, and have gradients; all ranks call the same ones in the same
order. Without a world they return what they are given.
"""
from __future__ import annotations

import atexit
import enum
import sys
import traceback
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from . import _c
from ._tensor import Tensor

__all__ = ["ReduceOp", "all_gather", "all_reduce", "barrier", "broadcast", "destroy_process_group", "get_backend",
           "get_local_rank", "get_rank", "get_world_size", "init_process_group", "is_initialized", "mean",
           "reduce_scatter", "shard", "sync_batch_norm", "world"]

D = TypeVar("D")


class ReduceOp(enum.IntEnum):
    """How the tensors of the ranks become one."""

    SUM = 0
    AVG = 1
    MAX = 2
    MIN = 3


_world: _c.Dist | None = None
_hook = sys.excepthook  # that of the program, once a world was opened
_exit = sys.exit        # the same
_status: Any = None     # what the program ends with, if it said so


def world() -> _c.Dist | None:
    """The world that is open; None if there is none."""
    return _world


def _tell_others(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Shows an exception that ends the program, and passes it on to the other ranks, which wait for this one."""
    global _world
    _hook(kind, error, trace)
    left, _world = _world, None
    if left is not None:
        at = traceback.extract_tb(trace)[-1] if trace else None
        text = traceback.format_exception_only(kind, error)[-1].strip()
        _c.dist_abandon(left, text, at.filename if at else "", (at.lineno or 0) if at else 0)


def _note_status(status: Any = None, /) -> NoReturn:
    """sys.exit(), which the hook for exceptions does not see."""
    global _status
    _status = status
    _exit(status)


@atexit.register
def _tell_status() -> None:
    """Passes a status that is not 0 on to the other ranks, if the program ends without having left the world."""
    global _world
    if _world is not None and _status:
        left, _world = _world, None
        text = f"it ended with status {_status}" if isinstance(_status, int) else f"it ended: {_status}"
        _c.dist_abandon(left, text, "", 0)


def init_process_group(backend: str | None = None, *, rank: int | None = None, world_size: int | None = None,
                       timeout: float | None = None, context: Any = None) -> None:
    """Opens the world of this process, with all other ranks. Rank and size are those that the launcher says.

    backend is what connects the ranks, and is chosen by the device if it is None. timeout: seconds that ranks wait for
    each other.
    """
    global _world, _hook, _exit
    if _world is not None:
        raise RuntimeError("a world is open already; destroy_process_group() leaves it")
    _world = _c.dist_open(rank=rank, size=world_size, engine=backend, timeout=timeout, context=context)
    if sys.excepthook is not _tell_others:
        _hook, sys.excepthook = sys.excepthook, _tell_others
        _exit, sys.exit = sys.exit, _note_status


def destroy_process_group() -> None:
    """Leaves the world, when all ranks do."""
    global _world
    if _world is not None:
        _c.dist_close(_world)
    _world = None


def is_initialized() -> bool:
    """Whether a world is open."""
    return _world is not None


def get_rank() -> int:
    """The number of this rank, from 0."""
    return 0 if _world is None else _c.dist_rank(_world)


def get_world_size() -> int:
    """How many ranks there are."""
    return 1 if _world is None else _c.dist_size(_world)


def get_local_rank() -> int:
    """The number of this rank among those of its machine."""
    return 0 if _world is None else _c.dist_local_rank(_world)


def get_backend() -> str:
    """What connects the ranks: "mpi", "nccl", or "none"."""
    return "none" if _world is None else _c.dist_engine(_world)


def barrier() -> None:
    """Waits until all ranks are here."""
    if _world is not None:
        _c.dist_barrier(_world)


def all_reduce(x: Tensor, op: ReduceOp = ReduceOp.SUM) -> Tensor:
    """The sum, mean, maximum or minimum of all ranks' tensors."""
    return x if _world is None else _c.dist_all_reduce(_world, x, op)


def all_gather(x: Tensor, dim: int = 0) -> Tensor:
    """All ranks' tensors, joined along an axis."""
    return x if _world is None else _c.dist_all_gather(_world, x, dim)


def reduce_scatter(x: Tensor, dim: int = 0, op: ReduceOp = ReduceOp.SUM) -> Tensor:
    """This rank's part of what all_reduce() would return, cut along an axis."""
    return x if _world is None else _c.dist_reduce_scatter(_world, x, dim, op)


def broadcast(x: Tensor, src: int = 0) -> Tensor:
    """The tensor of rank src."""
    return x if _world is None else _c.dist_broadcast(_world, x, src)


def mean(total: Tensor, count: Tensor) -> Tensor:
    """A loss for step() whose mean over the ranks is the mean over all ranks' items: this rank's sum, and its number."""
    return total / count if _world is None else _c.dist_mean(_world, total, count)


def shard(data: D) -> D:
    """Makes the batches of a dataset of C or of a DataLoader this rank's part of those that one process would get."""
    _c.data_shard(data._handle, get_rank(), get_world_size())  # type: ignore[attr-defined]
    return data


def sync_batch_norm(net: D) -> D:
    """Has all batch norms of a module normalize by the statistics of all ranks' items, in training."""
    if "_handle" in net.__dict__ and _world is not None:  # a network of C
        _c.layer_sync_batch_norm(net._handle, _world)  # type: ignore[attr-defined]
    for m in net.modules():  # type: ignore[attr-defined]
        if hasattr(type(m), "dist"):
            m.dist = _world
    return net
