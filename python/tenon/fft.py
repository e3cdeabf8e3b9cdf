"""Fourier transforms, with the names of torch.fft and numpy.fft. dim and axis mean the same."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from . import _c, _functions as F

if TYPE_CHECKING:
    from ._tensor import Tensor

__all__ = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn",
           "fftshift", "ifftshift", "fftfreq", "rfftfreq"]

_NORMS = {None: 0, "backward": 0, "ortho": 1, "forward": 2}


def _norm(norm: str | None) -> int:
    if norm not in _NORMS:
        raise ValueError(f"norm is {norm!r}; there are backward, ortho and forward")
    return _NORMS[norm]


def _one(name: str, text: str) -> Any:
    call = getattr(_c, name)

    def function(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None, *, axis: int | None = None) -> Tensor:
        if n is not None and n < 1:
            raise ValueError(f"{name}: n is {n}")
        return call(F.asarray(input), n or 0, dim if axis is None else axis, _norm(norm))

    function.__name__, function.__qualname__, function.__doc__ = name, name, text
    return function


def _several(name: str, text: str, last: int | None) -> Any:
    call = getattr(_c, name)

    def function(input: Any, s: Sequence[int] | None = None, dim: Sequence[int] | int | None = (-2, -1) if last else None,
                 norm: str | None = None, *, axes: Sequence[int] | None = None) -> Tensor:
        x = F.asarray(input)
        chosen = axes if axes is not None else dim
        if isinstance(chosen, int):
            chosen = (chosen,)
        if chosen is None:
            chosen = range(-len(s), 0) if s is not None else range(x.ndim)
        chosen = list(chosen)
        sizes = [0] * len(chosen) if s is None else [0 if n == -1 else n for n in s]
        if len(sizes) != len(chosen):
            raise ValueError(f"{name}: {len(sizes)} sizes for {len(chosen)} axes")
        return call(x, sizes, chosen, _norm(norm))

    function.__name__, function.__qualname__, function.__doc__ = name.removesuffix("n") + ("2" if last else "n"), name, text
    return function


fft = _one("fft", "The transform along an axis, of which the first n elements count, filled up with zeros.")
ifft = _one("ifft", "The inverse of fft.")
rfft = _one("rfft", "The first n / 2 + 1 elements of the transform of a real tensor, which determine the others.")
irfft = _one("irfft", "The inverse of rfft: n real elements, 2 (m - 1) of m unless n is given.")
hfft = _one("hfft", "The real transform of a signal of which the first half is given.")
ihfft = _one("ihfft", "The inverse of hfft.")
fft2 = _several("fftn", "The transform along two axes.", 2)
ifft2 = _several("ifftn", "The inverse of fft2.", 2)
rfft2 = _several("rfftn", "The transform of a real tensor along two axes, of which the last is halved.", 2)
irfft2 = _several("irfftn", "The inverse of rfft2.", 2)
fftn = _several("fftn", "The transform along several axes, or all.", None)
ifftn = _several("ifftn", "The inverse of fftn.", None)
rfftn = _several("rfftn", "The transform of a real tensor along several axes, or all, of which the last is halved.", None)
irfftn = _several("irfftn", "The inverse of rfftn.", None)


def _axes(x: Any, dim: Any) -> list[int]:
    return list(range(x.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)


def fftshift(input: Any, dim: Sequence[int] | int | None = None, *, axes: Any = None) -> Tensor:
    """Moves the element of frequency 0 to the middle."""
    x = F.asarray(input)
    return _c.fftshift(x, _axes(x, dim if axes is None else axes))


def ifftshift(input: Any, dim: Sequence[int] | int | None = None, *, axes: Any = None) -> Tensor:
    """The inverse of fftshift."""
    x = F.asarray(input)
    return _c.ifftshift(x, _axes(x, dim if axes is None else axes))


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = "float32", device: Any = None) -> Tensor:
    """The frequencies of the elements of fft, for n samples that are d apart."""
    return _c.fftfreq(dtype, n, d, context=F._on(device))


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = "float32", device: Any = None) -> Tensor:
    """The frequencies of the elements of rfft."""
    return _c.rfftfreq(dtype, n, d, context=F._on(device))
