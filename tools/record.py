#!/usr/bin/env python3
"""Records how PyTorch trains small networks, for test/training/test_recordings.c to compare with.

    pip install torch torchvision transformers && python3 tools/record.py [NAME]...

writes test/recordings/*.safetensors, or those named. Weights and batches are not stored: both sides compute them from
names by the same integer hash, exactly. Of each model a file has

    f32.loss            the first loss, computed in f32
    f32.grad.NAME       the gradient of each parameter after it
    OPTIM.loss          ten losses of training in f64, each with a batch of its own
    OPTIM.param.NAME    the parameters after that

of models of Hugging Face's also f32.logits, the first logits. rope.safetensors has cosines and sines of
their rotary embeddings with every scaling, torchvision.safetensors the logits of its networks, some of
them with fewer layers, in training mode, how many parameters they have, and a picture resized by it; float8.safetensors what 8-bit floats are and what numbers become them;
maps.safetensors and arrays.safetensors values of other functions.

A tensor of more than BUCKETS elements is stored as a sketch: elements are added up, with random signs,
in random buckets. That is linear and keeps the Euclidean norm but for a few percent, so the norm of a
difference of tensors can be had from their sketches.
"""
import json
import math
import pathlib
import struct
import sys

import torch
from torch import nn
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from peers import lenet  # the same network that make bench measures

BUCKETS = 512
STEPS = 10
OUT = ROOT / "test" / "recordings"



# ---- rules that PyTorch does not have


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (a, b), lr = group["betas"], group["lr"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                move = torch.sign(a * m + (1 - a) * p.grad) + group["weight_decay"] * p
                p -= lr * move
                m.mul_(b).add_(p.grad, alpha=1 - b)


class LAMB(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, t=0))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            a, b = group["betas"]
            group["t"] += 1
            for p in group["params"]:
                m, v = self.state[p].setdefault("mv", (torch.zeros_like(p), torch.zeros_like(p)))
                m.lerp_(p.grad, 1 - a)
                v.lerp_(p.grad.square(), 1 - b)
                r = m / (1 - a ** group["t"]) / ((v / (1 - b ** group["t"])).sqrt() + group["eps"])
                r += group["weight_decay"] * p
                trust = p.norm() / r.norm() if p.norm() > 0 and r.norm() > 0 else 1.0
                p -= group["lr"] * trust * r


class Muon(torch.optim.Optimizer):
    """PyTorch's for matrices, but for its bf16, which is noise here, and AdamW for the rest."""

    def __init__(self, params, lr, weight_decay):
        params = list(params)
        super().__init__([p for p in params if p.dim() == 2], dict(lr=lr, weight_decay=weight_decay))
        self.rest = torch.optim.AdamW([p for p in params if p.dim() < 2], lr=lr, weight_decay=weight_decay)

    @torch.no_grad()
    def step(self):
        self.rest.step()
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p)).lerp_(p.grad, 0.05)
                x = p.grad.lerp(m, 0.95)
                x = x / x.norm()
                for _ in range(5):
                    s = x @ x.T
                    x = 3.4445 * x + (-4.775 * s + 2.0315 * s @ s) @ x
                p *= 1 - group["lr"] * group["weight_decay"]
                p -= group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5 * x

    def zero_grad(self):
        super().zero_grad()
        self.rest.zero_grad()


