"""The NVIDIA GPUs of the machine, by PyTorch's names."""
from __future__ import annotations

import re

from . import _c

__all__ = ["is_available", "device_count", "synchronize"]


def _detail() -> str:
    """What the driver says of the first GPU; empty without one."""
    i = 0
    while (row := _c.device_info(i)) is not None:
        if row[0] == "cuda":
            return row[2] if row[1] else ""
        i += 1
    return ""


def is_available() -> bool:
    """Whether tensors can be on "cuda"."""
    return bool(_detail())


def device_count() -> int:
    """How many GPUs there are: "cuda:0" is the first."""
    detail = _detail()
    several = re.search(r"; (\d+) GPUs", detail)
    return int(several[1]) if several else int(bool(detail))


def synchronize() -> None:
    """Waits until everything recorded on the current context is computed."""
    _c.eval()
    _c.sync()
