"""Ops of the program's own: of an expression, of Python functions, or of CUDA text."""
from __future__ import annotations

import pickle
import re
import struct
import sys
import traceback
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from . import _c
from ._dtypes import FORMATS, DType, as_dtype

__all__ = ["op", "Op", "ArrayInfo"]


class ArrayInfo(NamedTuple):
    """The dtype and shape of an input or output of an op."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n



class Op:
    """An op, which is called with its input tensors and, by name, its attributes."""

    def __init__(self, name: str, inputs: int, outputs: int, expr: str | None, grad_expr: str | None, cuda: str | None,
                 kernel: str | None, shape: Callable[..., Any] | None, compute: Callable[..., Any] | None,
                 grad: Callable[..., Any] | None, launch: Callable[..., Any] | None,
                 attrs: Mapping[str, str] | None) -> None:
        self.name, self.inputs, self.outputs = name, inputs, outputs
        self.shape = shape
        self.compute: Any = compute
        self.grad: Any = grad
        self.launch: Any = launch
        self.expr, self.grad_expr, self.cuda = expr, grad_expr, cuda
        self._attrs = None if attrs is None else dict(attrs)
        # A C compiler pads a struct at its end to the alignment of its largest member, as @ with a final count of 0
        # does.
        formats = "".join(self._attrs.values()) if self._attrs else ""
        widest = max(formats, key=struct.calcsize) if formats else ""
        self._struct = struct.Struct("@" + formats + ("0" + widest if widest else ""))
        has = (compute is not None) | (grad is not None) << 1 | (launch is not None) << 2
        fixed = self._attrs is not None or cuda is not None or expr is not None
        self._number = _c.op_new(name, inputs, outputs, expr, grad_expr, cuda, kernel, self, has,
                                 self._struct.size if fixed else -1)

    def __call__(self, *tensors: Any, **attrs: Any) -> Any:
        y = _c.op_call(self._number, tensors, self._pack(attrs))
        return y[0] if self.outputs == 1 else y

    def __repr__(self) -> str:
        return f"<op {self.name} of {self.inputs} input{'s' if self.inputs > 1 else ''}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"the op {self.name} cannot be pickled; make it where it is needed")

    # ---- attributes as bytes

    def _pack(self, attrs: dict[str, Any]) -> bytes:
        if self._attrs is not None:
            if set(attrs) != set(self._attrs):
                raise TypeError(f"{self.name}() takes the attributes {', '.join(self._attrs) or 'none'}, "
                                f"not {', '.join(attrs) or 'none'}")
            return self._struct.pack(*[attrs[n] for n in self._attrs])
        if self.expr is not None or self.cuda is not None:
            if attrs:
                raise TypeError(f"{self.name}() takes no attributes" + (
                    ": name them with their formats in attrs" if self.cuda is not None else ": give numbers as inputs"))
            return b""
        data = pickle.dumps(attrs) if attrs else b""
        return struct.pack("=q", len(data)) + data

    def _unpack(self, data: bytes) -> dict[str, Any]:
        if self._attrs is not None:
            return dict(zip(self._attrs, self._struct.unpack(data)))
        return pickle.loads(data) if data else {}

    # ---- what C calls

    def _shape_rows(self, ins: tuple, data: bytes) -> Sequence[tuple[DType, tuple[int, ...]]]:
        arrays = [ArrayInfo(d, s) for d, s, _ in ins]
        result = arrays[0] if self.shape is None else self.shape(*arrays, **self._unpack(data))
        rows = list(result) if self.outputs > 1 else [result]
        return [self._row(r, arrays) for r in rows]

    def _row(self, r: Any, ins: list[ArrayInfo]) -> tuple[DType, tuple[int, ...]]:
        """An output as its shape function gives it: an ArrayInfo, a shape, or (shape, dtype)."""
        if isinstance(r, ArrayInfo):
            return r.dtype, tuple(r.shape)
        if isinstance(r, tuple) and len(r) == 2 and not hasattr(r[0], "__index__"):
            return as_dtype(r[1]), tuple(r[0])
        return ins[0].dtype, tuple(r)

    def _run_compute(self, ins: tuple, outs: tuple, data: bytes) -> None:
        arrays = [_array(*a) for a in (*ins, *outs)]
        try:
            self._compute_into(arrays[:self.inputs], arrays[self.inputs:], data)
        except BaseException as e:
            traceback.clear_frames(e.__traceback__)  # what its frames hold of the arrays ends with the call
            raise
        finally:
            self._release(arrays)

    def _compute_into(self, xs: list[Any], ys: list[Any], data: bytes) -> None:
        result = self.compute(*xs, out=ys[0] if self.outputs == 1 else tuple(ys), **self._unpack(data))
        if result is not None:
            for y, r in zip(ys, [result] if self.outputs == 1 else result):
                _fill(y, r)

    def _release(self, arrays: list[Any]) -> None:
        """Ends memoryviews. Arrays of NumPy cannot be ended: one that is held elsewhere is an error."""
        while arrays:
            array = arrays.pop()
            if isinstance(array, memoryview):
                array.release()
            elif sys.getrefcount(array) > 2:  # the variable, and the argument
                raise RuntimeError(f"{self.name}: compute has kept one of its arrays, whose memory ends with the call")

    def _run_grad(self, xs: tuple, ys: tuple, gys: tuple, data: bytes) -> tuple:
        y, gy = (ys[0], gys[0]) if self.outputs == 1 else (ys, gys)
        result = self.grad(gy, y, *xs, **self._unpack(data))
        result = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if len(result) != self.inputs:
            raise ValueError(f"{self.name}: grad returned {len(result)} gradients for {self.inputs} inputs")
        for g in result:
            if g is not None and not isinstance(g, _c.Tensor):
                raise TypeError(f"{self.name}: grad returns tensors and None, not {type(g).__name__}")
        return result

    def _run_launch(self, ins: tuple, outs: tuple, data: bytes) -> tuple[int, ...]:
        xs, ys = [ArrayInfo(d, s) for d, s, _ in ins], [ArrayInfo(d, s) for d, s, _ in outs]
        grid, block, *shared = self.launch(*xs, out=ys[0] if self.outputs == 1 else tuple(ys), **self._unpack(data))
        three = lambda v: ((v,) if hasattr(v, "__index__") else tuple(v)) + (1, 1)  # noqa: E731
        return (*three(grid)[:3], *three(block)[:3], shared[0] if shared else 0)


def _array(dtype: DType, shape: tuple[int, ...], memory: memoryview) -> Any:
    """An array of NumPy over the memory, or a memoryview where NumPy is not there; bfloat16 as its bits."""
    format: Any = FORMATS.get(dtype.name, "H" if dtype.itemsize == 2 else "B")
    view = memory.cast(format, shape=shape) if shape and 0 not in shape else memory.cast(format)
    try:
        import numpy  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return view
    array = numpy.asarray(view)
    return array if array.shape == shape else array.reshape(shape)  # of no axes, or without elements


def _fill(y: Any, values: Any) -> None:
    """Writes what compute has returned into the memory of an output."""
    if isinstance(y, memoryview):
        data = memoryview(values).cast("B") if not isinstance(values, (int, float)) else struct.pack(y.format, values)
        y.cast("B")[:] = data
    else:
        y[...] = values


_expressions: dict[tuple, Op] = {}


def op(expr: str | None = None, grad_expr: str | None = None, *, name: str | None = None, inputs: int | None = None,
       outputs: int = 1, shape: Callable[..., Any] | None = None, compute: Callable[..., Any] | None = None,
       grad: Callable[..., Any] | None = None, cuda: str | None = None, kernel: str | None = None,
       launch: Callable[..., Any] | None = None, attrs: Mapping[str, str] | None = None) -> Op:
    """Makes an op of the program's own, to be called with tensors.

    Of an expression, which is fused as built-in ops are, in the inputs a, b, c or x0 .. x7; grad_expr, if given, has a
    gradient for each input, separated by semicolons, and may use g, the gradient of the result, and y, the result:

        leaky = tn.op("a > 0 ? a : b * a")

    Of Python functions. shape(*inputs, **attributes) returns the shape, or (shape, dtype), of the output, or a list of
    them; without it the output is as the first input. compute(*inputs, out, **attributes) gets arrays of NumPy, or
    memoryviews where that is not there, and writes into out, or returns the values. grad(gy, y, *inputs, **attributes)
    records ops and returns a gradient for each input, or None for none of it. Attributes are keywords of the call.

    Of CUDA text, the text of a .cu file whose `kernel` (the op's name, without it) runs on a GPU instead of compute;
    attrs are the members of the kernel's last parameter, a struct, by their formats in the module struct: {"eps": "f"}.
    launch(*inputs, out, **attributes) returns (grid, block) or (grid, block, shared): numbers of blocks and threads,
    and bytes.
    """
    if expr is not None:
        if shape or compute or grad or cuda or kernel or launch or attrs is not None or outputs != 1:
            raise TypeError("op: an expression takes no functions, no CUDA text and no attributes")
        inputs = _inputs_of(expr) if inputs is None else inputs
        key = (name, expr, grad_expr, inputs)
        if key not in _expressions:
            _expressions[key] = Op(name or "op", inputs, 1, expr, grad_expr, None, None, None, None, None, None, None)
        return _expressions[key]
    if compute is None and cuda is None:
        raise TypeError("op: an expression, compute or cuda is needed")
    if grad_expr is not None:
        raise TypeError("op: grad_expr goes with an expression; grad is a function")
    if inputs is None:
        if cuda is not None:
            found = re.findall(r"tn::in<(\d+)>", cuda)
            inputs = max(map(int, found)) + 1 if found else 0
        else:
            inputs = _positional(compute)
        if not inputs:
            raise TypeError("op: say the number of inputs")
    name = name or kernel or getattr(compute, "__name__", "op").replace("<lambda>", "op")
    return Op(name, inputs, outputs, None, None, cuda, kernel, shape, compute, grad, launch, attrs)


def _inputs_of(expr: str) -> int:
    """How many inputs an expression has: one more than the highest that it names."""
    names = set(re.findall(r"(?<![\w.])([abc]|x[0-7])(?!\w)", expr))
    places = ["abc".index(n) if n in "abc" else int(n[1]) for n in names]
    return max(places, default=0) + 1


def _positional(f: Any) -> int:
    """The number of its parameters that are given by place, without those that have defaults."""
    code = getattr(f, "__code__", None)
    if code is None or code.co_flags & 4:  # *args
        return 0
    names = code.co_varnames[:code.co_argcount - len(f.__defaults__ or ())]
    return len([n for n in names if n not in ("self", "out")])
