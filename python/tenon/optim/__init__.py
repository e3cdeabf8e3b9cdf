"""Optimizers, with the names and arguments of torch.optim."""
from __future__ import annotations

import os
import tempfile
from typing import Any, Callable

from .. import _c, _hooks
from .._errors import Error
from .._functions import tensor
from .._tensor import Tensor
from ..autograd import enable_grad
from ..nn.module import Module
from ..nn.parameter import watchers
from . import lr_scheduler

_SCHEDULES = {"constant": 0, "step": 1, "cosine": 2, "linear": 3, "exponential": 4, "one_cycle": 5, "restarts": 6}
_FIXED = ("nesterov", "centered", "initial_accumulator_value", "match_rms")  # options that decide which state there is


_ZERO = -0.0  # C takes 0 for its own default


def _value(v: Any) -> Any:
    return tuple(v) if isinstance(v, (list, tuple)) else v


def _numbers(group: dict[str, Any]) -> dict[str, float]:
    """The numbers of the rule in a group, by C's names."""
    numbers: dict[str, float] = {k: group[k] for k in ("momentum", "dampening", "alpha", "eps", "rho", "lr_decay") if k in group}
    if "betas" in group:
        numbers["beta1"], numbers["beta2"] = group["betas"]
    return numbers


def _named(params: Any) -> list[tuple[str, Any]]:
    """The names and parameters of a module, of a list of tensors, or of pairs as named_parameters() gives them."""
    if isinstance(params, Module):
        return list(params.named_parameters())
    named = []
    for i, p in enumerate(params):
        name, p = p if isinstance(p, tuple) else (str(i), p)
        if not isinstance(p, _c.Tensor):
            raise TypeError(f"an optimizer takes tensors, not {type(p).__name__}")
        named.append((name, p))
    return named


def _groups(params: Any) -> list[dict[str, Any]]:
    """Groups of parameters, each a dict with its options; "names" has the names of its "params"."""
    if isinstance(params, _c.Tensor):
        raise TypeError("an optimizer takes a Module or a list of tensors, not one tensor")
    if isinstance(params, Module):
        groups: list[dict[str, Any]] = [{"params": params}]
    else:
        params = list(params)
        groups = params if params and isinstance(params[0], dict) else [{"params": params}]
    seen: set[int] = set()
    made = []
    for g in groups:
        given = g["params"]
        named = _named([given] if isinstance(given, _c.Tensor) else given)
        fresh = [(n, p) for n, p in named if p.requires_grad and id(p) not in seen]
        seen.update(id(p) for _, p in fresh)
        made.append({**g, "params": [p for _, p in fresh], "names": [n for n, _ in fresh]})
    if not any(g["params"] for g in made):
        raise ValueError("the optimizer got no parameter that requires a gradient")
    return made


class _Made:
    """The optimizer of C, and the settings that it has now; None stands for one that it was not told yet."""

    def __init__(self, handle: Any, context: _c.Context, numbers: dict[str, float | None],
                 shares: list[tuple[float, float | None]], base: float | None) -> None:
        self.handle, self.context = handle, context
        self.numbers = numbers  # of the rule
        self.shares = shares  # of each group: its rate as a share of the base, and its weight decay
        self.base = base  # the learning rate

    def loaded(self, groups: list[dict[str, Any]]) -> None:
        """A state was loaded: of what it has now, only the decay of a single group is known, which is in the state."""
        self.base, self.numbers = None, dict.fromkeys(self.numbers)
        self.shares = [(float("nan"), None)] * len(groups) if len(groups) > 1 else [(1.0, groups[0].get("weight_decay"))]


