"""The class of tensors: what Tensor of the extension module lacks, by the names of NumPy and PyTorch."""
from __future__ import annotations

from builtins import bool as _bool, float as _float, int as _int  # names that methods have too
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence, overload

from . import _c, _composed as G, _functions as F, _hooks
from ._dtypes import DType, DTypeLike, as_dtype, float16, bfloat16, float32, float64, int32, int64, bool_
from ._exchange import Exchange

if TYPE_CHECKING:
    from .sparse import SparseTensor


class GradFn:
    """The op that a tensor with a gradient is the result of."""

    def __init__(self, x: _c.Tensor) -> None:
        self._name = f"{_c.op_of(x).title().replace('_', '')}Backward0"

    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<{self._name}>"


class Size(_int):
    """The number of elements of a tensor, an integer, which can be called for the sizes of its axes."""

    _shape: tuple[_int, ...]

    def __new__(cls, count: _int, shape: tuple[_int, ...]) -> Size:
        size = super().__new__(cls, count)
        size._shape = shape
        return size

    @overload
    def __call__(self, dim: None = None) -> tuple[_int, ...]: ...

    @overload
    def __call__(self, dim: _int) -> _int: ...

    def __call__(self, dim: _int | None = None) -> Any:
        return self._shape if dim is None else self._shape[dim]

    def __reduce__(self) -> Any:
        return _int, (_int(self),)


def _writing(f: Callable[..., Any]) -> Callable[..., Any]:
    """The method that writes the result of a function into its tensor: relu_ of relu."""
    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _c.assign(self, f(self, *args, **kwargs))

    write.__doc__ = f.__doc__
    return write