# Numbers that f32 holds exactly, where they are not the defaults.
OPTIMS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1 / 16),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=1 / 32, momentum=7 / 8, weight_decay=1 / 64, nesterov=True),
    "sgd_dampened": lambda p: torch.optim.SGD(p, lr=1 / 16, momentum=3 / 4, dampening=1 / 4),
    "adam": lambda p: torch.optim.Adam(p),
    "adam_decay": lambda p: torch.optim.Adam(p, lr=1 / 128, betas=(7 / 8, 31 / 32), eps=2**-20, weight_decay=1 / 64),
    "adamw": lambda p: torch.optim.AdamW(p),
    "adamw_decay": lambda p: torch.optim.AdamW(p, lr=1 / 128, betas=(7 / 8, 31 / 32), eps=2**-20, weight_decay=1 / 4),
    "rmsprop": lambda p: torch.optim.RMSprop(p),
    "rmsprop_centered": lambda p: torch.optim.RMSprop(
        p, lr=1 / 256, alpha=7 / 8, eps=2**-20, momentum=1 / 2, weight_decay=1 / 64, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p),
    "adagrad_decay": lambda p: torch.optim.Adagrad(
        p, lr=1 / 64, lr_decay=1 / 8, initial_accumulator_value=1 / 4, eps=2**-20, weight_decay=1 / 64),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "adadelta_decay": lambda p: torch.optim.Adadelta(p, lr=1 / 2, rho=7 / 8, eps=2**-20, weight_decay=1 / 64),
    "nadam": lambda p: torch.optim.NAdam(p),
    "nadam_decay": lambda p: torch.optim.NAdam(
        p, lr=1 / 128, betas=(7 / 8, 31 / 32), eps=2**-20, weight_decay=1 / 64, momentum_decay=1 / 128),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=1 / 4, max_iter=5, history_size=4),
    "lbfgs_wolfe": lambda p: torch.optim.LBFGS(p, max_iter=6, line_search_fn="strong_wolfe"),
    "lion": lambda p: Lion(p, lr=1 / 1024, betas=(7 / 8, 31 / 32), weight_decay=1 / 4),
    "lamb": lambda p: LAMB(p, lr=1 / 128, betas=(7 / 8, 31 / 32), eps=2**-20, weight_decay=1 / 64),
    "muon": lambda p: Muon(p, lr=1 / 64, weight_decay=1 / 4),
}


# ---- numbers from names


def hashes(name, n):
    """n numbers below 2**32: FNV-1a of the name, then MurmurHash's finish of each place."""
    seed = 0x811C9DC5
    for byte in name.encode():
        seed = (seed ^ byte) * 0x01000193 & 0xFFFFFFFF
    h = seed + torch.arange(n) * 0x9E3779B9 & 0xFFFFFFFF
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def units(name, shape):
    """Numbers in [-1, 1), multiples of 2**-15."""
    return ((hashes(name, math.prod(shape)) >> 16).double() / 2**15 - 1).reshape(shape)


def initial(name, p):
    """Weights scaled by about the root of their fan, those of norms about 1, small biases."""
    u = units(name, p.shape)
    if p.dim() > 1:
        return u * 2.0 ** -math.ceil(math.log2(p.numel() // p.shape[0]) / 2)
    return 1 + u / 4 if name.endswith("weight") else u / 8


def sketch(t):
    t = t.detach().double().flatten()
    if t.numel() <= BUCKETS:
        return t
    h = hashes("sketch", t.numel())
    sign = 1 - 2 * (h >> 31)
    return torch.zeros(BUCKETS, dtype=torch.double).index_add(0, h % BUCKETS, t * sign)


# ---- models


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 10))


def conv3(i, o, stride=1):
    return nn.Conv2d(i, o, 3, stride, padding=1, bias=False)


class ResidualBlock(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1, self.bn1 = conv3(i, o, stride), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = conv3(o, o), nn.BatchNorm2d(o)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if x.shape != y.shape:
            pad = (y.shape[1] - x.shape[1]) // 2
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, pad, pad))
        return F.relu(x + y)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 16), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(ResidualBlock(16, 16, 1) for _ in range(3)))
        self.layer2 = nn.Sequential(ResidualBlock(16, 32, 2), ResidualBlock(32, 32, 1), ResidualBlock(32, 32, 1))
        self.layer3 = nn.Sequential(ResidualBlock(32, 64, 2), ResidualBlock(64, 64, 1), ResidualBlock(64, 64, 1))
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        y = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.linear(y.mean((2, 3)))


class Affine(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(i, o)), nn.Parameter(torch.zeros(o))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, Affine(width, 3 * width), Affine(width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.heads, -1).transpose(1, 2) for y in self.c_attn(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": Affine(width, 4 * width), "c_proj": Affine(4 * width, width)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers=2, heads=2, width=32, vocab=97, context=16):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab, width), "wpe": nn.Embedding(context, width),
            "h": nn.Sequential(*(Block(width, heads) for _ in range(layers))), "ln_f": nn.LayerNorm(width)})

    def forward(self, tokens):
        t = self.transformer
        x = t.wte(tokens) + t.wpe(torch.arange(tokens.shape[1]))
        return (t.ln_f(t.h(x)) @ t.wte.weight.T).transpose(1, 2)  # classes second, for the loss