class Optimizer:
    """What the optimizers share: an optimizer of C over the parameters, whose updates are part of the step's plan.

    params is a Module, a list of tensors, or a list of dicts {"params": ..., "lr": ..., "weight_decay": ...}. Those
    that require a gradient now are trained. Beside PyTorch's arguments there are clip_norm, clip_each and
    clip_value, which clip the gradients of every update by their common norm, each by its own norm, and by element; accumulate=k, which updates at every k-th step(loss), by the averaged gradient;
    loss_scale for float16 (autocast), with scale_growth, scale_backoff and scale_interval; no_master, which keeps no
    float32 copies of 16-bit parameters; schedule="step", "cosine", "linear", "exponential", "one_cycle" or "restarts" with
    warmup, total, floor, every and factor, a schedule of the learning rate by updates that needs no calls; and ema=0.999,
    which keeps a running average of the parameters for average_to().
    """

    def __init__(self, params: Any, make: Callable[..., Any], defaults: dict[str, Any],
                 options: dict[str, Any]) -> None:
        self.defaults = defaults
        self._made = (make.__name__, dict(options))  # for copies
        groups = _groups(params)
        for g in groups:
            _refuse_other_options(g, defaults)
        schedule = options.get("schedule")
        if schedule is not None and schedule not in _SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(_SCHEDULES)}, not {schedule!r}")
        self.param_groups: list[dict[str, Any]] = [{**defaults, **g} for g in groups]
        self._dist: Any = None
        self._dist_options: dict[str, Any] = {}
        self._make()
        self._apply_groups()
        watchers.add(self)

    def _make(self) -> None:
        """Makes the optimizer of C over the tensors that the parameters are now, with the settings of the beginning."""
        groups, defaults = self.param_groups, self.defaults
        name, given = self._made
        several = len(groups) > 1
        context = next(p for g in groups for p in g["params"]).context
        tree = _c.layer_container(context)
        for i, g in enumerate(groups):
            for path, p in zip(g["names"], g["params"]):
                _c.layer_param(tree, f"{i}.{path}" if several else path, p)
        options = dict(given)
        schedule = options.pop("schedule", None)
        if schedule is not None:
            options["kind"] = _SCHEDULES[schedule]
        numbers = _numbers(defaults)
        fixed = {k: defaults[k] for k in _FIXED if k in defaults}
        fixed |= {k: defaults[k] for k in ("lr", "weight_decay") if k in defaults}
        handle = getattr(_c, name)(tree, **numbers, **fixed, **options)
        # C takes 0 for its own default: of these it was told nothing.
        self._c = _Made(handle, context, {k: v or None for k, v in numbers.items()},
                        [(1.0, defaults.get("weight_decay") or None)] * len(groups), defaults["lr"] or None)
        self._stale: list[Any] = []  # the parameters whose tensors were replaced since
        if self._dist is not None:
            _c.optim_distribute(handle, self._dist, **self._dist_options)

    @property
    def _handle(self) -> Any:
        return self._c.handle

    def distribute(self, *, bucket_bytes: int | None = None, shard_state: bool = False) -> Optimizer:
        """Makes the updates those of all ranks of the world (tn.distributed): by the mean of their gradients.

        The ranks begin with rank 0's parameters and state. Gradients are exchanged in buckets of about bucket_bytes. With
        shard_state each rank keeps the state of its part of the parameters alone, as PyTorch's ZeroRedundancyOptimizer.
        Without a world it does nothing.
        """
        from .. import distributed
        self._dist, self._dist_options = distributed.world(), {"bucket_bytes": bucket_bytes, "shard_state": shard_state}
        if self._dist is not None:
            _c.optim_distribute(self._handle, self._dist, **self._dist_options)
        return self

    # ---- settings

    def _rebound(self, x: Any) -> None:
        """Called when a tensor was replaced in its object: by module.double(), or p.data = y."""
        if any(p is x for g in self.param_groups for p in g["params"]):
            self._stale.append(x)

    def _remake(self) -> None:
        """Goes on with the tensors that the parameters are now, and with the state that there is."""
        with _Scratch() as path:
            old, stale = self._c, self._stale
            _c.checkpoint_save(path, [], [old.handle], [], 0, b"", old.context)
            grads = [(p, p.grad.clone()) for p in stale if p.grad is not None]
            try:
                self._make()
                _c.checkpoint_load(path, [], [self._handle], [], 0, self._c.context, True)
                for p, grad in grads:  # the file has those of the tensors before, to which these were to be added
                    p.grad = grad if p.grad is None else p.grad + grad
            except (Error, OSError) as e:
                self._c, self._stale = old, stale
                raise RuntimeError("the parameters of the optimizer were replaced by others, for which its state does "
                                   "not fit: make a new optimizer") from e
            self._c.numbers, self._c.shares, self._c.base = old.numbers, old.shares, old.base  # which the file has

    def _apply_groups(self) -> None:
        """Brings parameters that were replaced, and what was set in param_groups, to the optimizer of C."""
        if self._stale:
            self._remake()
        groups = self.param_groups
        for g in groups:
            for k in self.defaults:
                if k in _FIXED and g[k] != self.defaults[k]:
                    raise NotImplementedError(f"{k} of an optimizer cannot be changed: make a new one")
                if k not in ("lr", "weight_decay") and _value(g[k]) != _value(groups[0][k]):
                    raise NotImplementedError(f"groups of parameters may differ in lr and weight_decay, not in {k}")
        has, numbers = self._c, _numbers(groups[0])
        if numbers != has.numbers:
            for k, v in numbers.items():
                if v != has.numbers[k]:
                    _c.optim_set(has.handle, k, v)
                    has.numbers[k] = v
        # The largest rate is the base, and the others are shares of it. A schedule changes all by one factor, so that
        # the shares, to twelve digits, stay, and with them the plan.
        base = max(g["lr"] for g in groups)
        if base != has.base:
            has.base = base
            _c.optim_set_lr(has.handle, base)
        for i, g in enumerate(groups):
            if len(groups) == 1:
                wanted = (1.0, g.get("weight_decay"))
            else:
                wanted = (float(f"{g['lr'] / base:.12g}") if base else has.shares[i][0], g["weight_decay"])
            if wanted != has.shares[i]:
                if g["params"]:
                    _c.optim_add_group(has.handle, f"{i}.*" if len(groups) > 1 else "*", *wanted)
                has.shares[i] = wanted

    @property
    def lr(self) -> float:
        """The learning rate of the next update, including the schedule; of several groups the largest."""
        self._apply_groups()
        return _c.optim_lr(self._handle)

    @lr.setter
    def lr(self, value: float) -> None:
        for g in self.param_groups:
            g["lr"] = value

    @property
    def updates(self) -> int:
        """The number of updates done."""
        return _c.optim_updates(self._handle)

    @property
    def skipped(self) -> int:
        """How many updates loss scaling has skipped; waits for the device."""
        return _c.optim_skipped(self._handle)

    @property
    def loss_scale(self) -> Tensor:
        """The loss scale of the next update, for loss.backward(opt.loss_scale)."""
        return _c.optim_loss_scale(self._handle)

    def set_schedule(self, schedule: str = "constant", **options: Any) -> None:
        """Replaces the schedule of the learning rate and keeps the number of updates done."""
        if schedule not in _SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(_SCHEDULES)}, not {schedule!r}")
        _c.optim_set_schedule(self._handle, kind=_SCHEDULES[schedule], **options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        raise NotImplementedError("the parameters of an optimizer are those that it was made with")

    # ---- steps

    def step(self, loss: Any = None) -> Any:
        """Updates the parameters.

        step(loss) is a whole step as one plan: gradients, clipping, update and clearing of the gradients. step()
        updates by the gradients that loss.backward() has stored, and step(closure) calls a function that does that and
        returns the loss.
        """
        self._apply_groups()
        if isinstance(loss, _c.Tensor):
            if _hooks.active():
                if _hooks.hooked(p for g in self.param_groups for p in g["params"]):
                    raise NotImplementedError("step(loss) computes gradients and updates as one, without hooks: call loss.backward() "
                                              "and step()")
                _hooks.keep_gradients(loss, None)
            _c.step(self._handle, loss)
            return None
        if loss is not None:
            with enable_grad():
                loss = loss()
        _c.optim_step(self._handle)
        _c.eval(context=self._c.context)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of its parameters, which are then None or zeros."""
        if self._stale:
            self._remake()
        had = [] if set_to_none else [p for g in self.param_groups for p in g["params"] if p.grad is not None]
        _c.optim_zero_grad(self._handle)
        for p in had:
            p.grad = _c.zeros_like(p.detach())

    def clip_norm(self, max_norm: float) -> Tensor:
        """Scales the gradients so that their common norm is at most max_norm; returns the norm before, not read yet."""
        if self._stale:
            self._remake()
        return _c.optim_clip_norm(self._handle, max_norm)

    def average_to(self, module: Module) -> None:
        """Gives the parameters of another module of the same kind the running averages (ema) of those of this optimizer."""
        if self._stale:
            self._remake()
        tree = _c.layer_container(self._c.context)
        several = len(self.param_groups) > 1
        path = {n: f"{i}.{n}" if several else n for i, g in enumerate(self.param_groups) for n in g["names"]}
        for name, p in module.named_parameters():
            _c.layer_param(tree, path.get(name, name), p)
        _c.optim_average_to(self._handle, tree)

    # ---- state

    def state_dict(self) -> dict[str, Any]:
        """Its settings by group, and its state as the bytes of a checkpoint; pickle keeps it."""
        self._apply_groups()
        with _Scratch() as path:
            _c.checkpoint_save(path, [], [self._handle], [], 0, b"", self._c.context)
            with open(path, "rb") as f:
                state = f.read()
        groups = []
        for g in self.param_groups:
            groups.append({k: v for k, v in g.items() if k != "params"} | {"params": list(range(len(g["params"])))})
        return {"kind": type(self).__name__, "state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what state_dict() of an optimizer of the same kind and parameters has returned."""
        if state_dict.get("kind") != type(self).__name__:
            raise ValueError(f"this is the state of {state_dict.get('kind')}, and the optimizer is "
                             f"{type(self).__name__}")
        groups = state_dict["param_groups"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError("the groups of the state have other numbers of parameters")
        self._apply_groups()
        with _Scratch() as path:
            with open(path, "wb") as f:
                f.write(state_dict["state"])
            _c.checkpoint_load(path, [], [self._handle], [], 0, self._c.context, True)
        for mine, g in zip(self.param_groups, groups):
            mine.update({k: v for k, v in g.items() if k not in ("params", "names")})
        self._c.loaded(groups)
        self._apply_groups()

    def __reduce__(self) -> Any:
        """A copy has copies of the parameters, which are those of a module that is copied in the same call."""
        groups = [{"params": list(zip(g["names"], g["params"])), **{k: g[k] for k in ("lr", "weight_decay") if k in g}}
                  for g in self.param_groups]
        own = {"defaults", "param_groups", "_made", "_c", "_stale"}
        more = {k: v for k, v in self.__dict__.items() if k not in own}
        return _remade, (type(self), *self._made, self.defaults, groups, self.state_dict()), more or None

    def _read_groups(self, settings: list[float], groups: list[float]) -> None:
        """Takes over the numbers of a checkpoint: settings in C's order, lr_scale and weight decay by parameter."""
        of_file = dict(zip(("lr", "beta1", "beta2", "alpha", "eps", "momentum", "dampening"), settings))
        of_file |= {"rho": of_file["alpha"], "lr_decay": settings[12] if len(settings) > 12 else 0.0}
        has = self._c
        has.numbers, has.base, at = {k: of_file[k] for k in has.numbers}, of_file["lr"], 0
        for i, g in enumerate(self.param_groups):
            g.update({k: v for k, v in has.numbers.items() if k in g})
            if "betas" in g:
                g["betas"] = (of_file["beta1"], of_file["beta2"])
            if g["params"]:
                has.shares[i] = (groups[2 * at], groups[2 * at + 1])
                g["lr"], g["weight_decay"] = has.base * groups[2 * at], groups[2 * at + 1]
            at += len(g["params"])

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for i, g in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {k}: {g[k]}" for k in sorted(g) if k not in ("params", "names")]
        return "\n".join(lines + [")"])


def _remade(kind: type[Optimizer], make: str, options: dict[str, Any], defaults: dict[str, Any], groups: list[dict[str, Any]],
            state: dict[str, Any]) -> Optimizer:
    """The optimizer that was copied or pickled."""
    made = kind.__new__(kind)
    Optimizer.__init__(made, groups, getattr(_c, make), defaults, dict(options))
    made.load_state_dict(state)
    return made


class _Scratch:
    """The path of a file that is removed at the end of a `with` block."""

    def __enter__(self) -> str:
        handle, self._path = tempfile.mkstemp(suffix=".safetensors")
        os.close(handle)
        return self._path

    def __exit__(self, *unused: Any) -> None:
        os.unlink(self._path)


def _refuse_other_options(group: dict[str, Any], defaults: dict[str, Any]) -> None:
    for k, v in group.items():
        if k in ("params", "names", "lr", "weight_decay", "name"):
            continue
        if k not in defaults:
            raise ValueError(f"a group of parameters has no option {k!r}")
        if v != defaults[k]:
            raise NotImplementedError(f"groups of parameters may differ in lr and weight_decay, not in {k}")


def _refuse(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of C, without those of PyTorch that say how to compute, which has no meaning here."""
    for k in ("foreach", "capturable", "differentiable", "fused"):
        options.pop(k, None)
    for k in ("maximize", "amsgrad", "decoupled_weight_decay"):
        if options.pop(k, False):
            raise NotImplementedError(f"{name}: {k}=True is not there; leave it out" + (
                ", or pass the negative of the loss" if k == "maximize" else ""))
    return options


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum."""

    def __init__(self, params: Any, lr: float = 1e-3, momentum: float = 0, dampening: float = 0,
                 weight_decay: float = 0, nesterov: bool = False, **options: Any) -> None:
        super().__init__(params, _c.sgd, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                              nesterov=nesterov), _refuse("SGD", options))


class Adam(Optimizer):
    """Adam; weight_decay is added to the gradient."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, **options: Any) -> None:
        super().__init__(params, _c.adam, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay),
                         _refuse("Adam", options))


class AdamW(Optimizer):
    """Adam with decoupled weight decay."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, **options: Any) -> None:
        super().__init__(params, _c.adamw, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay),
                         _refuse("AdamW", options))


class RMSprop(Optimizer):
    """Divides the gradient by the root of its running mean square."""

    def __init__(self, params: Any, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
                 momentum: float = 0, centered: bool = False, **options: Any) -> None:
        super().__init__(params, _c.rmsprop, dict(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay,
                                                  momentum=momentum, centered=centered), _refuse("RMSprop", options))


class Adagrad(Optimizer):
    """Divides the gradient by the root of the sum of its squares."""

    def __init__(self, params: Any, lr: float = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
                 initial_accumulator_value: float = 0, eps: float = 1e-10, **options: Any) -> None:
        super().__init__(params, _c.adagrad, dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
                                                  initial_accumulator_value=initial_accumulator_value), _refuse("Adagrad", options))


