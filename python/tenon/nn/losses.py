"""Losses as modules, with the names and arguments of torch.nn."""
from __future__ import annotations

from typing import Any, Callable

from .._tensor import Tensor
from . import functional as F
from .module import Module

__all__ = ["BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CTCLoss", "CrossEntropyLoss", "GaussianNLLLoss",
           "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MarginRankingLoss", "MSELoss",
           "MultiLabelSoftMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
           "TripletMarginLoss"]


class _Loss(Module):
    """A loss, whose arguments are those of its function and have these defaults. Tensors among them are buffers."""

    ARGUMENTS: dict[str, Any] = {}
    function: Callable[..., Tensor]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        # PyTorch's obsolete size_average and reduce come between weight and the rest: only weight may be given by
        # place.
        places = [n for n in ("weight",) if n in self.ARGUMENTS]
        if len(args) > len(places):
            raise TypeError(f"{type(self).__name__}: arguments after {places or 'none'} must be named")
        given = dict(zip(places, args)) | kwargs
        for name in given:
            if name not in self.ARGUMENTS:
                raise TypeError(f"{type(self).__name__} has no argument {name}")
        F._reduction(given.get("reduction", "mean")) if given.get("reduction") != "batchmean" else None
        for name, default in self.ARGUMENTS.items():
            value = given.get(name, default)
            if name in ("weight", "pos_weight"):
                self.register_buffer(name, value)
            else:
                self.__dict__[name] = value

    def forward(self, *tensors: Tensor) -> Tensor:
        return type(self).function(*tensors, **{n: self.__dict__[n] for n in self.ARGUMENTS})


def _loss(name: str, function: Callable[..., Tensor], **arguments: Any) -> type[_Loss]:
    body = {"ARGUMENTS": {**arguments, "reduction": "mean"}, "function": staticmethod(function),
            "__doc__": function.__doc__, "__module__": __name__}
    return type(name, (_Loss,), body)


CrossEntropyLoss = _loss("CrossEntropyLoss", F.cross_entropy, weight=None, ignore_index=-100, label_smoothing=0.0)
CTCLoss = _loss("CTCLoss", F.ctc_loss, blank=0, zero_infinity=False)
NLLLoss = _loss("NLLLoss", F.nll_loss, weight=None, ignore_index=-100)
MSELoss = _loss("MSELoss", F.mse_loss)
L1Loss = _loss("L1Loss", F.l1_loss)
HuberLoss = _loss("HuberLoss", F.huber_loss, delta=1.0)
SmoothL1Loss = _loss("SmoothL1Loss", F.smooth_l1_loss, beta=1.0)
BCELoss = _loss("BCELoss", F.binary_cross_entropy, weight=None)
BCEWithLogitsLoss = _loss("BCEWithLogitsLoss", F.binary_cross_entropy_with_logits, weight=None, pos_weight=None)
KLDivLoss = _loss("KLDivLoss", F.kl_div, log_target=False)
MarginRankingLoss = _loss("MarginRankingLoss", F.margin_ranking_loss, margin=0.0)
HingeEmbeddingLoss = _loss("HingeEmbeddingLoss", F.hinge_embedding_loss, margin=1.0)
SoftMarginLoss = _loss("SoftMarginLoss", F.soft_margin_loss)
MultiLabelSoftMarginLoss = _loss("MultiLabelSoftMarginLoss", F.multilabel_soft_margin_loss, weight=None)
CosineEmbeddingLoss = _loss("CosineEmbeddingLoss", F.cosine_embedding_loss, margin=0.0)
TripletMarginLoss = _loss("TripletMarginLoss", F.triplet_margin_loss, margin=1.0, p=2.0, eps=1e-6)
PoissonNLLLoss = _loss("PoissonNLLLoss", F.poisson_nll_loss, log_input=True, eps=1e-8)
GaussianNLLLoss = _loss("GaussianNLLLoss", F.gaussian_nll_loss, full=False, eps=1e-6)
