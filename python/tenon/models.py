"""Networks of Tenon itself, with the names of torchvision's and Hugging Face's parameters, and generation."""
from __future__ import annotations

import os
from typing import Any, Callable, Sequence

from . import _c
from ._dtypes import as_dtype
from ._functions import _on as _context
from ._tensor import Tensor
from .nn.module import Module, _target
from .nn.parameter import Parameter, rebound

__all__ = ["Network", "Cache", "mlp", "lenet", "resnet", "mobilenet_v2", "vit", "convnext", "unet", "gpt2", "llama", "pretrained", "sample"]


class Layer(Module):
    """A layer of C as a Module: its parameters and buffers are attributes by their names, and it runs as one."""

    def __init__(self, handle: Any) -> None:
        super().__init__()
        self.__dict__["_handle"] = handle
        self.__dict__["training"] = _c.layer_training(handle)

    def forward(self, *inputs: Tensor) -> Tensor:
        if len(inputs) == 1:
            return _c.forward(self._handle, inputs[0])
        return _c.forward_n(self._handle, inputs, 1)[0]

    def _set_training(self, mode: bool) -> None:
        super()._set_training(mode)
        _c.layer_train(self._handle, mode)

    def recompute(self, on: bool = True) -> Layer:
        """Sets whether its inner values are computed again in the backward pass: less memory, more work."""
        _c.layer_recompute(self._handle, on)
        return self

    def freeze(self, on: bool = True) -> Layer:
        """Freezes the parameters, so that they take no gradient, or releases them."""
        self.requires_grad_(not on)
        return self

    def forward_cached(self, x: Tensor, cache: Cache) -> Tensor:
        """Runs it on the tokens x (B, T) that follow those in the cache, and adds them to it; records no gradients."""
        return _c.forward_cached(self._handle, x, cache._handle)


