"""Module: a part of a network, whose attributes are its parameters, buffers and parts."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping

from .. import _c
from .._dtypes import as_dtype
from .._errors import Error
from .._exchange import copied
from .._functions import context_on, is_device
from .._tensor import Tensor
from .parameter import Parameter, rebind

__all__ = ["Module"]


class RemovableHandle:
    """What registering a hook returns; remove() ends the hook."""

    def __init__(self, hooks: dict[int, Callable[..., Any]]) -> None:
        self._hooks, self._id = hooks, max(hooks, default=-1) + 1

    def remove(self) -> None:
        self._hooks.pop(self._id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.remove()


class IncompatibleKeys(tuple):
    """The names that load_state_dict did not find, as a pair of lists."""

    __slots__ = ()

    def __new__(cls, missing: list[str], unexpected: list[str]) -> IncompatibleKeys:
        return super().__new__(cls, (missing, unexpected))

    @property
    def missing_keys(self) -> list[str]:
        return self[0]

    @property
    def unexpected_keys(self) -> list[str]:
        return self[1]

    def __repr__(self) -> str:
        if not self[0] and not self[1]:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self[0]}, unexpected_keys={self[1]})"


class Module(_c.Module):
    """A part of a network. Attributes that are a Parameter or a Module belong to it, by the attribute's name.

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(784, 10)

            def forward(self, x):
                return self.fc(x.flatten(1))

    There is no list of parameters beside the attributes, so that what an attribute says is always so.
    """

    training: bool = True
    _buffer_names: Mapping[str, bool] = {}  # and whether the state dict has it
    _hooked: bool = False  # calls look at this alone
    _forward_hooks: dict[int, Callable[..., Any]] | None = None
    _forward_pre_hooks: dict[int, Callable[..., Any]] | None = None

    if TYPE_CHECKING:  # attributes of networks of C, and buffers
        def __getattr__(self, name: str) -> Any: ...

    def __init__(self) -> None:
        pass

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; a class that derives from Module defines it."""
        raise NotImplementedError(f'{type(self).__name__} has no method "forward"')

    def _call_with_hooks(self, args: tuple, kwargs: dict) -> Any:
        for hook in list((self._forward_pre_hooks or {}).values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        y = self.forward(*args, **kwargs)
        for hook in list((self._forward_hooks or {}).values()):
            changed = hook(self, args, y)
            if changed is not None:
                y = changed
        return y

    def register_forward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls hook(module, args, output) after each forward; what it returns, if not None, replaces the output."""
        if self._forward_hooks is None:
            self._forward_hooks, self._hooked = {}, True
        handle = RemovableHandle(self._forward_hooks)
        self._forward_hooks[handle._id] = hook
        return handle

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls hook(module, args) before each forward; what it returns, if not None, replaces the arguments."""
        if self._forward_pre_hooks is None:
            self._forward_pre_hooks, self._hooked = {}, True
        handle = RemovableHandle(self._forward_pre_hooks)
        self._forward_pre_hooks[handle._id] = hook
        return handle

    # ---- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, (Parameter, Module)):
            old = self.__dict__.get(name)
            if isinstance(old, Parameter):
                raise TypeError(f"cannot assign a {type(value).__name__} as parameter '{name}' "
                                "(a Parameter or None is expected)")
            if isinstance(old, Module):
                raise TypeError(f"cannot assign a {type(value).__name__} as module '{name}' "
                                "(a Module or None is expected)")
            if name in self._buffer_names and not isinstance(value, _c.Tensor):
                raise TypeError(f"cannot assign a {type(value).__name__} as buffer '{name}' "
                                "(a Tensor or None is expected)")
        self.__dict__[name] = value

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter, as the assignment of an attribute does."""
        _check_name(self, name)
        setattr(self, name, param)

    def register_module(self, name: str, module: Module | None) -> None:
        """Adds a part, as the assignment of an attribute does."""
        _check_name(self, name)
        setattr(self, name, module)

    add_module = register_module

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that is state but is not trained."""
        _check_name(self, name)
        if tensor is not None and not isinstance(tensor, _c.Tensor):
            raise TypeError(f"cannot register a {type(tensor).__name__} as buffer '{name}' "
                            "(a Tensor or None is expected)")
        self.__dict__["_buffer_names"] = {**self._buffer_names, name: persistent}
        self.__dict__[name] = tensor

    def __delattr__(self, name: str) -> None:
        if name in self._buffer_names:
            self.__dict__["_buffer_names"] = {n: p for n, p in self._buffer_names.items() if n != name}
        super().__delattr__(name)

    # What belongs to the module itself, by name.

    @property
    def _parameters(self) -> dict[str, Parameter]:
        return {n: v for n, v in self.__dict__.items() if isinstance(v, Parameter) and n not in self._buffer_names}

    @property
    def _modules(self) -> dict[str, Module]:
        return {n: v for n, v in self.__dict__.items() if isinstance(v, Module)}

    @property
    def _buffers(self) -> dict[str, Tensor]:
        return {n: self.__dict__[n] for n in self._buffer_names if self.__dict__.get(n) is not None}

    # ---- lists of what it is made of

    def named_modules(self, memo: set | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """The module itself and all below it, by name; one that is there twice comes once."""
        memo = set() if memo is None else memo
        if remove_duplicate:
            if id(self) in memo:
                return
            memo.add(id(self))
        yield prefix, self
        for name, child in self._modules.items():
            yield from child.named_modules(memo, prefix + "." + name if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """The module itself and all below it."""
        for _, m in self.named_modules():
            yield m

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules that are its own attributes, by name."""
        seen = set()
        for name, m in self._modules.items():
            if id(m) not in seen:
                seen.add(id(m))
                yield name, m

    def children(self) -> Iterator[Module]:
        """The modules that are its own attributes."""
        for _, m in self.named_children():
            yield m

    def _named(self, which: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, m in modules:
            for name, t in getattr(m, which).items():
                if remove_duplicate and id(t) in seen:
                    continue
                seen.add(id(t))
                yield (path + "." + name if path else name), t

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """The parameters, by their full names; a tied one comes once, under its first name."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters; a tied one comes once."""
        for _, p in self.named_parameters(recurse=recurse):
            yield p

    def named_buffers(self, prefix: str = "", recurse: bool = True,
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The buffers, by their full names."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers."""
        for _, b in self.named_buffers(recurse=recurse):
            yield b

    def get_submodule(self, target: str) -> Module:
        """The module below it with this path, "layer1.0"."""
        m: Any = self
        for name in target.split(".") if target else []:
            m = m._modules.get(name)
            if m is None:
                raise AttributeError(f"{type(self).__name__} has no module '{target}'")
        return m

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with this full name."""
        path, _, name = target.rpartition(".")
        p = self.get_submodule(path)._parameters.get(name)
        if p is None:
            raise AttributeError(f"{type(self).__name__} has no parameter '{target}'")
        return p

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with this full name."""
        path, _, name = target.rpartition(".")
        b = self.get_submodule(path)._buffers.get(name)
        if b is None:
            raise AttributeError(f"{type(self).__name__} has no buffer '{target}'")
        return b

    # ---- state

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """The parameters and persistent buffers by full names. They are the tensors themselves, without history."""
        state: dict[str, Tensor] = {}
        for path, m in self.named_modules(prefix=prefix.rstrip("."), remove_duplicate=False):
            path += "." if path else ""
            for name, p in m._parameters.items():
                state[path + name] = p if keep_vars else p.detach()
            for name, b in m._buffers.items():
                if m._buffer_names[name]:
                    state[path + name] = b if keep_vars else b.detach()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True,
                        assign: bool = False) -> IncompatibleKeys:
        """Copies values into the parameters and buffers, by name, all or none of them.

        With strict, every name must be there and none more. The values may be tensors or arrays of another library.
        """
        own = self.state_dict(keep_vars=True)
        given = {id(own[n]) for n in state_dict if n in own}
        missing = [n for n, t in own.items() if n not in state_dict and id(t) not in given]
        unexpected = [n for n in state_dict if n not in own]
        wrong = []
        if strict and unexpected:
            wrong.append("unexpected names: " + ", ".join(unexpected))
        if strict and missing:
            wrong.append("missing names: " + ", ".join(missing))
        pairs = []
        for name, value in state_dict.items():
            if name not in own:
                continue
            value = value if isinstance(value, _c.Tensor) else copied(value, own[name].context)
            if tuple(value.shape) != own[name].shape:
                wrong.append(f"the shape of {name} is {tuple(value.shape)} there, and {own[name].shape} here")
            pairs.append((own[name], value))
        if wrong:
            raise RuntimeError(f"load_state_dict of {type(self).__name__}: " + "; ".join(wrong))
        for t, value in pairs:
            value = value.detach()
            if assign:
                rebind(t, value)
                continue
            if value.context is not t.context:
                value = _c.copy_to(value, context=t.context)
            _c.assign(t.detach(), value)
        return IncompatibleKeys(missing, unexpected)

    # ---- modes

    def train(self, mode: bool = True) -> Module:
        """Switches it and all below it to training mode, which changes dropout and batch norm."""
        for m in self.modules():
            m._set_training(bool(mode))
        return self

    def _set_training(self, mode: bool) -> None:
        self.__dict__["training"] = mode

    def eval(self) -> Module:
        """Switches it and all below it to evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Sets whether its parameters take a gradient: False freezes them."""
        for p in self.parameters():
            p.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of its parameters, which are then None or zeros."""
        for p in self.parameters():
            p.grad = None if set_to_none or p.grad is None else _c.zeros_like(p.detach())

    def apply(self, fn: Callable[[Module], Any]) -> Module:
        """Calls fn for every module below it and then for itself."""
        for m in self.children():
            m.apply(fn)
        fn(self)
        return self

    # ---- type and place

    def _convert(self, convert: Callable[[Tensor], Tensor]) -> Module:
        seen = set()
        for m in self.modules():
            for t in [*m._parameters.values(), *m._buffers.values()]:
                if id(t) not in seen:
                    seen.add(id(t))
                    rebind(t, convert(t.detach()))
        return self

    def to(self, *args: Any, device: Any = None, dtype: Any = None) -> Module:
        """Converts its floating-point parameters and buffers to a dtype, or copies all to a device.

        The objects of the parameters stay, so that optimizers that were made before go on with the converted ones.
        """
        device, dtype = _target(args, device, dtype)
        kind = None if dtype is None else as_dtype(dtype)
        if kind is not None and kind.kind != "f":
            raise TypeError(f"a module's parameters are floats, not {kind.name}")
        context = device if device is None or isinstance(device, _c.Context) else context_on(str(device))

        def convert(t: Tensor) -> Tensor:
            if context is not None and context is not t.context:
                t = _c.copy_to(t, context=context)
            return _c.cast(t, kind) if kind is not None and t.dtype.kind == "f" and t.dtype is not kind else t

        return self._convert(convert)

    def float(self) -> Module:
        return self.to(dtype="float32")

    def double(self) -> Module:
        return self.to(dtype="float64")

    def half(self) -> Module:
        return self.to(dtype="float16")

    def bfloat16(self) -> Module:
        return self.to(dtype="bfloat16")

    def cpu(self) -> Module:
        return self.to("cpu")

    def cuda(self, device: int = 0) -> Module:
        return self.to(f"cuda:{device}" if device else "cuda")

    def type(self, dst_type: Any) -> Module:
        return self.to(dtype=dst_type)

    # ---- text

    def extra_repr(self) -> str:
        """What repr writes between the parentheses."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + _indent(repr(m)) for name, m in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return self._get_name() + "(\n  " + "\n  ".join(lines + children) + "\n)"

    def summary(self, *args: Any) -> Summary:
        """A table of its modules and their parameters and, with inputs, of the shapes of their outputs.

        The forward pass of these inputs is recorded, in evaluation mode and without gradients, but nothing is computed.
        """
        return Summary(self, args)

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def __dir__(self) -> Iterable[str]:
        return sorted(set(super().__dir__()))

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Summary:
    """A table of modules: names, classes, shapes of outputs, numbers of parameters."""

    def __init__(self, module: Module, args: tuple) -> None:
        shapes = _output_shapes(module, args) if args else {}
        seen: set[int] = set()
        self.rows: list[tuple[str, str, str, int]] = []
        self.total = self.trained = 0
        for name, m in module.named_modules():
            count = 0
            for p in m._parameters.values():
                if id(p) not in seen:
                    seen.add(id(p))
                    count += p.size
                    self.trained += p.size if p.requires_grad else 0
            self.total += count
            self.rows.append((name, m._get_name(), shapes.get(id(m), ""), count))
        self.has_shapes = bool(args)

    def _table(self) -> list[list[str]]:
        head = ["name", "module"] + (["output"] if self.has_shapes else []) + ["parameters"]
        return [head] + [[name, kind] + ([shape] if self.has_shapes else []) + [f"{count:,}" if count else ""]
                         for name, kind, shape, count in self.rows]

    def _foot(self) -> str:
        some = f", {self.trained:,} of them trained" if self.trained != self.total else ""
        return f"{self.total:,} parameters" + some

    def __str__(self) -> str:
        table = self._table()
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        lines = ["  ".join([c.ljust(w) for c, w in zip(row[:-1], widths)] + [row[-1].rjust(widths[-1])]).rstrip()
                 for row in table]
        return "\n".join(lines + [self._foot()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape
        head, *rows = self._table()
        body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
        top = "".join(f"<th>{c}</th>" for c in head)
        return (f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
                f"<p>{self._foot()}</p>")


def _output_shapes(module: Module, args: tuple) -> dict[int, str]:
    """The shapes of the outputs of all modules in a forward pass that is only recorded."""
    from ..autograd import no_grad
    shapes: dict[int, str] = {}

    def note(m: Module, args: tuple, y: Any) -> None:
        first = y[0] if isinstance(y, (tuple, list)) and y else y
        shapes[id(m)] = str(first.shape) if isinstance(first, _c.Tensor) else ""

    modes = [(m, m.training) for m in module.modules()]
    handles = [m.register_forward_hook(note) for m in module.modules()]
    try:
        module.eval()
        with no_grad():
            module(*args)
    finally:
        for h in handles:
            h.remove()
        for m, mode in modes:
            m._set_training(mode)
    return shapes


def _target(args: tuple, device: Any, dtype: Any) -> tuple[Any, Any]:
    """The device and dtype that the arguments of to() name, in any order; a tensor stands for its own."""
    for a in args:
        if isinstance(a, _c.Tensor):
            device, dtype = a.context, a.dtype
        elif isinstance(a, _c.Context):
            device = a
        elif is_device(a):
            device = a
        elif a is not None:
            dtype = a
    return device, dtype


def _check_name(m: Module, name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of an attribute is a str, not {type(name).__name__}")
    if "." in name or not name:
        raise KeyError(f"'{name}' is no name of an attribute of a module")
    if hasattr(m, name) and name not in m.__dict__:
        raise KeyError(f"attribute '{name}' exists already")


def _name_layer(m: Module, e: Error) -> None:
    """Says in an error which module was running: each level replaces the path by a longer one."""
    inner = e.__dict__.setdefault("_module", m)
    note = next((n for n in reversed(getattr(e, "__notes__", [])) if n.startswith("in module ")), None)
    if note is not None:
        e.__notes__.remove(note)
    path = next((name for name, x in m.named_modules() if x is inner), "")
    if path:
        e.layer = path
    e.add_note("in module " + (f"{m._get_name()}.{path}" if path else m._get_name()) + f": {inner!r}"[:200])


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")
