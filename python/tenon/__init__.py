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
import os as _os

from . import _c

_c.set_package(_os.path.dirname(__file__) + _os.sep)

from ._c import *  # noqa: E402,F403  every function of C that needs no other form here
from ._c import Context, current_context, set_default_context, version as __version__  # noqa: E402
from ._dtypes import *  # noqa: E402,F403
from ._dtypes import DType, as_dtype as dtype  # noqa: E402
from ._errors import *  # noqa: E402,F403
from ._functions import *  # noqa: E402,F403
from ._tensor import Tensor  # noqa: E402
from .autograd import (autocast, enable_grad, grad, gradcheck, gradgradcheck, inference_mode, is_grad_enabled,  # noqa: E402
                       no_grad, set_grad_enabled)
from ._custom import Op, op  # noqa: E402
from . import nn, optim  # noqa: E402
from . import checkpoint, models  # noqa: E402
from . import data, files  # noqa: E402
from .files import load, save  # noqa: E402
from .inspect import devices, doctor, explain, plan_memory, profile, stats  # noqa: E402
from .tokenizers import Tokenizer  # noqa: E402

_atexit.register(_c.close_all)
_os.register_at_fork(after_in_child=_c.abandon_all)
