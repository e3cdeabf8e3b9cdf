"""Tenon: tensors, autograd, layers and optimizers; whole training steps as few kernels.

    import tenon as tn

    net = tn.nn.Sequential(tn.nn.Linear(784, 128), tn.nn.ReLU(), tn.nn.Linear(128, 10))
    opt = tn.optim.AdamW(net, lr=1e-3)
    for x, y in batches:
        loss = tn.cross_entropy(net(x), y)
        opt.step(loss)

A plain loop is recorded, fused and replayed: there is nothing to decorate.
"""
import atexit as _atexit
import importlib as _importlib
import os as _os
from typing import TYPE_CHECKING as _CHECKING, Any as _Any

from . import _c

_c.set_package(_os.path.dirname(__file__) + _os.sep)

from ._c import (Context as Context, current_context as current_context,  # noqa: E402
                 set_default_context as set_default_context, version as __version__)
from ._dtypes import *  # noqa: E402,F403
from ._dtypes import DType as DType, as_dtype as dtype  # noqa: E402
from ._errors import *  # noqa: E402,F403
from ._exchange import *  # noqa: E402,F403
from ._functions import *  # noqa: E402,F403
from ._composed import *  # noqa: E402,F403
from ._array_api import *  # noqa: E402,F403
from ._tensor import Tensor as Tensor  # noqa: E402
from .autograd import (autocast as autocast, enable_grad as enable_grad, grad as grad, gradcheck as gradcheck,  # noqa: E402
                       gradgradcheck as gradgradcheck, inference_mode as inference_mode,
                       is_grad_enabled as is_grad_enabled, no_grad as no_grad, set_grad_enabled as set_grad_enabled)

# Every function of C that has no other form here. Type checkers take the first of equal names, too.
if _CHECKING:
    from ._custom import Op as Op, op as op
    from . import (checkpoint as checkpoint, cuda as cuda, data as data, distributed as distributed, fft as fft, files as files, func as func, linalg as linalg, models as models, onnx as onnx, report as report, tensorboard as tensorboard,
                   nn as nn, optim as optim, sparse as sparse)
    from .files import load as load, save as save
    from .func import scan as scan, vmap as vmap
    from .inspect import (devices as devices, doctor as doctor, explain as explain, plan_memory as plan_memory,
                          profile as profile, stats as stats)
    from .sparse import sparse_coo_tensor as sparse_coo_tensor, sparse_csr_tensor as sparse_csr_tensor
    from .tokenizers import Tokenizer as Tokenizer
    from ._c import *  # type: ignore[assignment,no-redef]  # noqa: F403
else:
    for _name in _c.__all__:
        globals().setdefault(_name, getattr(_c, _name))
    del _name

# Modules that are imported when they are first asked for, and what is taken out of them: `import tenon` is quick.
_MODULES = {"cuda", "fft", "func", "linalg", "sparse", "nn", "optim", "models", "onnx", "data", "distributed", "files", "checkpoint", "inspect", "report", "tensorboard", "tokenizers", "torch"}
_NAMES = {
    "_custom": ["Op", "op"],
    "files": ["load", "save"],
    "func": ["scan", "vmap"],
    "inspect": ["devices", "doctor", "explain", "plan_memory", "profile", "stats"],
    "sparse": ["sparse_coo_tensor", "sparse_csr_tensor"],
    "tokenizers": ["Tokenizer"],
}
# Dtypes by names of PyTorch that Python has for its own types: not taken by `from tenon import *`.
_DTYPES = {"bool": "bool", "short": "int16", "int": "int32", "long": "int64", "half": "float16", "float": "float32",
           "double": "float64"}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module("." + name, __name__)
    if name in _HOMES:
        value = globals()[name] = getattr(_importlib.import_module("." + _HOMES[name], __name__), name)
        return value
    if name in _DTYPES:
        return dtype(_DTYPES[name])
    raise AttributeError(f"module 'tenon' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_HOMES, *_DTYPES})


_atexit.register(_c.close_all)
_os.register_at_fork(after_in_child=_c.abandon_all)