class Tensor(Exchange, _c.Tensor):
    """Elements of one type along axes, on a device. Ops on tensors are recorded and run when a value is read."""

    __slots__ = ()

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
    def real(self) -> Tensor:
        """The real part, a view."""
        return _c.real(self)

    @property
    def imag(self) -> Tensor:
        """The imaginary part of a complex tensor, a view."""
        return _c.imag(self)

    def is_complex(self) -> _bool:
        return self.dtype.is_complex

    @property
    def itemsize(self) -> _int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> _int:
        return self.size * self.dtype.itemsize

    @property
    def size(self) -> Size:
        """The number of elements, as in NumPy; called, as in PyTorch, the sizes of the axes: x.size(), x.size(0)."""
        return Size(self.numel(), self.shape)

    def dim(self) -> _int:
        """The number of axes."""
        return self.ndim

    ndimension = dim

    def nelement(self) -> _int:
        """The number of elements."""
        return self.numel()

    def is_floating_point(self) -> _bool:
        return self.dtype.kind == "f"

    # ---- sparse

    def to_sparse(self) -> SparseTensor:
        """The elements of a matrix that are not 0; their number is read, which waits."""
        from .sparse import from_dense
        return from_dense(self)

    to_sparse_coo = to_sparse_csr = to_sparse

    # ---- shape

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape, in which one size may be -1."""
        return _c.reshape(self, F.sizes(shape))

    def view(self, *shape: Any) -> Tensor:
        """The same elements in another shape, never copied; of a dtype, their bits as elements of it, as a copy."""
        if len(shape) == 1 and isinstance(shape[0], (DType, type, str)):
            return _c.bitcast(self, shape[0])
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

    flatten = F.flatten
    squeeze = F.squeeze
    flip = F.flip
    roll = F.roll
    tril = F.tril
    triu = F.triu
    split = F.split
    chunk = F.chunk
    unbind = F.unbind
    masked_select = F.masked_select
    movedim = F.movedim
    tile = F.tile
    broadcast_to = F.broadcast_to
    repeat_interleave = F.repeat_interleave
    diag = F.diag

    def unsqueeze(self, axis: _int | None = None, *, dim: _int | None = None) -> Tensor:
        """With a new axis of size 1."""
        return _c.unsqueeze(self, F.one_axis("unsqueeze", axis, dim))

    def ravel(self) -> Tensor:
        """All elements along one axis."""
        return _c.reshape(self, (-1,))

    def t(self) -> Tensor:
        """The transpose of a matrix; a row of numbers stays."""
        if self.ndim > 2:
            raise ValueError(f"t() takes at most two axes, not {self.ndim}")
        return self.T

    def swapaxes(self, axis1: _int, axis2: _int) -> Tensor:
        return _c.transpose(self, axis1, axis2)

    def expand_as(self, other: Tensor) -> Tensor:
        """Broadcast to the shape of another tensor."""
        return _c.expand(self, other.shape)

    def view_as(self, other: Tensor) -> Tensor:
        """The same elements in the shape of another tensor, never copied."""
        return _c.view(self, other.shape)

    def reshape_as(self, other: Tensor) -> Tensor:
        """The same elements in the shape of another tensor."""
        return _c.reshape(self, other.shape)

    def narrow(self, dim: _int, start: _int, length: _int) -> Tensor:
        """The `length` elements from start on along an axis."""
        n = self.shape[dim]
        start = start + n if start < 0 else start
        if not 0 <= start <= start + length <= n:
            raise IndexError(f"narrow: {length} elements from {start} on along an axis of {n}")
        return _c.slice(self, dim, start, start + length, 1)

    def unfold(self, dimension: _int, size: _int, step: _int) -> Tensor:
        """Windows of `size` elements along an axis, the elements of each along a new last axis."""
        return _c.window(self, dimension, size, step)

    # ---- new tensors of its dtype and on its device

    def new_tensor(self, data: Any, dtype: DTypeLike | None = None, requires_grad: _bool = False) -> Tensor:
        """Makes a tensor of lists or an array, which is copied."""
        return F.tensor(data, self.dtype if dtype is None else dtype, requires_grad=requires_grad, device=self.context)

    def new_zeros(self, *shape: Any, dtype: DTypeLike | None = None, requires_grad: _bool = False) -> Tensor:
        """Makes a tensor of zeros."""
        return F.zeros(*shape, dtype=dtype or self.dtype, requires_grad=requires_grad, device=self.context)

    def new_ones(self, *shape: Any, dtype: DTypeLike | None = None, requires_grad: _bool = False) -> Tensor:
        """Makes a tensor of ones."""
        return F.ones(*shape, dtype=dtype or self.dtype, requires_grad=requires_grad, device=self.context)

    new_empty = new_zeros

    def new_full(self, shape: Any, value: _float, dtype: DTypeLike | None = None) -> Tensor:
        """Makes a tensor of one number."""
        return F.full(shape, value, dtype or self.dtype, device=self.context)

    # ---- writing

    @property
    def data(self) -> Tensor:
        """The same elements without gradient history; writing to it writes here."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        _c.assign(self.detach(), value)

    def copy_(self, source: Any) -> Tensor:
        """Writes the elements of another tensor, broadcast, into this one."""
        return _c.assign(self, source)

    def fill_(self, value: _float) -> Tensor:
        """Writes one number everywhere."""
        if isinstance(value, _int) and self.dtype.kind != "f":
            return _c.fill_i64_(self, value)
        return _c.fill_(self, value)

    def clamp_(self, min: Any = None, max: Any = None) -> Tensor:
        """Raises each element to min and lowers it to max."""
        return _c.assign(self, F.clamp(self, min, max))

    def masked_fill_(self, mask: Any, value: Any) -> Tensor:
        """Writes one number where the mask holds."""
        return _c.assign(self, _c.masked_fill(self, mask, value))

    relu_ = _writing(_c.relu)
    sigmoid_ = _writing(_c.sigmoid)
    tanh_ = _writing(_c.tanh)
    exp_ = _writing(_c.exp)
    log_ = _writing(_c.log)
    sqrt_ = _writing(_c.sqrt)
    abs_ = _writing(_c.abs)
    neg_ = _writing(_c.neg)
    pow_ = _writing(_c.pow)
    lerp_ = _writing(F.lerp)
    addcmul_ = _writing(G.addcmul)
    addcdiv_ = _writing(G.addcdiv)

    def clamp_min(self, min: Any) -> Tensor:
        """Each element, raised to min."""
        return F.clamp(self, min)

    def clamp_max(self, max: Any) -> Tensor:
        """Each element, lowered to max."""
        return F.clamp(self, None, max)

    def index_fill_(self, dim: _int, index: Any, value: _float) -> Tensor:
        """Writes one number into the slices at index along an axis."""
        self[(slice(None),) * (dim % self.ndim) + (index,)] = value
        return self

    def index_copy_(self, dim: _int, index: Any, source: Any) -> Tensor:
        """Writes the slices of source at index along an axis."""
        self[(slice(None),) * (dim % self.ndim) + (index,)] = source
        return self

    def scatter_(self, dim: _int, index: Any, src: Any = None, *, value: _float | None = None,
                 reduce: str | None = None) -> Tensor:
        """Writes the elements of src, or one number, at index along an axis."""
        return _c.assign(self, G.scatter(self, dim, index, src, value=value, reduce=reduce))

    def scatter_add_(self, dim: _int, index: Any, src: Any) -> Tensor:
        """Adds the elements of src at index along an axis."""
        return _c.assign(self, G.scatter(self, dim, index, src, reduce="add"))

    def index_add_(self, dim: _int, index: Any, source: Any, *, alpha: _float = 1) -> Tensor:
        """Adds the slices of source at index along an axis."""
        return _c.assign(self, G.index_add(self, dim, index, source, alpha=alpha))

    def uniform_(self, low: _float = 0.0, high: _float = 1.0) -> Tensor:
        """Writes random numbers in [low, high)."""
        return _c.assign(self, _c.rand_like(self.detach()) * (high - low) + low)

    def normal_(self, mean: _float = 0.0, std: _float = 1.0) -> Tensor:
        """Writes random numbers of a normal distribution."""
        return _c.assign(self, _c.randn_like(self.detach()) * std + mean)

    # ---- type and place

    def astype(self, dtype: DTypeLike) -> Tensor:
        """Converted to a dtype."""
        return _c.cast(self, dtype)

    def to(self, to: Any = None, dtype: DTypeLike | None = None, *, device: Any = None,
           context: _c.Context | None = None, non_blocking: _bool = False) -> Tensor:
        """Converted to a dtype, or copied to a device, to a context or to that of another tensor."""
        to = device if to is None else to
        if to is not None and to is not device and device is not None:
            dtype, to = to, device
        if isinstance(to, _c.Tensor):
            dtype, context = to.dtype, to.context
        elif isinstance(to, _c.Context):
            context = to
        elif F.is_device(to):
            context = None if to == self.device else F.context_on(to)
        elif to is not None:
            dtype = to
        x = self if context is None or context is self.context else _c.copy_to(self, context=context)
        return x if dtype is None or as_dtype(dtype) is x.dtype else _c.cast(x, dtype)

    def type_as(self, other: Tensor) -> Tensor:
        """Converted to the dtype of another tensor."""
        return self.to(dtype=other.dtype)

    def element_size(self) -> _int:
        """The bytes of one element."""
        return self.dtype.itemsize

    def stride(self, dim: _int | None = None) -> Any:
        """The distances of neighbours along the axes, in elements, or along one axis."""
        return self.strides if dim is None else self.strides[dim]

    # Converted to a dtype, as x.to(dtype): x itself, if it has that.

    def float(self) -> Tensor:
        return self.to(dtype=float32)

    def double(self) -> Tensor:
        return self.to(dtype=float64)

    def half(self) -> Tensor:
        return self.to(dtype=float16)

    def bfloat16(self) -> Tensor:
        return self.to(dtype=bfloat16)

    def int(self) -> Tensor:
        return self.to(dtype=int32)

    def long(self) -> Tensor:
        return self.to(dtype=int64)

    def bool(self) -> Tensor:
        return _c.ne(self, _c.zeros_like(self)) if self.dtype is not bool_ else self

    def short(self) -> Tensor:
        return self.to(dtype="int16")

    def byte(self) -> Tensor:
        return self.to(dtype="uint8")

    def char(self) -> Tensor:
        return self.to(dtype="int8")

    def pin_memory(self) -> Tensor:
        """Itself: copies to a GPU pin what they need."""
        return self

    def is_contiguous(self) -> _bool:
        """Whether its elements are in row-major order, without gaps."""
        expected = 1
        for n, stride in zip(self.shape[::-1], self.strides[::-1]):
            if n != 1 and stride != expected:
                return 0 in self.shape
            expected *= n
        return True

    def contiguous(self) -> Tensor:
        """Its elements in row-major order, without gaps: itself, if they are."""
        return self if self.is_contiguous() else _c.contiguous(self)

    def cpu(self) -> Tensor:
        return self.to("cpu")

    def cuda(self, device: _int = 0) -> Tensor:
        """Copied to a GPU, unless it is there."""
        return self.to("cuda" if not device else f"cuda:{device}")

    @property
    def is_cuda(self) -> _bool:
        """Whether it is on a GPU of CUDA."""
        return self.device.startswith("cuda")

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
    amax = F.amax
    amin = F.amin
    median = F.median
    count_nonzero = F.count_nonzero
    cumsum = F.cumsum
    cumprod = F.cumprod

    # ---- order, elements, products

    sort = F.sort
    argsort = F.argsort
    topk = F.topk
    unique = F.unique
    bincount = F.bincount
    nonzero = F.nonzero
    clamp = F.clamp
    clip = F.clip
    lerp = F.lerp
    softmax = F.softmax
    log_softmax = F.log_softmax
    isclose = F.isclose
    allclose = F.allclose
    equal = F.equal
    bitwise_and = F.bitwise_and
    bitwise_or = F.bitwise_or
    bitwise_xor = F.bitwise_xor
    bitwise_not = F.bitwise_not
    addmm = F.addmm
    mv = G.mv
    addcmul = G.addcmul
    addcdiv = G.addcdiv
    take = G.take
    frac = G.frac
    unflatten = G.unflatten
    nansum = G.nansum
    nanmean = G.nanmean
    moveaxis = F.movedim
    add = G.add
    sub = G.sub
    div = G.div
    gather = G.gather
    scatter = G.scatter
    index_add = G.index_add
    nan_to_num = G.nan_to_num
    diff = G.diff
    multinomial = G.multinomial
    mm = F.mm
    bmm = F.bmm
    dot = F.dot
    outer = F.outer

    def __round__(self, digits: _int | None = None) -> Tensor:
        return _c.round(self) if not digits else _c.round(self * 10.0 ** digits) / 10.0 ** digits

    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return other // self, other % self

    # ---- gradients

    def backward(self, gradient: Tensor | None = None, retain_graph: _bool | None = None,
                 create_graph: _bool = False) -> None:
        """Adds its gradient to that of every leaf that it was computed from; the graph may be used again."""
        if create_graph:
            raise NotImplementedError("backward(create_graph=True): tn.grad() returns gradients that have a history")
        if _hooks.active():
            _hooks.backward(self, gradient)
        else:
            _c.backward(self, gradient)

    @property
    def grad_fn(self) -> Any:
        """What its gradient passes, by the name of the op; None for a leaf and for what has no gradient."""
        return GradFn(self) if self.requires_grad and not self.is_leaf else None

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> _hooks.Handle | _hooks.ValueHandle:
        """Calls a function with the gradient of this tensor in every backward(); what it returns, if not None, takes its place.

        The gradient of a tensor that is no leaf is not computed yet when the function is called: it can make another one of it, but
        not read its numbers.
        """
        if not self.requires_grad:
            raise RuntimeError("register_hook: the tensor requires no gradient")
        return _hooks.Handle(self, hook) if self.is_leaf else _hooks.ValueHandle(self, hook)

    def retain_grad(self) -> None:
        """Keeps its gradient in backward(), though it is no leaf: x.grad."""
        if not self.requires_grad:
            raise RuntimeError("retain_grad: the tensor requires no gradient")
        if not self.is_leaf:
            _hooks.retain(self)

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
        return complex(self.item())

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