def hugging_face(kind, **sizes):
    """A network of transformers, whose forward returns logits with classes second."""
    import transformers

    config = getattr(transformers, kind + "Config")(attn_implementation="sdpa", **sizes)
    net = getattr(transformers, {"GPT2": "GPT2LMHeadModel"}.get(kind, kind + "ForCausalLM"))(config).eval()
    logits = net.forward
    net.forward = lambda tokens: logits(tokens).logits.transpose(1, 2)
    return net


# Eight heads of queries share one of keys and values, as in TinyLlama.
def tinyllama():
    return hugging_face("Llama", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=8,
                        num_key_value_heads=1, vocab_size=97, max_position_embeddings=16, rms_norm_eps=1e-5)


# Nine heads on three, and a tied output layer, as in SmolLM; with the scaling of Llama 3.
def smollm():
    rope = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8}
    return hugging_face("Llama", hidden_size=36, intermediate_size=40, num_hidden_layers=1, num_attention_heads=9,
                        num_key_value_heads=3, vocab_size=97, max_position_embeddings=16, tie_word_embeddings=True,
                        rms_norm_eps=1e-5, rope_parameters=rope)


# Biases of queries, keys and values.
def qwen2():
    return hugging_face("Qwen2", hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                        num_key_value_heads=1, vocab_size=97, max_position_embeddings=16, rms_norm_eps=1e-6)


# A window of 5 tokens.
def mistral():
    return hugging_face("Mistral", hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                        num_key_value_heads=1, vocab_size=97, max_position_embeddings=16, rms_norm_eps=1e-5,
                        sliding_window=5)


def gpt2_hf():
    return hugging_face("GPT2", n_embd=16, n_layer=2, n_head=2, vocab_size=97, n_positions=16)


# name: network, shape of a batch, shape of its targets, classes, optimizers
MODELS = {
    "mlp": (mlp, (8, 1, 28, 28), (8,), 10, list(OPTIMS)),
    "lenet": (lenet, (4, 1, 28, 28), (4,), 10, ["adam_decay"]),
    "resnet20": (ResNet20, (4, 3, 32, 32), (4,), 10, ["sgd_nesterov"]),
    "gpt2": (GPT2, (4, 16), (4, 16), 97, ["adamw_decay"]),
    "gpt2_hf": (gpt2_hf, (2, 16), (2, 16), 97, []),
    "tinyllama": (tinyllama, (4, 16), (4, 16), 97, ["adamw_decay"]),
    "smollm": (smollm, (4, 16), (4, 16), 97, []),
    "qwen2": (qwen2, (2, 16), (2, 16), 97, []),
    "mistral": (mistral, (2, 16), (2, 16), 97, []),
}
HUGGING_FACE = ("gpt2_hf", "tinyllama", "smollm", "qwen2", "mistral")


# ---- recording


def in_f64(net):
    """Replaces what Hugging Face's networks compute in f32 for every dtype: angles, and root mean squares."""
    D, theta = net.config.head_dim, net.config.rope_parameters["rope_theta"]

    def rotate(x, position_ids):
        angle = position_ids[..., None].double() * theta ** -(torch.arange(0, D, 2).double() / D)
        return angle.cos().repeat(1, 1, 2), angle.sin().repeat(1, 1, 2)

    net.model.rotary_emb.forward = rotate
    for norm in net.modules():
        if hasattr(norm, "variance_epsilon"):
            norm.forward = lambda x, self=norm: F.rms_norm(x, x.shape[-1:], self.weight, self.variance_epsilon)


def fresh(make, dtype):
    net = make().to(dtype)
    if dtype == torch.float64 and hasattr(net, "model"):
        in_f64(net)
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(initial(name, p))
    return net


