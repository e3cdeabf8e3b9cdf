"""Models of other programs, as ONNX files: run, trained further, and written."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Sequence, Union

from . import _c
from ._dtypes import DType, DTypeLike, as_dtype
from ._functions import _on, asarray
from ._tensor import Tensor
from .autograd import no_grad
from .models import Network
from .nn.module import Module

__all__ = ["Model", "OnnxLayer", "Port", "load", "save"]

Path = Union[str, "os.PathLike[str]"]


class Port(NamedTuple):
    """What a model says of an input or output. A size is a number, a symbol such as "batch", or None; the shape may be None."""

    name: str
    dtype: DType
    shape: tuple[int | str | None, ...] | None
    optional: bool


class Model:
    """A model that was read from a file: model(x), or model.run(None, {"x": x})."""

    def __init__(self, path: Path, *, device: Any = None) -> None:
        self.path = os.fspath(path)
        self._context = _on(device)
        self._handle = _c.onnx_open(self.path, context=self._context)
        if self._context is None:
            self._context = _c.current_context()
        self.inputs = [Port(*row) for row in _c.onnx_ports(self._handle, False)]
        self.outputs = [Port(*row) for row in _c.onnx_ports(self._handle, True)]

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Tensor]:
        """The outputs that are named, or all, of arrays or tensors by name. Values inside the graph can be named, too."""
        names = [o.name for o in self.outputs] if outputs is None else list(outputs)
        with no_grad():
            return _c.onnx_run(self._handle, list(inputs), [self._here(v) for v in inputs.values()], names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs it on inputs in order, or by name. Returns a tensor, or a tuple if it has several outputs."""
        if len(args) > len(self.inputs):
            raise TypeError(f"the model takes {len(self.inputs)} inputs, not {len(args)}")
        given = {p.name: a for p, a in zip(self.inputs, args)}
        if both := given.keys() & kwargs.keys():
            raise TypeError(f"input {min(both)!r} is given twice")
        y = self.run(None, {**given, **kwargs})
        return y[0] if len(y) == 1 else tuple(y)

    def cast(self, dtype: DTypeLike | str) -> Model:
        """Computes in float16 ("f16") or bfloat16 ("bf16") what is float32 in the file. Inputs and outputs stay as they are."""
        short = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
        _c.onnx_cast(self._handle, as_dtype(short.get(dtype, dtype) if isinstance(dtype, str) else dtype))
        return self

    def layer(self) -> OnnxLayer:
        """The model as a Module whose parameters have the names of the file: it is trained, saved and loaded as any."""
        return OnnxLayer(self)

    def _here(self, x: Any) -> Tensor:
        """An array or tensor on the device of the model."""
        t = x if isinstance(x, _c.Tensor) else asarray(x, device=self._context)
        return t if t.context is self._context else _c.copy_to(t, context=self._context)

    def __repr__(self) -> str:
        takes, gives = (", ".join(f"{p.name}: {p.dtype} {p.shape}" for p in ports) for ports in (self.inputs, self.outputs))
        return f"<tenon.onnx.Model {self.path!r} ({takes}) -> ({gives})>"


class OnnxLayer(Network):
    """A model of a file as a Module. Batch norms that the exporter kept move their statistics in training."""

    def __init__(self, model: Model) -> None:
        super().__init__(_c.onnx_layer(model._handle), ("onnx", (model.path,), {}))
        self.__dict__["model"] = model

    def forward(self, *inputs: Any) -> Any:
        x = [self.model._here(v) for v in inputs]
        y = _c.forward_n(self._handle, x, len(self.model.outputs))
        return y[0] if len(y) == 1 else tuple(y)

    def __deepcopy__(self, memo: dict) -> OnnxLayer:
        copy = memo[id(self)] = _again(*self.__reduce__()[1])
        return copy

    def __reduce__(self) -> Any:
        return _again, (self.model.path, {n: t.detach() for n, t in self.named_tensors()}, self.training)


def _again(path: str, state: dict[str, Tensor], training: bool) -> OnnxLayer:
    """A second layer of a file, with the weights of the first."""
    layer = Model(path).layer()
    layer.load_state_dict(state)
    layer.train(training)
    return layer


def load(path: Path, *, device: Any = None) -> Model:
    """Reads a model of opset 6 or newer; weights that lie beside it must be in its folder."""
    return Model(path, device=device)


def save(function: Module | Callable[..., Any], example: Any, path: Path, *, opset: int = 17, batch: str | None = None,
         beside: bool = False, input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None) -> None:
    """Writes a Module, in evaluation mode, or any function of tensors as an ONNX model.

    example: a tensor, or a tuple of them, whose shapes and dtypes the model takes; values do not matter. batch: a symbol such
    as "N" for the size of axis 0, which is then open. opset: 13 to 21. beside: the weights go to PATH.data. The parameters and
    buffers of a Module keep their names; other tensors that a function reads become constants.
    """
    x = tuple(asarray(v) for v in (example if isinstance(example, (tuple, list)) else (example,)))
    state: dict[int, tuple[str, Tensor]] = {}
    if isinstance(function, Module):
        for name, t in function.state_dict(keep_vars=True).items():
            state.setdefault(id(t), (name, t))
    was = function.training if isinstance(function, Module) else False
    if was:
        function.eval()  # type: ignore[union-attr]
    try:
        with no_grad():
            y = function(*x)
            count = 1 if isinstance(y, _c.Tensor) else len(y)
            _c.onnx_save(function, count, [n for n, _ in state.values()], [t for _, t in state.values()], os.fspath(path), x, opset, beside,
                         batch, input_names, output_names)
    finally:
        if was:
            function.train()  # type: ignore[union-attr]
