"""The class of tensors: what Tensor of the extension module lacks, by the names of NumPy and PyTorch."""
from __future__ import annotations

from builtins import bool as _bool, int as _int  # names that methods have too
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from . import _c, _functions as F
from ._dtypes import DType, DTypeLike, as_dtype, float16, bfloat16, float32, float64, int32, int64, bool_
from ._exchange import Exchange


class Tensor(Exchange, _c.Tensor):
    """Elements of one type along axes, on a device. Ops on tensors are recorded and run when a value is read."""

    __slots__ = ()
    __array_ufunc__ = None  # so that ndarray + Tensor is Tensor's

    # ---- facts

    @property
    def T(self) -> Tensor:
        """The transpose: the axes in the opposite order."""
        return self.permute(range(self.ndim)[::-1])

    @property
    def mT(self) -> Tensor:
        """The transposes of the matrices in its last two axes."""
        return self.transpose(-1, -2)

    @property
    def device(self) -> str:
        """The device that it is on."""
        return self.context.device

    @property
    def itemsize(self) -> _int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> _int:
        return self.size * self.dtype.itemsize

    def numel(self) -> _int:
        """The number of elements."""
        return self.size

    def dim(self) -> _int:
        """The number of axes."""
        return self.ndim

    def is_floating_point(self) -> _bool:
        return self.dtype.kind == "f"

    # ---- shape

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape, in which one size may be -1."""
        return _c.reshape(self, F.sizes(shape))

    def view(self, *shape: Any) -> Tensor:
        """The same elements in another shape, never copied."""
        return _c.view(self, F.sizes(shape))

    def expand(self, *shape: Any) -> Tensor:
        """Broadcast to a shape; a size of -1 keeps that of the axis."""
        return _c.expand(self, F.sizes(shape))

    def permute(self, *axes: Any) -> Tensor:
        """The axes in another order."""
        return _c.permute(self, F.sizes(axes))

    def repeat(self, *times: Any) -> Tensor:
        """Repeated along each axis, as torch.Tensor.repeat and numpy.tile."""
        return _c.repeat(self, F.sizes(times))

    def flatten(self, start: _int = 0, end: _int = -1) -> Tensor:
        """The axes start .. end joined into one."""
        return _c.flatten(self, start, end)

    def squeeze(self, axis: _int | None = None) -> Tensor:
        """Without an axis of size 1, or without all of them."""
        return _c.squeeze_all(self) if axis is None else _c.squeeze(self, axis)

    def swapaxes(self, axis1: _int, axis2: _int) -> Tensor:
        return _c.transpose(self, axis1, axis2)

    # ---- type and place

    def astype(self, dtype: DTypeLike) -> Tensor:
        """Converted to a dtype."""
        return _c.cast(self, dtype)

    def to(self, to: Any = None, *, dtype: DTypeLike | None = None, context: _c.Context | None = None) -> Tensor:
        """Converted to a dtype, or copied to a context or to that of another tensor."""
        if isinstance(to, _c.Tensor):
            dtype, context = to.dtype, to.context
        elif isinstance(to, _c.Context):
            context = to
        elif isinstance(to, str) and to.partition(":")[0] in ("cpu", "cuda", "opencl", "ref"):
            context = None if to == self.device else F.context_on(to)
        elif to is not None:
            dtype = to
        x = self if context is None or context is self.context else _c.copy_to(self, context=context)
        return x if dtype is None or as_dtype(dtype) is x.dtype else _c.cast(x, dtype)

    def float(self) -> Tensor:
        return _c.cast(self, float32)

    def double(self) -> Tensor:
        return _c.cast(self, float64)

    def half(self) -> Tensor:
        return _c.cast(self, float16)

    def bfloat16(self) -> Tensor:
        return _c.cast(self, bfloat16)

    def int(self) -> Tensor:
        return _c.cast(self, int32)

    def long(self) -> Tensor:
        return _c.cast(self, int64)

    def bool(self) -> Tensor:
        return _c.ne(self, _c.zeros_like(self)) if self.dtype is not bool_ else self

    def cpu(self) -> Tensor:
        return self.to("cpu")

    # ---- reductions: over all axes, one axis or several

    sum = F.sum
    mean = F.mean
    prod = F.prod
    max = F.max
    min = F.min
    var = F.var
    std = F.std
    norm = F.norm
    logsumexp = F.logsumexp
    any = F.any
    all = F.all
    argmax = F.argmax
    argmin = F.argmin

    # ---- gradients

    def backward(self, gradient: Tensor | None = None) -> None:
        """Adds its gradient to that of every leaf that it was computed from."""
        _c.backward(self, gradient)

    def requires_grad_(self, on: _bool = True) -> Tensor:
        """Makes it a leaf, whose gradient backward() accumulates."""
        self.requires_grad = on
        return self

    # ---- reading

    def tolist(self) -> Any:
        """Its elements as nested lists, or as one number."""
        return F.tolist(self)

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise TypeError("a tensor of no axes cannot be iterated")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value: Any) -> _bool:
        return _bool((self == value).any())

    def __complex__(self) -> complex:
        raise TypeError("tensors have no complex numbers")

    def __repr__(self) -> str:
        try:
            text = self._text()
        except Exception as e:  # a debugger that shows variables must not fail
            if self.context.closed:
                return f"<tensor: {e}>"
            return f"<tensor of {self.dtype.name} {self.shape}: {e}>"
        lines = text.split("\n")
        shown = ("\n" + " " * len("tensor(")).join(lines)
        plain = self.dtype in (float32, int64, bool_)
        notes = [] if plain else [f"dtype={self.dtype.name}"]
        if 0 in self.shape:
            notes.insert(0, f"shape={self.shape}")
        if self.device != _c.current_context().device:
            notes.append(f"device='{self.device}'")
        if self.requires_grad:
            notes.append("requires_grad=True")
        return "tensor(" + ", ".join([shown] + notes) + ")"

    def __str__(self) -> str:
        return self._text()

    def _repr_html_(self) -> str:
        from .inspect import tensor_html
        return tensor_html(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __deepcopy__(self, memo: dict) -> Tensor:
        copy = _c.clone(self.detach())
        if self.requires_grad:
            copy.requires_grad = True
        memo[id(self)] = copy
        return copy

    def __reduce__(self) -> Any:
        return F.unpickle, (_c.read_bytes(self), self.dtype.name, self.shape, self.requires_grad)


# The class above is what a reader and a type checker see. At run time its members are put into the class of C, which is then
# the class of all tensors: objects of a class of Python are known to the garbage collector, which takes a quarter of the time of a small op.
if not TYPE_CHECKING:
    _own = {"__slots__", "__module__", "__dict__", "__weakref__", "__orig_bases__", "__parameters__"}
    for _class in (Exchange, Tensor):
        for _name, _value in vars(_class).items():
            if _name not in _own:
                setattr(_c.Tensor, _name, _value)
    Tensor = _c.Tensor
