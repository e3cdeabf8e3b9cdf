"""Layers, losses and functions of networks, with the names of torch.nn."""
from . import activations, attention, containers, functional, init, layers, losses, module, parameter, recurrent, utils
from .activations import *  # noqa: F403
from .attention import *  # noqa: F403
from .containers import *  # noqa: F403
from .layers import *  # noqa: F403
from .losses import *  # noqa: F403
from .module import *  # noqa: F403
from .parameter import *  # noqa: F403
from .recurrent import *  # noqa: F403

# In a form that type checkers read.
__all__ = ["functional", "init", "utils"]
__all__ += activations.__all__
__all__ += attention.__all__
__all__ += containers.__all__
__all__ += layers.__all__
__all__ += losses.__all__
__all__ += module.__all__
__all__ += parameter.__all__
__all__ += recurrent.__all__
