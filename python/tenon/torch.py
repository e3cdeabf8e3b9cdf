"""Tenon inside PyTorch: functions written with Tenon's ops as ops of PyTorch, and weights of its modules.

    @tenon.torch.function
    def norm_gelu(x, w, b, eps: float = 1e-5):
        return tn.gelu(F.layer_norm(x, x.shape[-1:], w, b, eps))

    y = norm_gelu(torch_x, torch_w, torch_b)     # a tensor of PyTorch, with a gradient; also under torch.compile

A call reads the memory of its arguments and computes into memory of PyTorch, without a copy: on the CPU, or on the GPU of the
arguments in PyTorch's current stream. The function is recorded at each call; its plan is made once for each shape. Its
gradient is recorded from the saved arguments in the backward pass, and can be differentiated once more.

In a CUDA graph a function can be captured that ran before with the same shapes. Its temporary memory is that of other calls, so
a replay must not run at the same time as them in another stream.
"""
from __future__ import annotations

import inspect
import threading
from typing import Any, Callable, Mapping, Sequence

import torch  # type: ignore[import-not-found]
from torch.autograd import forward_ad  # type: ignore[import-not-found]

from . import _c
from ._custom import op as _op
from ._dtypes import DTYPES
from ._errors import ArgumentError

__all__ = ["function", "cuda_op", "load"]

_TO_TORCH = {d: getattr(torch, d.name) for d in DTYPES if hasattr(torch, d.name)}
_FROM_TORCH = {t: d for d, t in _TO_TORCH.items()}
_BY_NAME = {d.name: t for d, t in _TO_TORCH.items()}
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


def _current_stream(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)  # without an object around it


class _Place:
    """Where tensors are: their device, and Tenon's context for it, which works in PyTorch's current stream. One thread at a
    time has it, in a `with` block."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.on_gpu = device, device.type == "cuda"
        self.number = device.index if self.on_gpu else -1
        self.lock = threading.RLock()

    def __enter__(self) -> _Place:
        self.lock.acquire()
        try:
            self.context = _context(self.number if self.on_gpu else "cpu")
            if self.on_gpu:
                # CUDA's name for the default stream is 1; 0 would be none.
                _c.use_stream(self.context, _current_stream(self.number) or 1)
            self.context.__enter__()
        except BaseException:
            self.lock.release()
            raise
        return self

    def __exit__(self, *unused: Any) -> None:
        self.context.__exit__()
        self.lock.release()

    def take(self, tensors: list[torch.Tensor]) -> list[Any]:
        """Tensors that read the memory of PyTorch's. On a GPU they must not outlive the call: what PyTorch does with the memory
        then comes after the call's work by the order of the stream, so that nobody waits to release it."""
        return _c.borrow_torch(tensors, _FROM_TORCH, self.context, self.number)

    def compute(self, ys: Sequence[Any]) -> list[torch.Tensor]:
        """New tensors of PyTorch with the values of ys."""
        outs = [torch.empty(y.shape, dtype=_BY_NAME[y.dtype.name], device=self.device) for y in ys]
        if outs:
            _c.eval_into(tuple(ys), tuple([o.data_ptr() for o in outs]), None)
        return outs


_places: dict[int, _Place] = {}


def _place_of(tensors: Sequence[torch.Tensor]) -> _Place:
    first = tensors[0]
    number = first.get_device()  # -1: not on a GPU
    for t in tensors:
        if t.get_device() != number:
            raise ValueError(f"the arguments are on {first.device} and on {t.device}")
    if not (first.is_cuda if number >= 0 else first.is_cpu):
        raise ValueError(f"Tenon has no device for tensors on {first.device}")
    place = _places.get(number)
    return place or _places.setdefault(number, _Place(first.device))


