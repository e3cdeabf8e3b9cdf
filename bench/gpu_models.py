"""GPT-2 124M in PyTorch, with the names of Hugging Face's files: what gpu_peers.py compares with
Tenon's first step and times."""
import json
import struct
import time

import torch
from torch import nn
from torch.nn import functional as F

BATCH, TOKENS, WARM, STEPS = 4, 1024, 4, 10
TYPES = {"F32": torch.float32, "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16}


def read(path):
    """The tensors of a safetensors file."""
    with open(path, "rb") as f:
        data = bytearray(f.read())
    start = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, about in json.loads(bytes(data[8:start])).items():
        if name == "__metadata__":
            continue
        first, end = about["data_offsets"]
        kind = TYPES[about["dtype"]]
        flat = torch.frombuffer(data, dtype=kind, offset=start + first, count=(end - first) // kind.itemsize)
        tensors[name] = flat.reshape(about["shape"]).clone()
    return tensors


class Affine(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = Affine(width, 3 * width), Affine(width, width), heads

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.c_attn(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": Affine(width, 4 * width), "c_proj": Affine(4 * width, width)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers=12, heads=12, width=768, vocab=50257, context=1024):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab, width), "wpe": nn.Embedding(context, width),
            "h": nn.Sequential(*(Block(width, heads) for _ in range(layers))), "ln_f": nn.LayerNorm(width)})
        for table in (self.transformer.wte, self.transformer.wpe):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, x, y):
        t = self.transformer
        h = t.wte(x) + t.wpe(torch.arange(x.shape[1], device=x.device))
        logits = F.linear(t.ln_f(t.h(h)), t.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def like(weights):
    """A network of the sizes that a file has."""
    vocab, width = weights["transformer.wte.weight"].shape
    layers = len([name for name in weights if name.endswith(".ln_1.weight")])
    heads = 12 if width == 768 else 2
    net = GPT2(layers, heads, width, vocab, weights["transformer.wpe.weight"].shape[0])
    net.load_state_dict({name: t for name, t in weights.items() if name != "lm_head.weight"})
    return net


def difference(a, b):
    """The largest difference, over the largest element of b."""
    return ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item()


def compare(files, device="cuda"):
    """Loss and gradients of the step whose inputs and results Tenon left, without TF32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    left = read(f"{files}/gpt2_step.safetensors")
    net = like(read(f"{files}/gpt2.safetensors")).to(device)
    loss = net(left["x"].to(device), left["y"].to(device))
    loss.backward()
    found = {}
    for name, p in net.named_parameters():
        found[name] = difference(left["grad." + name].to(device), p.grad)
    worst = max(found, key=found.get)
    ours, theirs = left["loss"].item(), loss.item()
    return {"loss": theirs, "loss_difference": abs(ours - theirs) / abs(theirs), "gradients": len(found),
            "gradient_difference": found[worst], "worst_gradient": worst, "differences": found}


def tokens_per_second(compiled):
    torch.backends.cuda.matmul.allow_tf32 = True
    torch._dynamo.reset()
    net = GPT2().cuda()
    opt = torch.optim.AdamW(net.parameters(), lr=3e-4, fused=True)
    x, y = (torch.randint(0, 50257, (BATCH, TOKENS), device="cuda") for _ in range(2))
    run = torch.compile(net) if compiled else net

    def step():
        opt.zero_grad(set_to_none=True)
        run(x, y).backward()
        opt.step()

    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return BATCH * TOKENS * STEPS / (time.perf_counter() - start)