def loss_of(net, model, step, dtype):
    _, shape, targets, classes, _ = MODELS[model]
    y = (hashes(f"y{step}", math.prod(targets)) % classes).reshape(targets)
    return F.cross_entropy(net(batch(model, step, dtype)), y)


def batch(model, step, dtype):
    _, shape, _, classes, _ = MODELS[model]
    if len(shape) == 2:
        return (hashes(f"x{step}", math.prod(shape)) % classes).reshape(shape)
    return units(f"x{step}", shape).to(dtype)


def record(model):
    make, _, _, _, optims = MODELS[model]
    net = fresh(make, torch.float32)
    loss = loss_of(net, model, 0, torch.float32)
    loss.backward()
    out = {"f32.loss": loss.reshape(1)}
    out |= {f"f32.grad.{name}": p.grad for name, p in net.named_parameters()}
    if model in HUGGING_FACE:
        out["f32.logits"] = net(batch(model, 0, torch.float32)).transpose(1, 2)
    for name in optims:
        net, losses = fresh(make, torch.float64), []
        optim = OPTIMS[name](net.parameters())
        for step in range(STEPS):
            def closure():
                optim.zero_grad()
                loss = loss_of(net, model, step, torch.float64)
                loss.backward()
                return loss

            if isinstance(optim, torch.optim.LBFGS):  # it calls the function more than once
                losses.append(optim.step(closure))
            else:
                losses.append(closure())
                optim.step()
        out[f"{name}.loss"] = torch.stack(losses)
        out |= {f"{name}.param.{key}": p for key, p in net.named_parameters()}
    return {key: sketch(t) for key, t in out.items()}