class Adadelta(Optimizer):
    """Steps in the unit of the parameters: by the root mean square of earlier steps over that of gradients."""

    def __init__(self, params: Any, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
                 **options: Any) -> None:
        super().__init__(params, _c.adadelta, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay), _refuse("Adadelta", options))


class NAdam(Optimizer):
    """Adam that looks ahead by the momentum of the next update."""

    def __init__(self, params: Any, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, momentum_decay: float = 4e-3, **options: Any) -> None:
        super().__init__(params, _c.nadam, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay),
                         _refuse("NAdam", options) | {"momentum_decay": momentum_decay or _ZERO})


class LAMB(Optimizer):
    """AdamW whose step is scaled to the norm of each parameter, for large batches."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
                 weight_decay: float = 1e-2, **options: Any) -> None:
        super().__init__(params, _c.lamb, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay), _refuse("LAMB", options))


class Lion(Optimizer):
    """Moves each element by lr, in the direction of an average of gradients."""

    def __init__(self, params: Any, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0,
                 **options: Any) -> None:
        super().__init__(params, _c.lion, dict(lr=lr, betas=betas, weight_decay=weight_decay), _refuse("Lion", options))


class Muon(Optimizer):
    """Moves matrices by their momentum with all singular values made equal; AdamW for all else.

    As torch.optim.Muon for matrices; parameters with fewer axes, and those whose names match the pattern adamw
    ("*embed*,*head*"), are updated by AdamW with betas and eps. adjust_lr_fn is "original" or "match_rms_adamw".
    """

    def __init__(self, params: Any, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, adjust_lr_fn: str | None = None,
                 adamw: str | None = None, **options: Any) -> None:
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"adjust_lr_fn must be original or match_rms_adamw, not {adjust_lr_fn!r}")
        more: dict[str, Any] = {"no_nesterov": not nesterov, "adamw": adamw} if adamw else {"no_nesterov": not nesterov}
        super().__init__(params, _c.muon, dict(lr=lr, momentum=momentum, betas=betas, eps=eps, weight_decay=weight_decay,
                                               match_rms=adjust_lr_fn == "match_rms_adamw"), _refuse("Muon", options) | more)


class LBFGS(Optimizer):
    """Steps by an inverse Hessian that follows from the last gradients: opt.step(closure) calls a function that returns the loss.

    The function may call zero_grad() and backward() itself, as with PyTorch, but need not. Checkpoints do not have the history.
    """

    def __init__(self, params: Any, lr: float = 1, max_iter: int = 20, max_eval: int | None = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: str | None = None) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError(f"only 'strong_wolfe' is supported, not {line_search_fn!r}")
        super().__init__(params, _c.lbfgs, dict(lr=lr), dict(
            max_iter=max_iter, max_eval=max_eval or 0, tolerance_grad=tolerance_grad or _ZERO,
            tolerance_change=tolerance_change or _ZERO, history_size=history_size,
            strong_wolfe=line_search_fn is not None))
        if len(self.param_groups) > 1:
            raise ValueError("LBFGS has no groups of parameters")

    def step(self, closure: Any = None) -> Any:
        """Calls the function several times, and returns the first loss."""
        if not callable(closure):
            raise TypeError("LBFGS.step() takes a function that returns the loss")
        self._apply_groups()

        def run() -> Any:
            with enable_grad():
                return closure()

        return tensor(_c.minimize(self._handle, run))


__all__ = ["Optimizer", "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "LAMB", "LBFGS", "Lion", "Muon", "lr_scheduler"]

_INSTEAD = {"Adamax": "Adam", "RAdam": "AdamW", "ASGD": "SGD", "Rprop": "RMSprop", "SparseAdam": "Adam",
            "Adafactor": "AdamW"}


def __getattr__(name: str) -> Any:
    if name in _INSTEAD:
        raise AttributeError(f"tenon.optim has no {name}: of {', '.join(__all__[1:-1])} the nearest is {_INSTEAD[name]}")
    raise AttributeError(f"module 'tenon.optim' has no attribute '{name}'")
