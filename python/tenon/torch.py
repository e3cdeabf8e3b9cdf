"""Tenon inside PyTorch: functions written with Tenon's ops as ops of PyTorch, and weights of its modules.

    @tenon.torch.function
    def norm_gelu(x, w, b, eps: float = 1e-5):
        return tn.gelu(tn.layer_norm(x, w, b, eps=eps))

    y = norm_gelu(torch_x, torch_w, torch_b)     # a tensor of PyTorch, with a gradient; also under torch.compile

A call reads the memory of its arguments and computes into memory of PyTorch, without a copy: on the CPU, or on the GPU of the
arguments in the order of PyTorch's current stream. The function is recorded at each call; its plan is made once for each
shape. Its gradient is recorded from the saved arguments in the backward pass.
"""
from __future__ import annotations

import inspect
from typing import Any, Callable, Mapping, Sequence

import torch  # type: ignore[import-not-found]

from . import _c
from ._custom import op as _op
from ._dtypes import DTYPES

__all__ = ["function", "cuda_op", "load"]

_TO_TORCH = {d: getattr(torch, d.name) for d in DTYPES if hasattr(torch, d.name)}
_FROM_TORCH = {t: d for d, t in _TO_TORCH.items()}
_SCALARS = {float: "float", int: "int", bool: "bool", "float": "float", "int": "int", "bool": "bool"}
_library = torch.library.Library("tenon", "FRAGMENT")
_contexts: dict[Any, _c.Context] = {}
_names: dict[str, int] = {}


def _context(key: Any) -> _c.Context:
    """The context for a kind of device, or "shapes": one on which nothing is ever computed."""
    c = _contexts.get(key)
    if c is None or c.closed:
        c = _contexts[key] = _c.Context("cpu" if key in ("cpu", "shapes") else f"cuda:{key}" if key else "cuda")
    return c


class _Call:
    """One call: the context of its tensors, which waits for PyTorch's stream, and PyTorch's stream for it."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.device = tensors[0].device
        for t in tensors:
            if t.device != self.device:
                raise ValueError(f"the arguments are on {self.device} and on {t.device}")
        if self.device.type not in ("cpu", "cuda"):
            raise ValueError(f"Tenon has no device for tensors on {self.device}")
        self.on_gpu = self.device.type == "cuda"
        self.context = _context(self.device.index if self.on_gpu else "cpu")

    def __enter__(self) -> _Call:
        self.context.__enter__()
        if self.on_gpu:
            # CUDA's name for the default stream is 1; 0 would be none.
            self.stream = torch.cuda.current_stream(self.device).cuda_stream or 1
            _c.order_stream(self.context, self.stream, True)
        return self

    def __exit__(self, *unused: Any) -> None:
        if self.on_gpu:
            _c.order_stream(self.context, self.stream, False)
        self.context.__exit__(*unused)

    def take(self, t: torch.Tensor) -> Any:
        """A tensor that reads the memory of t. On a GPU it must not outlive the call: what PyTorch does with the memory then
        comes after the call's work by the order of the streams, so that nobody waits to release it."""
        if t.dtype not in _FROM_TORCH:
            raise TypeError(f"Tenon has no dtype {t.dtype}")
        if t.is_conj() or t.is_neg():
            t = t.resolve_conj().resolve_neg()
        return _c.borrow_address(t.data_ptr(), _FROM_TORCH[t.dtype], tuple(t.shape), t.stride(), self.context,
                                 self.device.index if self.on_gpu else -1, None if self.on_gpu else t)

    def compute(self, ys: Sequence[Any]) -> list[torch.Tensor]:
        """New tensors of PyTorch with the values of ys."""
        outs = [torch.empty(y.shape, dtype=_TO_TORCH[y.dtype], device=self.device) for y in ys]
        if outs:
            _c.eval_into(tuple(ys), tuple(o.data_ptr() for o in outs), None)
        return outs


