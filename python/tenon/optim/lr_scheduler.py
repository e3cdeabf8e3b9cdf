"""Schedules of the learning rate, with the names and arguments of torch.optim.lr_scheduler.

They set the learning rate of the optimizer's groups, which costs nothing: it is an input of the step's plan. A schedule
by updates that needs no calls is the optimizer's own argument `schedule`.
"""
from __future__ import annotations

import bisect
import math
from typing import Any, Callable, Iterable, Sequence


class LRScheduler:
    """A learning rate as a function of the number of calls of step()."""

    def __init__(self, optimizer: Any, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        for g in optimizer.param_groups:
            if last_epoch == -1:
                g.setdefault("initial_lr", g["lr"])
            elif "initial_lr" not in g:
                raise KeyError("the groups of the optimizer have no initial_lr, which a schedule that is resumed needs")
        self.base_lrs: list[float] = [g["initial_lr"] for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def _lr(self, base: float, t: int) -> float:
        """The learning rate after t steps of a group that began with base."""
        raise NotImplementedError

    def _lrs(self, t: int) -> list[float]:
        return [self._lr(base, t) for base in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        """Goes to the next learning rate."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._set()

    def _set(self) -> None:
        """Sets the groups of the optimizer to the numbers of this step."""
        for g, lr in zip(self.optimizer.param_groups, self._lrs(self.last_epoch)):
            g["lr"] = lr

    def get_last_lr(self) -> list[float]:
        """The learning rates of the groups."""
        return [g["lr"] for g in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """What has changed since it was made, and its numbers."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what state_dict() has returned."""
        self.__dict__.update(state_dict)
        if self.last_epoch >= 0:
            self._set()


def _set_momentum(optimizer: Any, momentum: float) -> None:
    """Sets the momentum of the groups, or Adam's first beta."""
    for g in optimizer.param_groups:
        if "betas" in g:
            g["betas"] = (momentum, *g["betas"][1:])
        else:
            g["momentum"] = momentum


class LambdaLR(LRScheduler):
    """The base times a function of the step, or one of each group."""

    def __init__(self, optimizer: Any, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
                 last_epoch: int = -1) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas: list[Any] = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"{len(self.lr_lambdas)} functions for {groups} groups")
        super().__init__(optimizer, last_epoch)

    def _lrs(self, t: int) -> list[float]:
        return [base * f(t) for base, f in zip(self.base_lrs, self.lr_lambdas)]

    def state_dict(self) -> dict[str, Any]:
        return {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}


class StepLR(LRScheduler):
    """The base times gamma to the power of t // step_size."""

    def __init__(self, optimizer: Any, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _lr(self, base: float, t: int) -> float:
        return base * self.gamma ** (t // self.step_size)


class MultiStepLR(LRScheduler):
    """The base times gamma for each milestone that was reached."""

    def __init__(self, optimizer: Any, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _lr(self, base: float, t: int) -> float:
        return base * self.gamma ** bisect.bisect_right(self.milestones, t)


class ConstantLR(LRScheduler):
    """The base times factor for the first total_iters steps."""

    def __init__(self, optimizer: Any, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _lr(self, base: float, t: int) -> float:
        return base * (self.factor if t < self.total_iters else 1)


class LinearLR(LRScheduler):
    """The base times a line from start_factor to end_factor, at total_iters."""

    def __init__(self, optimizer: Any, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
                 last_epoch: int = -1) -> None:
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _lr(self, base: float, t: int) -> float:
        share = min(t, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * share)


class ExponentialLR(LRScheduler):
    """The base times gamma to the power of t."""

    def __init__(self, optimizer: Any, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _lr(self, base: float, t: int) -> float:
        return base * self.gamma ** t


class PolynomialLR(LRScheduler):
    """The base times (1 - t / total_iters) to the power."""

    def __init__(self, optimizer: Any, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _lr(self, base: float, t: int) -> float:
        return base * (1 - min(t, self.total_iters) / self.total_iters) ** self.power


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the base down to eta_min at T_max, and up again after it."""

    def __init__(self, optimizer: Any, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _lr(self, base: float, t: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * t / self.T_max)) / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines from the base down to eta_min, of T_0 steps, then of T_mult times as many, and so on."""

    def __init__(self, optimizer: Any, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_0 <= 0 or T_mult < 1:
            raise ValueError(f"T_0 must be above 0 and T_mult at least 1, not {T_0} and {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def _lr(self, base: float, t: int) -> float:
        period = self.T_0
        while t >= period:
            t -= period
            period *= self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * t / period)) / 2


class OneCycleLR(LRScheduler):
    """From max_lr / div_factor up to max_lr and down to that over final_div_factor.

    With cycle_momentum, the momentum, or Adam's first beta, goes from max_momentum down to base_momentum and up again.
    """

    def __init__(self, optimizer: Any, max_lr: float | Sequence[float], total_steps: int | None = None,
                 epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
                 anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum: float = 0.85,
                 max_momentum: float = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
                 three_phase: bool = False, last_epoch: int = -1) -> None:
        if cycle_momentum and not {"momentum", "betas"} & set(optimizer.defaults):
            raise ValueError("OneCycleLR: cycle_momentum needs an optimizer with momentum or betas")
        self.cycle_momentum, self.base_momentum, self.max_momentum = cycle_momentum, base_momentum, max_momentum
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be cos or linear, not {anneal_strategy!r}")
        groups = len(optimizer.param_groups)
        self.max_lrs: list[Any] = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * groups
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        up = float(pct_start * total_steps) - 1
        self.ends = [up, 2 * up, total_steps - 1] if three_phase else [up, total_steps - 1]
        super().__init__(optimizer, last_epoch)

    def _lrs(self, t: int) -> list[float]:
        if t > self.total_steps:
            raise ValueError(f"step {t + 1} of a schedule of {self.total_steps}")
        return [self._one(top, t) for top in self.max_lrs]

    def _set(self) -> None:
        super()._set()
        if not self.cycle_momentum:
            return
        low, high = self.base_momentum, self.max_momentum
        momentum = self._between([high, low, high] if len(self.ends) == 2 else [high, low, high, high], self.last_epoch)
        _set_momentum(self.optimizer, momentum)

    def _one(self, top: float, t: int) -> float:
        first = top / self.div_factor
        last = first / self.final_div_factor
        return self._between([first, top, last] if len(self.ends) == 2 else [first, top, first, last], t)

    def _between(self, points: list[float], t: int) -> float:
        """The value at step t of a curve that has these points at the ends of the phases."""
        start = 0.0
        for i, end in enumerate(self.ends):
            if t <= end or i == len(self.ends) - 1:
                share = (t - start) / (end - start)
                if self.anneal_strategy == "linear":
                    return points[i] + (points[i + 1] - points[i]) * share
                return points[i + 1] + (points[i] - points[i + 1]) / 2 * (1 + math.cos(math.pi * share))
            start = end
        raise AssertionError


class CyclicLR(LRScheduler):
    """Lines from base_lr up to max_lr in step_size_up steps and down again, in cycles.

    mode "triangular2" halves the height in each cycle, "exp_range" scales it by gamma ** t; scale_fn is another function, of
    the cycle or, with scale_mode "iterations", of t. With cycle_momentum, the momentum, or Adam's first beta, goes the other way.
    """

    def __init__(self, optimizer: Any, base_lr: float | Sequence[float], max_lr: float | Sequence[float],
                 step_size_up: int = 2000, step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
                 scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
                 base_momentum: float = 0.8, max_momentum: float = 0.9, last_epoch: int = -1) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(f"mode must be triangular, triangular2 or exp_range, not {mode!r}")
        if cycle_momentum and not {"momentum", "betas"} & set(optimizer.defaults):
            raise ValueError("CyclicLR: cycle_momentum needs an optimizer with momentum or betas")
        groups = len(optimizer.param_groups)
        self.low: list[Any] = list(base_lr) if isinstance(base_lr, (list, tuple)) else [base_lr] * groups
        self.high: list[Any] = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * groups
        self.up, self.down = step_size_up, step_size_up if step_size_down is None else step_size_down
        self.mode, self.gamma, self.scale_fn, self.scale_mode = mode, gamma, scale_fn, scale_mode
        self.cycle_momentum, self.base_momentum, self.max_momentum = cycle_momentum, base_momentum, max_momentum
        super().__init__(optimizer, last_epoch)

    def _height(self, t: int) -> float:
        """Where between base and max step t is."""
        cycle, at = divmod(t, self.up + self.down)
        share = at / self.up if at <= self.up else 1 - (at - self.up) / self.down
        if self.scale_fn is not None:
            return share * self.scale_fn(cycle + 1 if self.scale_mode == "cycle" else t)
        return share * {"triangular": 1.0, "triangular2": 0.5 ** cycle, "exp_range": self.gamma ** t}[self.mode]

    def _lrs(self, t: int) -> list[float]:
        return [low + (high - low) * self._height(t) for low, high in zip(self.low, self.high)]

    def _set(self) -> None:
        super()._set()
        if self.cycle_momentum:
            _set_momentum(self.optimizer, self.max_momentum - (self.max_momentum - self.base_momentum) *
                          self._height(self.last_epoch))


class ChainedScheduler(LRScheduler):
    """The product of several schedules, each as a factor of the base."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Any = None) -> None:
        if not schedulers:
            raise ValueError("ChainedScheduler needs a schedule")
        self._schedulers = list(schedulers)
        super().__init__(self._schedulers[0].optimizer if optimizer is None else optimizer)

    def _lrs(self, t: int) -> list[float]:
        columns = zip(*(s._lrs(t) for s in self._schedulers))
        return [base * math.prod(lr / base for lr in column) if base else 0.0 for base, column in zip(self.base_lrs, columns)]

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch, "base_lrs": self.base_lrs}


class SequentialLR(LRScheduler):
    """Schedules one after the other, of which the next begins at each milestone."""

    def __init__(self, optimizer: Any, schedulers: Sequence[LRScheduler], milestones: Sequence[int],
                 last_epoch: int = -1) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(f"{len(schedulers)} schedules need {len(schedulers) - 1} milestones, not "
                             f"{len(milestones)}")
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        for g in optimizer.param_groups:
            g["lr"] = g["initial_lr"]
        super().__init__(optimizer, last_epoch)

    def _lrs(self, t: int) -> list[float]:
        i = bisect.bisect_right(self._milestones, t)
        return self._schedulers[i]._lrs(t - (self._milestones[i - 1] if i else 0))

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch, "base_lrs": self.base_lrs}


class ReduceLROnPlateau:
    """Multiplies the learning rate by factor after `patience` calls of step(metric) without improvement."""

    def __init__(self, optimizer: Any, mode: str = "min", factor: float = 0.1, patience: int = 10,
                 threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0,
                 min_lr: float = 0, eps: float = 1e-8) -> None:
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(f"mode {mode!r} or threshold_mode {threshold_mode!r} is unknown")
        if factor >= 1:
            raise ValueError("factor must be below 1")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.min_lr, self.eps = cooldown, min_lr, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def _is_better(self, value: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        room = self.threshold * (abs(self.best) if self.threshold_mode == "rel" else 1)
        if math.isinf(self.best):
            return sign * value < sign * self.best
        return sign * value < sign * self.best - room

    def step(self, metrics: Any) -> None:
        """Notes a metric, and reduces the learning rate if it is time."""
        value = float(metrics)
        self.last_epoch += 1
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for g in self.optimizer.param_groups:
                lr = max(g["lr"] * self.factor, self.min_lr)
                if g["lr"] - lr > self.eps:
                    g["lr"] = lr
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def get_last_lr(self) -> list[float]:
        """The learning rates of the groups."""
        return [g["lr"] for g in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Its numbers."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what state_dict() has returned."""
        self.__dict__.update(state_dict)


__all__ = ["LRScheduler", "LambdaLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR",
           "PolynomialLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "OneCycleLR", "CyclicLR",
           "ChainedScheduler", "SequentialLR", "ReduceLROnPlateau"]