def rope():
    """Tables of the rotary embedding of a head of 16, by every scaling: cosines, then sines, of 5 positions."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    at = torch.tensor([[0, 1, 7, 100, 2047]])
    kinds = {
        "default": {"rope_type": "default", "rope_theta": 10000.0},
        "linear": {"rope_type": "linear", "rope_theta": 500000.0, "factor": 4.0},
        "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
        "llama3": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 256},
        "yarn": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 256},
    }
    out = {}
    for name, kind in kinds.items():
        config = LlamaConfig(hidden_size=32, num_attention_heads=2, max_position_embeddings=256, rope_parameters=kind)
        cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), at)
        out[name] = torch.stack([cos[0, :, :8], sin[0, :, :8]]).flatten().double()
    return out


def torchvision_logits():
    import torchvision.models as zoo
    from conv_peers import UNet
    from torchvision.models.convnext import CNBlockConfig
    from torchvision.transforms.v2 import functional as V

    x = units("x0", (2, 3, 64, 64)).float()
    blocks = [CNBlockConfig(16, 32, 1), CNBlockConfig(32, 64, 2), CNBlockConfig(64, 128, 1), CNBlockConfig(128, None, 1)]
    nets = {
        "resnet18": zoo.resnet18, "resnet34": zoo.resnet34, "resnet50": zoo.resnet50,
        "mobilenet_v2": lambda: zoo.mobilenet_v2(dropout=0.0),
        "vit": lambda: zoo.VisionTransformer(image_size=64, patch_size=16, num_layers=2, num_heads=4, hidden_dim=64,
                                             mlp_dim=96, num_classes=30),
        "convnext": lambda: zoo.ConvNeXt(blocks, stochastic_depth_prob=0.0, num_classes=30),
        "unet": lambda: UNet(width=8, levels=3),
    }
    out = {name: sketch(fresh(make, torch.float32)(x)) for name, make in nets.items()}
    whole = [zoo.resnet34, zoo.resnet101, zoo.resnet152, zoo.mobilenet_v2, zoo.vit_b_16, zoo.convnext_tiny]
    out["counts"] = torch.tensor([sum(p.numel() for p in make().parameters()) for make in whole]).double()
    y, x, c = torch.meshgrid(torch.arange(30), torch.arange(40), torch.arange(3), indexing="ij")
    picture = ((7 * x + 13 * y * y + 50 * c) % 256).permute(2, 0, 1).double() / 255
    for size, resize in ((14, 16), (24, 24), (40, 48)):
        out[f"picture{size}"] = V.center_crop(V.resize(picture, [resize], antialias=True), [size]).flatten()
    return out


def float8():
    """All 256 values of each 8-bit float, and numbers at, below and above every boundary between two of
    them with the codes that they become."""
    out, points = {}, [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-30, -1e30]
    for name, dtype in {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}.items():
        values = torch.arange(256, dtype=torch.uint8).view(dtype).double()
        out[f"{name}.values"] = values
        above = values[values >= 0].unique()
        above = above[above.isfinite()]
        for mid in ((above[1:] + above[:-1]) / 2).float().tolist() + [464.0, 480.0, 61440.0, 65536.0]:
            x = torch.tensor(mid)
            around = [torch.nextafter(x, torch.tensor(0.0)), x, torch.nextafter(x, torch.tensor(1e30))]
            points += [sign * v.item() for v in around for sign in (1, -1)]
    x = torch.tensor(points, dtype=torch.float32)
    out["x"] = x.double()
    out["x.e4m3"] = x.to(torch.float8_e4m3fn).view(torch.uint8).double()
    out["x.e5m2"] = x.to(torch.float8_e5m2).view(torch.uint8).double()
    return out


def numbers(shape):
    """Multiples of 1/16 on both sides of 0, no two alike in a row of 101."""
    i = torch.arange(math.prod(shape), dtype=torch.double)
    return ((i * 37 % 101 - 50) / 16).reshape(shape)


def maps():
    """Maps of numbers where functions turn, overflow or are not defined, computed in f64."""
    ends = [0.0, 1e-45, 1e-38, 1e-5, 0.25, 0.5, 0.75, 1.0, 1.0625, 1.5, 2.0, 2.5, 3.0, 4.5, 7.0, 8.0, 9.5, 88.0, 1e4, 1e6 + 0.5,
            2.0**31, 3e38, math.inf]
    x = torch.tensor([sign * v for v in ends for sign in (1, -1)] + [math.nan], dtype=torch.float32)
    a, b = (v.flatten() for v in torch.meshgrid(x, x, indexing="ij"))
    out = {"x": x, "nextafter": torch.nextafter(a, b)}
    x, a, b = x.double(), a.double(), b.double()
    out |= {name: getattr(torch, name)(x) for name in (
        "asin acos sinh cosh asinh acosh atanh log10 erfinv lgamma digamma signbit".split())}
    out |= {name: getattr(torch, name)(a, b) for name in "atan2 hypot logaddexp copysign fmod".split()}
    out["trunc_divide"] = torch.div(a, b, rounding_mode="trunc")
    return {name: v.double() for name, v in out.items()}


def signed(v, columns=True):
    """Vectors of which the sign is not determined, with the largest element of each positive."""
    dim = -2 if columns else -1
    at = v.abs().argmax(dim, keepdim=True)
    return v * v.gather(dim, at).sign()


def factorizations():
    """Linear algebra: of a tall, a square and a symmetric matrix, and of what has no factors. test_recorded_ops.c has the same calls."""
    L = torch.linalg
    tall, square, b = numbers((2, 4, 3)) / 2, numbers((3, 3)) + 2 * torch.eye(3), numbers((2, 3, 4))
    s = tall.mT @ tall + torch.eye(3).double()
    q, r = L.qr(tall)
    w, v = L.eigh(s)
    u, d, vh = L.svd(tall, full_matrices=False)
    indefinite = torch.stack([s[0], torch.diag(torch.tensor([1.0, -2.0, 3.0])).double()])
    found = L.cholesky_ex(indefinite)
    singular = torch.ones(3, 3).double()
    return {
        "cholesky": L.cholesky(s), "cholesky upper": L.cholesky(s, upper=True), "cholesky info": found.info,
        "solve": L.solve(s, b), "solve vector": L.solve(square, b[0, :, 0]), "solve info": L.lu_factor_ex(singular).info,
        "solve triangle": L.solve_triangular(s.triu(), b, upper=True), "inverse": L.inv(s), "det": L.det(s), "det 0": L.det(singular),
        "slogdet": torch.stack(L.slogdet(-s)), "slogdet 0": torch.stack(L.slogdet(singular * 0)),
        "qr q": q, "qr r": r, "qr complete": L.qr(tall, mode="complete").R, "qr wide": L.qr(b).R,
        "eigh": w, "eigh v": signed(v), "svd": d, "svd u": signed(u), "svd v": signed(vh, False), "svdvals": L.svdvals(b),
        "lstsq": L.lstsq(tall, b.mT[:, :, :2]).solution, "pinv": L.pinv(tall), "pinv 1": L.pinv(singular),
        "rank": L.matrix_rank(torch.stack([square, singular, singular * 0])), "power": L.matrix_power(square, -2),
        "norms": torch.stack([L.matrix_norm(square, p) for p in ("fro", "nuc", 1, math.inf, 2, -1, -math.inf, -2)]),
        "vector norms": torch.stack([L.vector_norm(tall[0], p) for p in (0, 1, 3, math.inf, -math.inf)]),
        "cond": torch.stack([L.cond(square, p) for p in (None, "fro", 1)]),
        "sparse": (tall[0].to_sparse() @ b[0]).to_dense(),
    }


def arrays():
    """Functions of tenon/arrays.h over numbers(); test_recorded_ops.c has the same calls."""
    x, y, z = numbers((2, 3, 4)), numbers((2, 4, 3)) / 2, numbers((3, 3))
    out = {
        "einsum 0": torch.einsum("bij,bjk->bik", x, y), "einsum 1": torch.einsum("bij,bjk", x, y),
        "einsum 2": torch.einsum("...ij,...ji->...", x, y), "einsum 3": torch.einsum("ii->i", z),
        "einsum 4": torch.einsum("bij,cji,ij->cb", x, y, x[0]), "einsum 5": torch.einsum("bij->j", x),
        "einsum 6": torch.einsum("i...,i...->...i", x, x), "einsum 7": torch.einsum("bij,j->ib", x, y[0, :, 0]),
        "tensordot": torch.tensordot(x, y, ([2, 0], [1, 0])), "outer": torch.outer(z[0], z[1]),
        "cross": torch.linalg.cross(z, y[0, :3]), "trace": torch.trace(z), "kron": torch.kron(z, y[0, :2, :2]),
        "cosine": F.cosine_similarity(x, x.flip(0), dim=2), "tile": torch.tile(z, (2, 1, 2)),
        "interleave": torch.repeat_interleave(z, torch.tensor([2, 0, 1]), dim=1),
        "isclose": torch.isclose(x, x + 1 / 16, rtol=0.05, atol=0.0),
    }
    ties = torch.floor(x * 2) / 4
    holes = torch.where(x > 2, math.nan, ties)
    at = torch.tensor([[0, 2, 1], [2, 2, 0], [1, 0, 0]])
    for name, pair in {"max": ties.max(2), "cummax": holes.cummax(2), "cummin": ties.cummin(1), "median": holes.median(2),
                       "kthvalue": ties.kthvalue(2, 1), "mode": ties.mode(2)}.items():
        out[name], out[name + " at"] = pair
    for name in ("sum", "mean", "prod", "amax", "amin"):
        for own in (True, False):
            out[f"{name} {own:d}"] = torch.scatter_reduce(z, 0, at, y[0, :3], name, include_self=own)
    values, inverse, counts = torch.unique(ties, return_inverse=True, return_counts=True)
    out |= {
        "quantile": torch.quantile(x, 0.3, dim=2), "quantile nan": torch.quantile(holes, 0.5, dim=1),
        "searched": torch.searchsorted(x.sort(2)[0], ties), "searched right": torch.searchsorted(ties.flatten().sort()[0], ties, right=True),
        "bincount": torch.bincount(at.flatten(), minlength=5), "weighed": torch.bincount(at.flatten(), z.flatten()),
        "histogram": torch.histc(x, 7, -2, 2), "histogram all": torch.histc(x, 5),
        "nonzero": torch.nonzero(ties), "selected": torch.masked_select(x, z[:, :1] > 0),
        "unique": values, "unique inverse": inverse, "unique counts": counts,
        "index_add": torch.index_add(z, 1, torch.tensor([2, 0, 2]), y[0, :3]),
        "index_put": torch.index_put(x, (torch.tensor([1, 0]), torch.tensor([0, -1])), y[0, 0, :1]),
        "index_put add": torch.index_put(z, (at,), y[0, :3], accumulate=True),
    }
    u, theta = numbers((1, 2, 5, 4)), numbers((1, 2, 3)) / 4
    for mode in ("reflect", "replicate", "circular"):
        out[mode] = F.pad(u, (2, 1, 0, 3), mode)
    for i, (size, mode, corners, anti) in enumerate([
            ((7, 3), "nearest", None, False), ((8, 3), "bilinear", False, False), ((8, 3), "bilinear", True, False),
            ((9, 7), "bicubic", False, False), ((3, 6), "bicubic", True, False), ((3, 2), "area", None, False),
            ((3, 2), "bilinear", False, True), ((3, 7), "bicubic", False, True)]):
        out[f"resized {i}"] = F.interpolate(u, size, mode=mode, align_corners=corners, antialias=anti)
    out["scaled"] = F.interpolate(u, scale_factor=(1.3, 0.7), mode="bilinear")
    out["resized line"] = F.interpolate(u[0], 9, mode="linear")
    grid = F.affine_grid(theta, [1, 2, 3, 4], align_corners=False)
    out["affine"], out["affine corners"] = grid, F.affine_grid(theta, [1, 2, 3, 4], align_corners=True)
    for i, (mode, border, corners) in enumerate([
            ("bilinear", "zeros", False), ("bilinear", "zeros", True), ("bilinear", "border", False),
            ("bilinear", "reflection", False), ("bilinear", "reflection", True), ("nearest", "zeros", False),
            ("bicubic", "zeros", False), ("bicubic", "border", True), ("bicubic", "reflection", False)]):
        out[f"sampled {i}"] = F.grid_sample(u, grid * 1.3, mode, border, corners)
    solid, places = numbers((1, 2, 2, 3, 2)), numbers((1, 2, 1, 3, 3))
    for i, (mode, border, corners) in enumerate([
            ("bilinear", "zeros", False), ("bilinear", "reflection", True), ("nearest", "border", False)]):
        out[f"solid {i}"] = F.grid_sample(solid, places, mode, border, corners)
    out["resized solid"] = F.interpolate(solid, (3, 2, 5), mode="trilinear")
    for i, (f, k, stride, padding, more) in enumerate([
            (F.max_pool2d, (2, 3), 2, 0, {}), (F.max_pool2d, (3, 2), 3, 1, {}), (F.avg_pool2d, (2, 3), 2, 0, {}),
            (F.avg_pool2d, (3, 2), 3, 1, {}), (F.avg_pool2d, (3, 2), 3, 1, {"count_include_pad": False}),
            (F.avg_pool2d, (6, 5), 2, 0, {})]):
        out[f"pooled {i}"] = f(u, k, stride, padding, ceil_mode=True, **more)
    out["shuffled"] = F.pixel_shuffle(numbers((1, 8, 2, 3)), 2)
    out["unshuffled"] = F.pixel_unshuffle(numbers((1, 2, 4, 6)), 2)
    out["unfolded"] = F.unfold(u, (2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2))
    signs, chosen = torch.tensor([1.0, -1.0]), torch.tensor([2, 0, 1])
    p, scores = numbers((2, 3)), numbers((3, 4))
    for reduction in ("mean", "sum", "none"):
        out |= {f"{name} {reduction}": v for name, v in {
            "ranking": F.margin_ranking_loss(p, p.flip(1), signs[:, None], 0.5, reduction=reduction),
            "cosines": F.cosine_embedding_loss(p, p.flip(1), signs, 0.1, reduction=reduction),
            "triplet": F.triplet_margin_loss(p, p.flip(1), p.flip(0), reduction=reduction),
            "margins": F.multi_margin_loss(scores, chosen, p=2, margin=0.7, reduction=reduction),
            "gaussian": F.gaussian_nll_loss(p, p.flip(1), p.flip(0) ** 2, full=True, eps=0.3, reduction=reduction)}.items()}
    out["triplet swap"] = F.triplet_margin_loss(p, p.flip(1), p.flip(0), margin=0.4, p=3, swap=True)
    out["margins 1"] = F.multi_margin_loss(scores, chosen)
    right = torch.tensor([[1.0, 0.0, 0.25], [0.0, 1.0, 1.0]]).to(p)
    wrong = 1 - (right * p.sigmoid() + (1 - right) * (1 - p.sigmoid()))
    ce = F.binary_cross_entropy_with_logits(p, right, reduction="none")
    out["focal"] = (ce * wrong ** 2 * (0.25 * right + 0.75 * (1 - right))).mean()
    out["focal 1.5"] = (ce * wrong ** 1.5).sum()
    out |= factorizations()
    out["folded"] = F.fold(numbers((1, 12, 6)), (5, 4), (2, 3), dilation=(2, 1), padding=(0, 1), stride=(1, 2))
    out |= complexes()
    return {name: v.double().flatten() for name, v in out.items()}


def complexes():
    """Complex numbers as pairs: functions of numbers(), and NumPy's arithmetic where parts are 0, infinite or NaN."""
    import numpy as np

    ends = [0.0, -2.5, 3e200, math.inf, math.nan]
    grid = np.array([complex(a, b) for a in ends for b in ends])
    a, b = grid[:, None], grid[None, :]
    z = torch.view_as_complex(numbers((2, 3, 4)).reshape(4, 3, 2))
    w = torch.view_as_complex(numbers((2, 4, 3)).reshape(3, 4, 2).flip(2).contiguous())
    product = np.empty((len(grid), len(grid)), complex)  # by parts, since some processors round a * b - c * d once
    product.real, product.imag = a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real
    out = {"grid": grid, "mul": product, "div": a / b}
    pairs = {f"complex {k}": torch.view_as_real(torch.from_numpy(np.ascontiguousarray(v).astype(np.complex128))) for k, v in out.items()}
    out = {name: getattr(torch, name)(z) for name in "exp log sqrt sin cos sinh cosh tanh reciprocal".split()}
    out |= {"matmul": z @ w, "pow": z ** z.conj(), "pow 1.5": z ** 1.5, "quotient": z / w.T, "mean": z.mean(0), "sum": z.sum()}
    pairs |= {f"complex {name}": torch.view_as_real(v) for name, v in out.items()}
    s, w = numbers((2, 24)), torch.hann_window(6, dtype=torch.double)
    out = {"stft": torch.stft(s, 8, 3, 6, w, return_complex=True), "fftn": torch.fft.fftn(z, (6, 2), norm="ortho"),
           "stft two-sided": torch.stft(s, 8, center=False, normalized=True, onesided=False, return_complex=True),
           "ihfft": torch.fft.ihfft(s, 9), "rfft2": torch.fft.rfft2(s, norm="forward"), "ifft": torch.fft.ifft(z, 7, 0),
           "fftshift": torch.fft.fftshift(torch.fft.ifftshift(z, dim=(0,)))}
    pairs |= {f"fourier {name}": torch.view_as_real(v.resolve_conj()) for name, v in out.items()}
    pairs |= {"fourier hfft": torch.fft.hfft(z, 7, 1), "fourier irfft2": torch.fft.irfft2(z, (4, 5)), "fourier freq": torch.fft.fftfreq(7, 0.5, dtype=torch.double),
              "fourier rfreq": torch.fft.rfftfreq(8, dtype=torch.double), "fourier hamming": torch.hamming_window(5, dtype=torch.double),
              "fourier istft": torch.istft(torch.view_as_complex(numbers((5, 8, 2))), 8, 2, 8, torch.hann_window(8, dtype=torch.double))}
    return pairs | {"complex abs": torch.from_numpy(np.abs(grid)), "complex angle": z.angle(), "complex equal": (z == z.flip(0)).double()}


def write(file, tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        values = struct.pack(f"<{t.numel()}d", *t.tolist())
        header[name] = {"dtype": "F64", "shape": [t.numel()], "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = OUT / f"{file}.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    print(path)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    others = {"maps": maps, "arrays": arrays, "rope": rope, "torchvision": torchvision_logits, "float8": float8}
    for name in sys.argv[1:] or [*MODELS, *others]:
        write(name, others[name]() if name in others else record(name))