class Network(Layer):
    """A whole network of C as a Module."""

    def __init__(self, handle: Any, recipe: tuple[str, tuple, dict[str, Any]]) -> None:
        super().__init__(handle)
        self.__dict__["_recipe"] = recipe
        for name, t in _c.layer_entries(handle):
            m: Layer = self
            path = ""
            *folders, leaf = name.split(".")
            for part in folders:
                path += ("." if path else "") + part
                child = m.__dict__.get(part)
                if child is None:
                    child = m.__dict__[part] = Layer(_c.layer_find_child(handle, path))
                m = child
            if t.requires_grad:
                m.__dict__[leaf] = _c.Tensor.__new__(Parameter, t)
            else:
                m.register_buffer(leaf, t)

    def _get_name(self) -> str:
        return self._recipe[0]

    def extra_repr(self) -> str:
        return ", ".join([repr(a) for a in self._recipe[1]] + [f"{k}={v!r}" for k, v in self._recipe[2].items()])

    def to(self, *args: Any, device: Any = None, dtype: Any = None) -> Network:
        """Converts its floating-point parameters and buffers to a dtype. A network stays on its device."""
        device, dtype = _target(args, device, dtype)
        here = next(self.parameters()).context
        if device is not None and device is not here and device != here.device:
            raise NotImplementedError(f"a network is made on its device: tn.models.{self._recipe[0]}(..., device=)")
        if dtype is not None:
            _c.layer_cast(self._handle, as_dtype(dtype))
            own = self.state_dict(keep_vars=True)
            for name, t in _c.layer_entries(self._handle):
                _c.rebind(own[name], t)
                rebound(own[name])
        return self

    def load(self, path: Any, **options: Any) -> Network:
        """Loads safetensors by name; options are those of C: prefix, add_prefix, ignore, partial, allow_missing, ..."""
        _c.load_with(self._handle, os.fspath(path), **options)
        return self

    def summary(self, *args: Any) -> Any:
        return super().summary() if not args else CSummary(_c.layer_summary(self._handle, args[0]))

    def cache(self, batch: int, length: int, padding: Sequence[int] | None = None) -> Cache:
        """An empty cache for `batch` rows of up to `length` tokens."""
        return Cache(batch, length, padding, context=next(self.parameters()).context)

    def generate(self, prompts: Any, max_tokens: int = 128, *, temperature: float = 0.0, top_k: int = 0,
                 top_p: float = 1.0, repetition_penalty: float = 1.0, seed: int = 0, stop: int | Sequence[int] = (),
                 length: int = 0, use_cache: bool = True, tokenizer: Any = None,
                 on_token: Callable[[int, int], Any] | None = None) -> Any:
        """Continues prompts: lists of tokens of any lengths, one list, a tensor (B, T) or (T), or texts.

        Returns the new tokens of each row as lists, or of one prompt as one; texts, which need a tokenizer, for texts.
        Temperature 0 takes the most likely token. A row ends before a token of `stop`. on_token(row, token) is called
        with each token, and ends the generation by returning False.
        """
        single = isinstance(prompts, str) or not _is_batch(prompts)
        rows = [prompts] if single else list(prompts)
        texts = bool(rows) and isinstance(rows[0], str)
        if texts:
            if tokenizer is None:
                raise TypeError("generate: texts need a tokenizer")
            rows = [tokenizer.encode(text) for text in rows]
        rows = [r.tolist() if hasattr(r, "tolist") else r for r in rows]
        ends: Any = (stop,) if hasattr(stop, "__index__") else stop
        new = _c.generate(self._handle, rows, max_tokens, length, temperature, top_k, top_p, repetition_penalty, seed,
                          tuple(ends), not use_cache, on_token)
        if texts:
            new = [tokenizer.decode(row) for row in new]
        return new[0] if single else new

    def __deepcopy__(self, memo: dict) -> Network:
        copy = _rebuild(self._recipe, {n: t.detach() for n, t in self.named_tensors()}, self.training)
        memo[id(self)] = copy
        return copy

    def __reduce__(self) -> Any:
        return _rebuild, (self._recipe, {n: t.detach() for n, t in self.named_tensors()}, self.training)

    def named_tensors(self) -> list[tuple[str, Tensor]]:
        """The parameters and buffers by full names, in the order of C."""
        return [*self.named_parameters(), *self.named_buffers()]


class CSummary:
    """The table that C prints of a network: layers, shapes of outputs, parameters."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text.rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape
        return f"<pre>{escape(str(self))}</pre>"


class Cache:
    """Keys and values of the tokens that a network has seen. padding: how many first tokens of each row are none."""

    def __init__(self, batch: int, length: int, padding: Sequence[int] | None = None, *, context: Any = None) -> None:
        self._handle = _c.cache_new(batch, length, padding, context)

    def clear(self) -> None:
        """Forgets all tokens."""
        _c.cache_clear(self._handle)

    def __len__(self) -> int:
        return _c.cache_count(self._handle)


def _is_batch(prompts: Any) -> bool:
    """Whether these are several prompts and not the tokens of one."""
    if isinstance(prompts, _c.Tensor) or hasattr(prompts, "ndim"):
        return prompts.ndim > 1
    return bool(prompts) and not hasattr(prompts[0], "__index__")


def _rebuild(recipe: tuple[str, tuple, dict[str, Any]], state: dict[str, Tensor], training: bool) -> Network:
    name, args, kwargs = recipe
    net = _network(name, args, kwargs, None)
    net.load_state_dict(state)
    net.train(training)
    return net


def _network(name: str, args: tuple, kwargs: dict[str, Any], device: Any) -> Network:
    handle = getattr(_c, name)(*args, **kwargs, context=_context(device))
    return Network(handle, (name, args, kwargs))


def mlp(*sizes: Any, device: Any = None) -> Network:
    """Linear layers of these sizes with relu between them; x is flattened first: mlp(784, 256, 10)."""
    flat = tuple(sizes[0]) if len(sizes) == 1 and not hasattr(sizes[0], "__index__") else tuple(sizes)
    return _network("mlp", (flat,), {}, device)


def lenet(*, device: Any = None) -> Network:
    """A network for 28 x 28 images: two convolutions with batch norm, relu and pools, and two linear layers."""
    return _network("lenet", (), {}, device)


def resnet(depth: int = 18, *, classes: int | None = None, channels: int | None = None, device: Any = None) -> Network:
    """A residual network: depth 18, 34, 50, 101 or 152 for ImageNet's images, with torchvision's names, 20 or 56 for CIFAR's."""
    return _network("resnet", (), _given(depth=depth, classes=classes, channels=channels), device)