def _unexpanded(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of which gradients are asked for have memory for every element."""
    return [t.contiguous() if 0 in t.stride() else t for t in tensors]


def _is_plain(tensors: Sequence[Any]) -> bool:
    """Whether these are PyTorch's own tensors, and nothing of it watches, transforms or traces calls of ops."""
    return (not torch.compiler.is_compiling() and not _dispatch_modes() and not _function_modes()
            and _transforms() is None and forward_ad._current_level < 0 and _PLAIN.issuperset(map(type, tensors)))


def _has_tangents(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a derivative in forward mode is asked for, by dual tensors."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return False
    return any(forward_ad.unpack_dual(t).tangent is not None for t in tensors)


_PLAIN = {torch.Tensor, torch.nn.Parameter}
_dispatch_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_TRANSFORM = torch._C._functorch.TransformType


def _draw_seed(t: torch.Tensor) -> int:
    """A number of PyTorch's generator for the device of t. On a GPU that is its seed and its position, which moves on."""
    if not t.is_cuda:
        return int(torch.randint(0, 2**62, ()))
    if torch.cuda.is_current_stream_capturing():
        return 0  # which _record refuses
    generator = torch.cuda.default_generators[t.get_device()]
    offset = generator.get_offset()
    generator.set_offset(offset + 4)  # a multiple of 4 is asked for
    return (generator.initial_seed() + (offset // 4 + 1) * 0x9e3779b97f4a7c15) % 2**62


def _keep(ctx: Any, values: Sequence[Any]) -> None:
    """Saves the arguments of a call for its backward pass: PyTorch has a way of its own for tensors."""
    ctx.save_for_backward(*[v for v in values if isinstance(v, torch.Tensor)])
    ctx.rest = [None if isinstance(v, torch.Tensor) else v for v in values]


def _kept(ctx: Any) -> list[Any]:
    saved = iter(ctx.saved_tensors)
    return [next(saved) if v is None else v for v in ctx.rest]


class _Node(torch.autograd.Function):
    """A call with its gradient, without the op: of the time of a small call, the way through PyTorch's ops in Python is the
    larger part."""

    @staticmethod
    def forward(ctx: Any, owner: Any, *args: Any) -> Any:  # type: ignore[override]
        output = owner._forward(*args)
        ctx.owner = owner
        owner._save(ctx, args, output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:  # type: ignore[override]
        args, wants, needed, given = ctx.owner._saved(ctx, ctx.needs_input_grad[1:], grads)
        if torch.is_grad_enabled():  # by create_graph
            found = iter(_Gradient.apply(ctx.owner, needed, len(given), *given, *args))
        else:
            found = iter(ctx.owner._backward(given, needed, *args))
        return (None, *(next(found) if n else None for n in wants))


class _Gradient(torch.autograd.Function):
    """The gradient of a call, which can be differentiated once more."""

    @staticmethod
    def forward(ctx: Any, owner: Any, needed: list[bool], count: int, *rest: Any) -> tuple:  # type: ignore[override]
        ctx.owner, ctx.needed, ctx.count = owner, needed, count
        _keep(ctx, rest)
        return tuple(owner._backward(list(rest[:count]), needed, *rest[count:]))


    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple:  # type: ignore[override]
        if torch.is_grad_enabled():
            raise RuntimeError(f"{ctx.owner.__name__} has no third gradient")
        rest = _kept(ctx)
        return _Gradient.spread(ctx, rest, ctx.owner._backward_twice(list(cotangents), rest[:ctx.count], ctx.needed,
                                                                     *rest[ctx.count:]))

    @staticmethod
    def spread(ctx: Any, rest: list[Any], found: Sequence[torch.Tensor]) -> tuple:
        """Gradients of the gradient, in the places of its arguments."""
        by_call, by_grads = iter(found[:-ctx.count]), found[-ctx.count:]
        needs = iter(ctx.needed)
        return (None, None, None, *by_grads,
                *(next(by_call) if isinstance(a, torch.Tensor) and next(needs) else None for a in rest[ctx.count:]))


# The same for torch.func, whose functions need the context set apart and a rule for batches; that way of PyTorch's is slower.


def _map(node: Any) -> Any:
    """The rule for batches of a node: one call for each element of the batch."""
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
        def of(a: Any, dim: Any, i: int) -> Any:
            return a.select(dim, i) if isinstance(a, torch.Tensor) and dim is not None else a

        rows = [node.apply(*(of(a, d, i) for a, d in zip(args, in_dims))) for i in range(info.batch_size)]
        if isinstance(rows[0], tuple):
            return tuple(torch.stack(column) for column in zip(*rows)), (0,) * len(rows[0])
        return torch.stack(rows), 0
    return staticmethod(vmap)


class _FuncSecond(torch.autograd.Function):
    @staticmethod
    def forward(owner: Any, needed: list[bool], count: int, places: int, *rest: Any) -> tuple:  # type: ignore[override]
        return tuple(owner._backward_twice(list(rest[:places]), list(rest[places:places + count]), needed,
                                           *rest[places + count:]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.owner = inputs[0]

    @staticmethod
    def backward(ctx: Any, *unused: torch.Tensor) -> tuple:  # type: ignore[override]
        raise RuntimeError(f"{ctx.owner.__name__} has no third gradient")


class _FuncGradient(torch.autograd.Function):
    @staticmethod
    def forward(owner: Any, needed: list[bool], count: int, *rest: Any) -> tuple:  # type: ignore[override]
        return tuple(owner._backward(list(rest[:count]), needed, *rest[count:]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.owner, ctx.needed, ctx.count, *rest = inputs
        _keep(ctx, rest)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple:  # type: ignore[override]
        rest = _kept(ctx)
        found = _FuncSecond.apply(ctx.owner, ctx.needed, ctx.count, len(cotangents), *cotangents, *rest)
        return _Gradient.spread(ctx, rest, found)


class _FuncNode(torch.autograd.Function):
    @staticmethod
    def forward(owner: Any, *args: Any) -> Any:  # type: ignore[override]
        return owner._forward(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.owner = inputs[0]
        ctx.owner._save(ctx, inputs[1:], output)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:  # type: ignore[override]
        # Of every argument: one that this transform does not follow may be followed by another around it.
        floats = {i for i, t in zip(ctx.owner._places, ctx.saved_tensors) if t.dtype.is_floating_point}
        needs = [i in floats for i in range(len(ctx.owner._is_tensor))]
        args, wants, needed, given = ctx.owner._saved(ctx, needs, grads)
        found = iter(_FuncGradient.apply(ctx.owner, needed, len(given), *given, *args))
        return (None, *(next(found) if n else None for n in wants))


def _no_jvp(ctx: Any, *unused: Any) -> Any:
    raise NotImplementedError(f"{ctx.owner.__name__} has no forward-mode derivative: use torch.func.vjp, grad or jacrev")


for _node in (_FuncNode, _FuncGradient, _FuncSecond):
    _node.vmap, _node.jvp = _map(_node), staticmethod(_no_jvp)


class Function:
    """An op of PyTorch that is computed by a function of Tenon's ops."""

    def __init__(self, f: Callable[..., Any], name: str | None, outputs: int, random: bool) -> None:
        self.f, self.outputs, self.random = f, outputs, random
        self.__name__ = self.__qualname__ = name or getattr(f, "__name__", "function").replace("<lambda>", "function")
        self.__doc__ = f.__doc__
        self._shapes: dict[Any, list] = {}
        params, self._is_tensor = [], []
        for p in inspect.signature(f).parameters.values():
            if p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                raise TypeError(f"{self.__name__}: the parameter {p} has no fixed place")
            kind = _SCALARS.get(p.annotation) or _SCALARS.get(type(p.default)) or "Tensor"
            if kind == "Tensor" and p.default is not p.empty:
                raise TypeError(f"{self.__name__}: the tensor {p.name} cannot have a default")
            params.append(f"{kind} {p.name}")
            self._is_tensor.append(kind == "Tensor")
        if not any(self._is_tensor):
            raise TypeError(f"{self.__name__}: an op of PyTorch has at least one tensor")
        self._signature = inspect.signature(f)
        self._places = [i for i, is_tensor in enumerate(self._is_tensor) if is_tensor]
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
        torch.library.register_autograd(f"tenon::{name}_backward", self._second, lib=_library)
        self.op = getattr(torch.ops.tenon, name).default
        self._backward_op = getattr(torch.ops.tenon, name + "_backward").default

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != len(self._is_tensor):
            args = self._bind(args, kwargs)
        tensors = self._tensors(args)
        if not _is_plain(tensors):
            return self._transformed(args, tensors)
        seed = (_draw_seed(tensors[0]),) if self.random else ()
        if torch.is_grad_enabled() and any([t.requires_grad for t in tensors]):
            return _Node.apply(self, *args, *seed)
        return self._forward(*args, *seed)

    def _transformed(self, args: tuple, tensors: list[torch.Tensor]) -> Any:
        """A call that something of PyTorch watches, transforms or traces."""
        transform = None if torch.compiler.is_compiling() else _transforms()
        if transform is not None and transform.key() == _TRANSFORM.Jvp or _has_tangents(tensors):
            raise NotImplementedError(f"{self.__name__} has no forward-mode derivative: use torch.func.vjp, grad or jacrev")
        if transform is not None and transform.key() == _TRANSFORM.Grad:
            return _FuncNode.apply(self, *args, *((int(torch.randint(0, 2**62, ())),) if self.random else ()))
        return self.op(*args, torch.randint(0, 2**62, ())) if self.random else self.op(*args)

    def _bind(self, args: tuple, kwargs: dict) -> tuple:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def __repr__(self) -> str:
        return f"<tenon.torch.function {self.op.name()}>"

    # ---- values

    def _tensors(self, args: Sequence[Any]) -> list[torch.Tensor]:
        return [args[i] for i in self._places]

    def _captures(self, context: _c.Context) -> bool:
        return context.device.startswith("cuda") and torch.cuda.is_current_stream_capturing()

    def _record(self, args: Sequence[Any], xs: Sequence[Any], context: _c.Context) -> list[Any]:
        """What f returns for the tensors xs in the places of PyTorch's."""
        if self.random:
            if self._captures(context):
                raise RuntimeError(f"{self.__name__}: random numbers cannot be captured in a CUDA graph, since every replay "
                                   "would draw the same")
            _c.seed(int(args[-1]) if context is not _contexts.get("shapes") else 0, context=context)
        given = list(args[:len(self._is_tensor)])
        for i, x in zip(self._places, xs):
            given[i] = x
        before = context.random_state
        try:
            ys = self.f(*given)
        except ArgumentError as e:
            if "different contexts" not in str(e):
                raise
            raise ValueError(f"{self.__name__} uses a tensor of Tenon that is no argument of it: pass it as a tensor of PyTorch, or "
                             "make it inside the function") from e
        if not self.random and context.random_state != before:
            raise RuntimeError(f"{self.__name__} draws random numbers, which would be others in the backward pass: make it by "
                               "tenon.torch.function(random=True)")
        ys = [ys] if isinstance(ys, _c.Tensor) else list(ys)
        if len(ys) != self.outputs:
            raise ValueError(f"{self.__name__} returned {len(ys)} tensors; outputs={self.outputs} was said")
        return ys

    def _forward(self, *args: Any) -> Any:
        tensors = self._tensors(args)
        with _place_of(tensors) as call:
            before = _c.grad_mode(False)
            try:
                ys = self._record(args, call.take(tensors), call.context)
                outs = call.compute(ys)
                del ys
            finally:
                _c.grad_mode(before)
        return outs[0] if self.outputs == 1 else tuple(outs)

    def _backward(self, grads: list[torch.Tensor], needed: list[bool], *args: Any) -> list[torch.Tensor]:
        tensors = _unexpanded(self._tensors(args))
        with _place_of(tensors) as call:
            before = _c.grad_mode(True)
            try:
                xs = call.take(tensors)
                leaves = [x for x, needs in zip(xs, needed) if needs]
                for x in leaves:
                    x.requires_grad = True
                ys = [y for y in self._record(args, xs, call.context) if y.dtype.kind == "f"]
                _c.grad_mode(False)
                grown = [y for y in ys if y.requires_grad]
                given = call.take([g for y, g in zip(ys, grads) if y.requires_grad])
                gx = _c.grad(grown, leaves, given) if grown else [_c.zeros_like(x) for x in leaves]
                del ys, grown  # what has a name would be computed too
                outs = call.compute(list(gx))
                del xs, leaves, given, gx
            finally:
                _c.grad_mode(before)
        return outs

    def _backward_twice(self, cotangents: list[torch.Tensor], grads: list[torch.Tensor], needed: list[bool],
                        *args: Any) -> list[torch.Tensor]:
        """Gradients of those that _backward returns: by the arguments that are needed, then by grads."""
        tensors = _unexpanded(self._tensors(args))
        with _place_of(tensors) as call:
            before = _c.grad_mode(True)
            try:
                xs, gs = call.take(tensors), call.take(_unexpanded(grads))
                leaves = [x for x, needs in zip(xs, needed) if needs]
                for x in leaves + gs:
                    x.requires_grad = True
                ys = [y for y in self._record(args, xs, call.context) if y.dtype.kind == "f"]
                pairs = [(y, g) for y, g in zip(ys, gs) if y.requires_grad]
                gx = list(_c.grad([y for y, _ in pairs], leaves, [g for _, g in pairs])) if pairs else []
                _c.grad_mode(False)
                grown = [g for g in gx if g.requires_grad]
                given = call.take([c for c, g in zip(cotangents, gx) if g.requires_grad])
                found = _c.grad(grown, leaves + gs, given) if grown else [_c.zeros_like(x) for x in leaves + gs]
                del ys, pairs, gx, grown  # what has a name would be computed too
                outs = call.compute(list(found))
                del xs, gs, leaves, given, found
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
        _keep(ctx, inputs)
        whole = [y for y in ((output,) if self.outputs == 1 else output) if not y.dtype.is_floating_point]
        if whole:
            ctx.mark_non_differentiable(*whole)

    def _saved(self, ctx: Any, needs: Sequence[bool], grads: Sequence[torch.Tensor]) -> tuple:
        """The arguments of the call, which of them get a gradient, which of the tensors do, and the gradients of its results."""
        args = _kept(ctx)
        wants = [n and t for n, t in zip(needs, self._is_tensor)]
        needed = [wants[i] for i in self._places]
        given = [g for g in grads if g is not None and g.dtype.is_floating_point]
        return args, wants + [False] * self.random, needed, given

    def _autograd(self, ctx: Any, *grads: torch.Tensor) -> tuple:
        args, wants, needed, given = self._saved(ctx, ctx.needs_input_grad, grads)
        found = iter(self._backward_op(given, needed, *args))
        return tuple(next(found) if n else None for n in wants)

    def _second(self, ctx: Any, *unused: Any) -> tuple:
        raise RuntimeError(f"{self.__name__}: called as an op, or by torch.compile, it has no second gradient")


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