class Function:
    """An op of PyTorch that is computed by a function of Tenon's ops."""

    def __init__(self, f: Callable[..., Any], name: str | None, outputs: int, random: bool) -> None:
        self.f, self.outputs, self.random = f, outputs, random
        self.__name__ = self.__qualname__ = name or getattr(f, "__name__", "function").replace("<lambda>", "function")
        self.__doc__ = f.__doc__
        self._shapes: dict[Any, list] = {}
        params, self._is_tensor, self._defaults = [], [], []
        for p in inspect.signature(f).parameters.values():
            if p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                raise TypeError(f"{self.__name__}: the parameter {p} has no fixed place")
            kind = _SCALARS.get(p.annotation) or _SCALARS.get(type(p.default)) or "Tensor"
            if kind == "Tensor" and p.default is not p.empty:
                raise TypeError(f"{self.__name__}: the tensor {p.name} cannot have a default")
            params.append(f"{kind} {p.name}")
            self._is_tensor.append(kind == "Tensor")
            self._defaults.append(p.default)
        if not any(self._is_tensor):
            raise TypeError(f"{self.__name__}: an op of PyTorch has at least one tensor")
        self._signature = inspect.signature(f)
        if random:
            params.append("Tensor seed")
        result = "Tensor" if outputs == 1 else "(" + ", ".join(["Tensor"] * outputs) + ")"
        self._register(", ".join(params), result)

    def _register(self, params: str, result: str) -> None:
        name = "".join(c if c.isalnum() else "_" for c in self.__name__)
        _names[name] = _names.get(name, 0) + 1
        name += f"_{_names[name]}" if _names[name] > 1 else ""
        _library.define(f"{name}({params}) -> {result}")
        _library.define(f"{name}_backward(Tensor[] grads, bool[] needed, {params}) -> Tensor[]")
        for device in ("CPU", "CUDA"):
            _library.impl(name, self._forward, device)
            _library.impl(f"{name}_backward", self._backward, device)
        torch.library.register_fake(f"tenon::{name}", self._fake_forward, lib=_library)
        torch.library.register_fake(f"tenon::{name}_backward", self._fake_backward, lib=_library)
        torch.library.register_autograd(f"tenon::{name}", self._autograd, setup_context=self._save, lib=_library)
        self.op = getattr(torch.ops.tenon, name).default
        self._backward_op = getattr(torch.ops.tenon, name + "_backward").default

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) < len(self._is_tensor):
            args = self._bind(args, kwargs)
        if self.random:
            args = (*args, torch.randint(0, 2**62, ()))
        return self.op(*args)

    def _bind(self, args: tuple, kwargs: dict) -> tuple:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def __repr__(self) -> str:
        return f"<tenon.torch.function {self.op.name()}>"

    # ---- values

    def _tensors(self, args: Sequence[Any]) -> list[torch.Tensor]:
        return [a for a, is_tensor in zip(args, self._is_tensor) if is_tensor]

    def _record(self, args: Sequence[Any], xs: Sequence[Any], context: _c.Context) -> list[Any]:
        """What f returns for the tensors xs in the places of PyTorch's."""
        if self.random:
            _c.seed(int(args[-1]) if context is not _contexts.get("shapes") else 0, context=context)
        rest = iter(xs)
        ys = self.f(*(next(rest) if is_tensor else a for a, is_tensor in zip(args, self._is_tensor)))
        ys = [ys] if isinstance(ys, _c.Tensor) else list(ys)
        if len(ys) != self.outputs:
            raise ValueError(f"{self.__name__} returned {len(ys)} tensors; outputs={self.outputs} was said")
        return ys

    def _forward(self, *args: Any) -> Any:
        tensors = self._tensors(args)
        with _Call(tensors) as call:
            before = _c.grad_mode(False)
            try:
                ys = self._record(args, [call.take(t) for t in tensors], call.context)
                outs = call.compute(ys)
                del ys
            finally:
                _c.grad_mode(before)
        return outs[0] if self.outputs == 1 else tuple(outs)

    def _backward(self, grads: list[torch.Tensor], needed: list[bool], *args: Any) -> list[torch.Tensor]:
        tensors = self._tensors(args)
        with _Call(tensors) as call:
            before = _c.grad_mode(True)
            try:
                xs = [call.take(t) for t in tensors]
                leaves = [x for x, needs in zip(xs, needed) if needs]
                for x in leaves:
                    x.requires_grad = True
                ys = [y for y in self._record(args, xs, call.context) if y.dtype.kind == "f"]
                _c.grad_mode(False)
                pairs = [(y, call.take(g)) for y, g in zip(ys, grads) if y.requires_grad]
                if pairs:
                    gx = _c.grad([y for y, _ in pairs], leaves, [g for _, g in pairs])
                else:
                    gx = [_c.zeros_like(x) for x in leaves]
                outs = call.compute(list(gx))
                del xs, leaves, ys, pairs, gx
            finally:
                _c.grad_mode(before)
        return outs

    # ---- shapes

    def _result_shapes(self, args: Sequence[Any]) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Shapes and dtypes of the results, by recording f without computing anything."""
        key = tuple((tuple(int(n) for n in a.shape), a.dtype) if is_tensor else a
                    for a, is_tensor in zip(args, self._is_tensor))
        found = self._shapes.get(key)
        if found is None:
            context = _context("shapes")
            with context:
                xs = [_c.zeros(_FROM_TORCH[k[1]], k[0], context=context) for k, t in zip(key, self._is_tensor) if t]
                ys = self._record(args, xs, context)
            found = self._shapes[key] = [(y.shape, _TO_TORCH[y.dtype]) for y in ys]
        return found

    def _fake_forward(self, *args: Any) -> Any:
        device = self._tensors(args)[0].device
        outs = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in self._result_shapes(args)]
        return outs[0] if self.outputs == 1 else tuple(outs)

    def _fake_backward(self, grads: list[torch.Tensor], needed: list[bool], *args: Any) -> list[torch.Tensor]:
        return [torch.empty(t.shape, dtype=t.dtype, device=t.device)
                for t, needs in zip(self._tensors(args), needed) if needs]

    # ---- autograd

    def _save(self, ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.is_tensor = [isinstance(a, torch.Tensor) for a in inputs]
        ctx.save_for_backward(*(a for a, t in zip(inputs, ctx.is_tensor) if t))
        ctx.rest = [None if t else a for a, t in zip(inputs, ctx.is_tensor)]
        outputs = (output,) if self.outputs == 1 else output
        ctx.mark_non_differentiable(*(y for y in outputs if not y.dtype.is_floating_point))

    def _autograd(self, ctx: Any, *grads: torch.Tensor) -> tuple:
        saved = iter(ctx.saved_tensors)
        args = [next(saved) if t else a for a, t in zip(ctx.rest, ctx.is_tensor)]
        wants = [n and t for n, t in zip(ctx.needs_input_grad, self._is_tensor)]
        needed = [n for n, t in zip(wants, self._is_tensor) if t]
        given = [g for g in grads if g is not None and g.dtype.is_floating_point]
        found = iter(self._backward_op(given, needed, *args))
        return tuple(next(found) if n else None for n in wants) + (None,) * self.random


def function(f: Callable[..., Any] | None = None, *, name: str | None = None, outputs: int = 1,
             random: bool = False) -> Any:
    """Makes an op of PyTorch of a function that is written with Tenon's ops; also a decorator.

    Parameters that are annotated as float, int or bool, or have such a default, are numbers; the others are tensors. It
    returns `outputs` tensors. random: it draws random numbers (dropout), which then come from PyTorch's generator and are the
    same in the backward pass. It must not keep tensors beyond the call.
    """
    if f is None:
        return lambda g: Function(g, name, outputs, random)
    return Function(f, name, outputs, random)


def cuda_op(text: str, *, shape: Callable[..., Any] | None = None, launch: Callable[..., Any],
            grad: Callable[..., Any] | None = None, name: str | None = None, kernel: str | None = None,
            inputs: int | None = None, outputs: int = 1, attrs: Mapping[str, str] | None = None,
            compute: Callable[..., Any] | None = None) -> Function:
    """Makes an op of PyTorch of CUDA text, compiled at its first call on a GPU; no build step.

    The arguments are those of tn.op: `shape` is the rule for the result, `launch` for the grid, `grad` records the gradient
    with Tenon's ops, `compute` serves tensors on the CPU, `attrs` are the members of the kernel's last parameter and the op's
    further arguments, numbers by place.
    """
    op = _op(cuda=text, shape=shape, launch=launch, grad=grad, name=name, kernel=kernel, inputs=inputs, outputs=outputs,
             attrs=attrs, compute=compute)
    numbers = dict(attrs or {})

    def call(*args: Any) -> Any:
        return op(*args[:op.inputs], **dict(zip(numbers, args[op.inputs:])))

    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__name__ = op.name
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(f"x{i}", place) for i in range(op.inputs)] +
        [inspect.Parameter(n, place, annotation=float if f in "efd" else bool if f == "?" else int)
         for n, f in numbers.items()])
    return Function(call, name or op.name, outputs, False)


def load(module: Any, source: torch.nn.Module | Mapping[str, torch.Tensor], strict: bool = True) -> Any:
    """Copies the weights of a module of PyTorch, or of its state_dict(), by their names into a module of Tenon. With strict,
    every name of the module must be there and none more. Returns what load_state_dict returns."""
    state = source.state_dict() if isinstance(source, torch.nn.Module) else dict(source)
    own = module.state_dict()
    # PyTorch counts batches in a buffer that has a use only without momentum.
    state = {n: t for n, t in state.items() if n in own or not n.endswith("num_batches_tracked")}
    return module.load_state_dict({n: t.detach().cpu() for n, t in state.items()}, strict=strict)