def mobilenet_v2(*, classes: int | None = None, channels: int | None = None, dropout: float | None = None,
                 device: Any = None) -> Network:
    """MobileNetV2, with torchvision's names."""
    return _network("mobilenet_v2", (), _given(classes=classes, channels=channels, dropout=dropout), device)


def vit(*, size: int | None = None, patch: int | None = None, layers: int | None = None, heads: int | None = None,
        width: int | None = None, hidden: int | None = None, classes: int | None = None, channels: int | None = None,
        dropout: float | None = None, device: Any = None) -> Network:
    """A vision transformer, with torchvision's names; without options it is vit_b_16."""
    return _network("vit", (), _given(size=size, patch=patch, layers=layers, heads=heads, width=width, hidden=hidden,
                                      classes=classes, channels=channels, dropout=dropout), device)


def convnext(*, blocks: Sequence[int] | None = None, width: int | None = None, classes: int | None = None,
             channels: int | None = None, drop: float | None = None, device: Any = None) -> Network:
    """A ConvNeXt, with torchvision's names; without options it is convnext_tiny."""
    return _network("convnext", (), _given(blocks=blocks, width=width, classes=classes, channels=channels, drop=drop), device)


def unet(*, levels: int | None = None, width: int | None = None, classes: int | None = None, channels: int | None = None,
         device: Any = None) -> Network:
    """A U-Net: from (B, channels, H, W) to (B, classes, H, W)."""
    return _network("unet", (), _given(levels=levels, width=width, classes=classes, channels=channels), device)


def gpt2(*, layers: int | None = None, heads: int | None = None, width: int | None = None, vocab: int | None = None,
         context_length: int | None = None, dropout: float | None = None, device: Any = None) -> Network:
    """GPT-2, from tokens (B, T) to logits (B, T, vocab), with the names of Hugging Face's GPT2LMHeadModel."""
    return _network("gpt2", (), _given(layers=layers, heads=heads, width=width, vocab=vocab,
                                       context_length=context_length, dropout=dropout), device)


def llama(*, layers: int | None = None, heads: int | None = None, width: int | None = None, device: Any = None,
          **options: Any) -> Network:
    """A Llama, from tokens (B, T) to logits (B, T, vocab), with the names of Hugging Face's LlamaForCausalLM.

    The options are those of C: kv_heads, hidden, head_width, vocab, context_length, window, eps, tied, qkv_bias,
    out_bias, mlp_bias, theta and the others of the rotary embedding.
    """
    return _network("llama", (), _given(layers=layers, heads=heads, width=width, **options), device)


def pretrained(folder: Any, *, dtype: Any = None, context_length: int | None = None, device: Any = None) -> Network:
    """The network of a folder of Hugging Face's (gpt2, llama, mistral, qwen2), loaded, in evaluation mode."""
    options = _given(dtype=None if dtype is None else as_dtype(dtype), context_length=context_length)
    return _network("pretrained_with", (os.fspath(folder),), options, device)


def sample(logits: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """Draws an index from logits (..., V); temperature 0 takes the most likely one."""
    return _c.sample(logits, temperature=temperature, top_k=top_k, top_p=top_p)


def _given(**options: Any) -> dict[str, Any]:
    return {k: v for k, v in options.items() if v is not None}
