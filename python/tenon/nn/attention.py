"""Attention and transformers, with the names and arguments of torch.nn."""
from __future__ import annotations

import copy
import math
from typing import Any, Callable

from .. import _c
from .._dtypes import bool_
from .._tensor import Tensor
from . import functional as F
from . import init
from .containers import ModuleList
from .layers import Dropout, LayerNorm, Linear, _empty
from .module import Module, Parameter

__all__ = ["MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
           "TransformerEncoderLayer"]


def _visible(mask: Tensor | None) -> Tensor | None:
    """A mask of torch.nn, whose True hides a key, as one of attention, whose True shows it; floats are added."""
    return _c.logical_not(mask) if mask is not None and mask.dtype is bool_ else mask


def _both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """A mask that applies two masks."""
    if a is None or b is None:
        return b if a is None else a
    if a.dtype is bool_ and b.dtype is bool_:
        return a & b
    a, b = (_c.masked_fill(_c.zeros("float32", m.shape, context=m.context), _c.logical_not(m), -math.inf)
            if m.dtype is bool_ else m for m in (a, b))
    return a + b


class MultiheadAttention(Module):
    """Attention of several heads, each over a part of the width."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if add_bias_kv or add_zero_attn:
            raise NotImplementedError("MultiheadAttention: add_bias_kv, add_zero_attn")
        if embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: a width of {embed_dim} cannot be divided into {num_heads} heads")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.head_dim = embed_dim // num_heads
        self.in_proj_weight: Parameter | None
        self.q_proj_weight: Parameter | None
        self.k_proj_weight: Parameter | None
        self.v_proj_weight: Parameter | None
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = _empty((3 * embed_dim, embed_dim), device, dtype)
            self.q_proj_weight = self.k_proj_weight = self.v_proj_weight = None
        else:
            self.q_proj_weight = _empty((embed_dim, embed_dim), device, dtype)
            self.k_proj_weight = _empty((embed_dim, self.kdim), device, dtype)
            self.v_proj_weight = _empty((embed_dim, self.vdim), device, dtype)
            self.in_proj_weight = None
        self.in_proj_bias = _empty((3 * embed_dim,), device, dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for w in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if w is not None:
                init.xavier_uniform_(w)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def _project(self, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        e = self.embed_dim
        if self.in_proj_weight is not None and q is k and k is v:
            all_three = _c.linear(q, self.in_proj_weight, self.in_proj_bias)
            return [_c.slice(all_three, -1, i * e, (i + 1) * e, 1) for i in range(3)]
        part = lambda t, i: None if t is None else _c.slice(t, 0, i * e, (i + 1) * e, 1)  # noqa: E731
        weights = ([part(self.in_proj_weight, i) for i in range(3)] if self.in_proj_weight is not None
                   else [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight])
        return [_c.linear(x, w, part(self.in_proj_bias, i)) for i, (x, w) in enumerate(zip((q, k, v), weights))]

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
                need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """The outputs, and the weights of the keys, which are computed if they are used."""
        single = query.ndim == 2
        same = query is key and key is value
        if single:
            query, key, value = (_c.unsqueeze(x, 0) for x in (query, key, value))
        elif not self.batch_first:
            query, key, value = (_c.transpose(x, 0, 1) for x in (query, key, value))
        if same:
            key = value = query
        q, k, v = self._project(query, key, value)
        b, t, h, d = q.shape[0], q.shape[1], self.num_heads, self.head_dim
        q, k, v = (_c.transpose(_c.reshape(x, (b, x.shape[1], h, d)), 1, 2) for x in (q, k, v))
        mask = _visible(attn_mask)
        if mask is not None and mask.ndim == 3:
            mask = _c.reshape(mask, (b, h) + mask.shape[1:])
        if key_padding_mask is not None:
            padding = key_padding_mask if not single else _c.unsqueeze(key_padding_mask, 0)
            mask = _both(mask, _c.unsqueeze(_c.unsqueeze(_visible(padding), 1), 1))
        causal = is_causal and mask is None
        p = self.dropout if self.training else 0.0
        weights = self._weights(q, k, mask, causal, p) if need_weights else None
        if need_weights and p:  # the weights that dropout has left are those of the output
            y = _c.matmul(weights, v)
        else:
            y = _c.attention(q, k, v, mask=mask, causal=causal, dropout=p)
        y = self.out_proj(_c.reshape(_c.transpose(y, 1, 2), (b, t, h * d)))
        if weights is not None and average_attn_weights:
            weights = _c.mean(weights, 1)
        if single:
            return _c.squeeze(y, 0), None if weights is None else _c.squeeze(weights, 0)
        return (y if self.batch_first else _c.transpose(y, 0, 1)), weights

    def _weights(self, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, p: float) -> Tensor:
        scores = _c.matmul(q, _c.transpose(k, -1, -2)) / math.sqrt(self.head_dim)
        if causal:
            t, s = scores.shape[-2:]
            mask = _c.tril(_c.ones("bool", (t, s), context=q.context), 0)
        if mask is not None:
            scores = _c.masked_fill(scores, _c.logical_not(mask), -math.inf) if mask.dtype is bool_ else scores + mask
        return _c.dropout(_c.softmax(scores, -1), p, p > 0)


def _activation(f: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if isinstance(f, str):
        found = {"relu": _c.relu, "gelu": _c.gelu}.get(f)
        if found is None:
            raise RuntimeError(f"activation should be relu or gelu, not {f}")
        return found
    return f


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward part, each with norm and residual."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        to = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **to)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **to)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **to)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **to)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **to)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:
        attend = lambda x: self.dropout1(self.self_attn(  # noqa: E731
            x, x, x, attn_mask=src_mask, key_padding_mask=src_key_padding_mask, need_weights=False,
            is_causal=is_causal)[0])
        if self.norm_first:
            x = src + attend(self.norm1(src))
            return x + self._feed(self.norm2(x))
        x = self.norm1(src + attend(src))
        return self.norm2(x + self._feed(x))

    def _feed(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(Module):
    """Self-attention, attention to the encoder's output, and a feed-forward part, each with norm and residual."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        to = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **to)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first,
                                                 **to)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **to)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **to)
        self.norm_first = norm_first
        self.norm1, self.norm2, self.norm3 = (LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **to) for _ in range(3))
        self.dropout1, self.dropout2, self.dropout3 = (Dropout(dropout) for _ in range(3))
        self.activation = _activation(activation)

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool = False, memory_is_causal: bool = False) -> Tensor:
        attend = lambda x: self.dropout1(self.self_attn(  # noqa: E731
            x, x, x, attn_mask=tgt_mask, key_padding_mask=tgt_key_padding_mask, need_weights=False,
            is_causal=tgt_is_causal)[0])
        look = lambda x: self.dropout2(self.multihead_attn(  # noqa: E731
            x, memory, memory, attn_mask=memory_mask, key_padding_mask=memory_key_padding_mask, need_weights=False,
            is_causal=memory_is_causal)[0])
        feed = lambda x: self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))  # noqa: E731
        if self.norm_first:
            x = tgt + attend(self.norm1(tgt))
            x = x + look(self.norm2(x))
            return x + feed(self.norm3(x))
        x = self.norm1(tgt + attend(tgt))
        x = self.norm2(x + look(x))
        return self.norm3(x + feed(x))


class TransformerEncoder(Module):
    """num_layers copies of an encoder layer, one after the other, and a norm."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def forward(self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool | None = None) -> Tensor:
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """num_layers copies of a decoder layer, one after the other, and a norm."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                        bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
                 custom_encoder: Module | None = None, custom_decoder: Module | None = None,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        same: Any = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
                     bias, device, dtype)
        norms = [LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype) for _ in range(2)]
        encoder, decoder = TransformerEncoderLayer(*same), TransformerDecoderLayer(*same)
        self.encoder = custom_encoder or TransformerEncoder(encoder, num_encoder_layers, norms[0])
        self.decoder = custom_decoder or TransformerDecoder(decoder, num_decoder_layers, norms[1])
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """A float mask that hides later places: -inf above the diagonal."""
        from .._functions import full
        return _c.triu(full((sz, sz), -math.inf, "float32" if dtype is None else dtype, device=device), 1)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                src_is_causal: bool | None = None, tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> Tensor:
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                            tgt_is_causal, memory_is_causal)
