"""Recurrent layers, with the names and arguments of torch.nn. A layer is one loop of a plan, whatever the number of steps."""
from __future__ import annotations

import math
from typing import Any, Callable

from .. import _c
from .._tensor import Tensor
from . import init
from .layers import _empty
from .module import Module

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]


# A step: from the gates of the input, W_ih x + b_ih, the state (h,) or (h, c) and the gates' weights of h, to the new
# state.
State = tuple[Tensor, ...]
Step = Callable[[Tensor, State, Tensor, Any], State]


def _parts(gates: Tensor, n: int) -> list[Tensor]:
    size = gates.shape[-1] // n
    return [_c.slice(gates, -1, i * size, (i + 1) * size, 1) for i in range(n)]


def _tanh_step(gates: Tensor, state: State, w: Tensor, b: Any) -> State:
    return (_c.tanh(gates + _c.linear(state[0], w, b)),)


def _relu_step(gates: Tensor, state: State, w: Tensor, b: Any) -> State:
    return (_c.relu(gates + _c.linear(state[0], w, b)),)


def _lstm_step(gates: Tensor, state: State, w: Tensor, b: Any) -> State:
    h, c = state
    i, f, g, o = _parts(gates + _c.linear(h, w, b), 4)
    c = _c.sigmoid(f) * c + _c.sigmoid(i) * _c.tanh(g)
    return _c.sigmoid(o) * _c.tanh(c), c


def _gru_step(gates: Tensor, state: State, w: Tensor, b: Any) -> State:
    (h,) = state
    (r, z, n), (hr, hz, hn) = _parts(gates, 3), _parts(_c.linear(h, w, b), 3)
    z = _c.sigmoid(z + hz)
    n = _c.tanh(n + _c.sigmoid(r + hr) * hn)
    return (n + z * (h - n),)


class _Recurrent(Module):
    gates, states, kind = 1, 1, 0  # kind: tn_rnn_kind of C

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if proj_size:
            raise NotImplementedError(f"{type(self).__name__}: proj_size")
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        ways = 2 if bidirectional else 1
        for layer in range(num_layers):
            for way in range(ways):
                width = input_size if layer == 0 else hidden_size * ways
                name = f"_l{layer}" + ("_reverse" if way else "")
                setattr(self, "weight_ih" + name, _empty((self.gates * hidden_size, width), device, dtype))
                setattr(self, "weight_hh" + name, _empty((self.gates * hidden_size, hidden_size), device, dtype))
                if bias:
                    setattr(self, "bias_ih" + name, _empty((self.gates * hidden_size,), device, dtype))
                    setattr(self, "bias_hh" + name, _empty((self.gates * hidden_size,), device, dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def forward(self, input: Tensor, hx: Any = None, lengths: Any = None) -> tuple[Tensor, Any]:
        """The outputs of all steps, and the last state: h, or (h, c) of an LSTM. lengths, one for each sequence, is what
        a packed sequence says in PyTorch: outputs behind the end are 0, and the state is that at the end."""
        own, weights = self.__dict__, []
        for layer in range(self.num_layers):
            for way in ["", "_reverse"] if self.bidirectional else [""]:
                for part in ["weight_ih", "weight_hh"] + (["bias_ih", "bias_hh"] if self.bias else []):
                    weights.append(own[f"{part}_l{layer}{way}"])
        given = {} if hx is None else dict(zip("hc", hx if self.states > 1 else (hx,)))
        if lengths is not None:
            given["lengths"] = lengths
        y = _c.rnn(input, weights, kind=self.kind, layers=self.num_layers, bidirectional=self.bidirectional,
                   batch_first=self.batch_first, no_bias=not self.bias, training=self.training,
                   dropout=float(self.dropout), **given)
        return y["x"], (y["h"], y["c"]) if self.states > 1 else y["h"]

    def extra_repr(self) -> str:
        s = f"{self.input_size}, {self.hidden_size}"
        for name, usual in [("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0),
                            ("bidirectional", False)]:
            if getattr(self, name) != usual:
                s += f", {name}={getattr(self, name)}"
        return s


class RNN(_Recurrent):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
                 bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 device: Any = None, dtype: Any = None) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: nonlinearity must be tanh or relu, not {nonlinearity!r}")
        self.nonlinearity, self.kind = nonlinearity, 1 if nonlinearity == "relu" else 0
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device,
                         dtype)


class LSTM(_Recurrent):
    """Long short-term memory: four gates, and a state of h and c."""

    gates, states, kind = 4, 2, 2


class GRU(_Recurrent):
    """Gated recurrent units: three gates."""

    gates, kind = 3, 3


class _Cell(Module):
    gates, states = 1, 1
    step: Step = staticmethod(_tanh_step)  # type: ignore[assignment]

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.weight_ih = _empty((self.gates * hidden_size, input_size), device, dtype)
        self.weight_hh = _empty((self.gates * hidden_size, hidden_size), device, dtype)
        self.bias_ih = _empty((self.gates * hidden_size,), device, dtype) if bias else None
        self.bias_hh = _empty((self.gates * hidden_size,), device, dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def _step(self) -> Step:
        return type(self).step

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """The new state: h, or (h, c) of an LSTMCell."""
        if hx is None:
            zeros = _c.zeros(input.dtype, input.shape[:-1] + (self.hidden_size,), context=input.context)
            state: State = (zeros,) * self.states
        else:
            state = hx if self.states > 1 else (hx,)
        new = self._step()(_c.linear(input, self.weight_ih, self.bias_ih), state, self.weight_hh, self.bias_hh)
        return new if self.states > 1 else new[0]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else f", bias={self.bias}")


class RNNCell(_Cell):
    """One step of an RNN."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
                 device: Any = None, dtype: Any = None) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: nonlinearity must be tanh or relu, not {nonlinearity!r}")
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def _step(self) -> Step:
        return _relu_step if self.nonlinearity == "relu" else _tanh_step


class LSTMCell(_Cell):
    """One step of an LSTM."""

    gates, states = 4, 2
    step: Step = staticmethod(_lstm_step)  # type: ignore[assignment]


class GRUCell(_Cell):
    """One step of a GRU."""

    gates = 3
    step: Step = staticmethod(_gru_step)  # type: ignore[assignment]
