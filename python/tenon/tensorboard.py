"""Event files that TensorBoard shows, by the names of torch.utils.tensorboard. They are written by Tenon: neither TensorBoard nor PyTorch
has to be there.

    with tn.tensorboard.SummaryWriter("runs/first") as writer:
        for step in range(1000):
            ...
            writer.add_scalar("train/loss", loss, step)

and `tensorboard --logdir runs` draws the curves.
"""
from __future__ import annotations

import datetime
import os
import socket
from typing import Any, Mapping

from . import _c

__all__ = ["SummaryWriter"]


class SummaryWriter:
    """Writes a new event file into a folder, which is made if it is missing. Each value is on disk when its call returns. With purge_step,
    steps from there on that earlier files of the folder have are hidden: for a run that goes on from a checkpoint."""

    def __init__(self, log_dir: str | os.PathLike[str] | None = None, *, purge_step: int | None = None, context: _c.Context | None = None) -> None:
        if log_dir is None:
            log_dir = os.path.join("runs", f"{datetime.datetime.now():%b%d_%H-%M-%S}_{socket.gethostname()}")
        self.log_dir = os.fspath(log_dir)
        self._file: Any = _c.tensorboard_open(self.log_dir, continues=purge_step is not None, purge_step=purge_step, context=context)

    @property
    def _handle(self) -> Any:
        if self._file is None:
            raise ValueError(f"the event file in {self.log_dir} was closed")
        return self._file

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None) -> None:
        """Writes a number; a tensor of one element is waited for."""
        _c.tensorboard_scalar(self._handle, tag, global_step or 0, float(scalar_value))

    def add_scalars(self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None) -> None:
        """Writes several numbers, as main_tag/name."""
        for name, value in tag_scalar_dict.items():
            self.add_scalar(f"{main_tag}/{name}", value, global_step)

    def add_histogram(self, tag: str, values: Any, global_step: int | None = None) -> None:
        """Writes how many elements lie in each of 64 equal intervals; those that are not finite are left out."""
        _c.tensorboard_histogram(self._handle, tag, global_step or 0, values)

    def add_image(self, tag: str, img_tensor: Any, global_step: int | None = None, *, dataformats: str = "CHW") -> None:
        """Writes an image, grey or RGB: floats from 0 to 1, or bytes."""
        _c.tensorboard_image(self._handle, tag, global_step or 0, _channels_first(img_tensor, dataformats))

    def add_images(self, tag: str, img_tensor: Any, global_step: int | None = None, *, dataformats: str = "NCHW", columns: int = 8) -> None:
        """Writes several as one, in rows of `columns`."""
        _c.tensorboard_image(self._handle, tag, global_step or 0, _channels_first(img_tensor, dataformats), columns=columns)

    def flush(self) -> None:
        """Does nothing: each value is on disk when its call returns."""

    def get_logdir(self) -> str:
        return self.log_dir

    def close(self) -> None:
        self._file = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()


def _channels_first(x: Any, axes: str) -> Any:
    """An image or several with the axes as C has them: (N, C, H, W), (C, H, W) or (H, W)."""
    want = [a for a in "NCHW" if a in axes]
    if sorted(axes) != sorted(want) or not {"H", "W"} <= set(axes) or ("N" in axes and "C" not in axes):
        raise ValueError(f"dataformats is CHW, HWC, HW, NCHW or NHWC, not {axes!r}")
    if not isinstance(x, _c.Tensor):
        x = _c.from_object(x)
    if x.ndim != len(axes):
        raise ValueError(f"dataformats {axes} has {len(axes)} axes, the image {x.ndim}")
    return x if list(axes) == want else x.permute(*(axes.index(a) for a in want))
