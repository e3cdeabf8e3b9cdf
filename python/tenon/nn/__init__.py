"""Layers, losses and functions of networks, with the names of torch.nn."""
from . import functional, init, utils
from .activations import (CELU, ELU, GELU, GLU, SELU, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, LeakyReLU,
                          LogSigmoid, LogSoftmax, Mish, PReLU, ReLU, ReLU6, Sigmoid, SiLU, Softmax, Softmax2d, Softmin,
                          Softplus, Softshrink, Softsign, Tanh, Tanhshrink, Threshold)
from .attention import (MultiheadAttention, Transformer, TransformerDecoder, TransformerDecoderLayer,
                        TransformerEncoder, TransformerEncoderLayer)
from .containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from .layers import (AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AvgPool1d, AvgPool2d,
                     AvgPool3d, BatchNorm1d, BatchNorm2d, BatchNorm3d, Bilinear, ChannelShuffle, CircularPad1d,
                     CircularPad2d, CircularPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d, Conv1d, Conv2d,
                     Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, CosineSimilarity, Dropout, Dropout1d,
                     Dropout2d, Dropout3d, Embedding, Flatten, GroupNorm, Identity, InstanceNorm1d, InstanceNorm2d,
                     InstanceNorm3d, LayerNorm, Linear, LocalResponseNorm, MaxPool1d, MaxPool2d, MaxPool3d,
                     PairwiseDistance, PixelShuffle, PixelUnshuffle, RMSNorm, ReflectionPad1d, ReflectionPad2d,
                     ReflectionPad3d, ReplicationPad1d, ReplicationPad2d, ReplicationPad3d, Unflatten, Unfold,
                     Upsample, UpsamplingBilinear2d, UpsamplingNearest2d, ZeroPad1d, ZeroPad2d, ZeroPad3d)
from .losses import (BCELoss, BCEWithLogitsLoss, CosineEmbeddingLoss, CrossEntropyLoss, GaussianNLLLoss,
                     HingeEmbeddingLoss, HuberLoss, KLDivLoss, L1Loss, MarginRankingLoss, MSELoss,
                     MultiLabelSoftMarginLoss, NLLLoss, PoissonNLLLoss, SmoothL1Loss, SoftMarginLoss, TripletMarginLoss)
from .module import Module
from .parameter import Parameter
from .recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell

__all__ = [name for name in dir() if name[0].isupper()] + ["functional", "init", "utils"]
