"""Language models in PyTorch on a GPU: what Tenon's gpu_lm is put beside. peer_kit.py says how it is called.

Training under bf16 autocast with clipping and the fused AdamW, eager and compiled; causal attention by
cuDNN and by flex_attention; generation with a static cache, compiled with CUDA graphs. Parts are
training, generation, attention, eager.
"""
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import gpu_models
from peer_kit import main, peak_gib, time_loop


# ---- attention

def median_us(call, rounds=15, calls=20):
    for _ in range(5):
        call()
    times = []
    for _ in range(rounds):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        for _ in range(calls):
            call()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) * 1e3 / calls)
    return sorted(times)[rounds // 2]


def attention_us(size, kind, backward):
    q, k, v, g = (torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    inputs = [t.requires_grad_(backward) for t in (q, k, v)]
    if kind == "plain":
        def attend():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        slope = torch.rand(size[1], device="cuda")
        mods = {"alibi": lambda s, b, h, i, j: s + slope[h] * (j - i),
                "softcap": lambda s, b, h, i, j: 20 * torch.tanh(s / 20)}
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, size[2], size[2], device="cuda")
        compiled = torch.compile(flex_attention)

        def attend():
            return compiled(q, k, v, score_mod=mods[kind], block_mask=mask)

    def call():
        y = attend()
        if backward:
            torch.autograd.grad(y, inputs, g)
    return median_us(call)


ATTENTION = (("attention (16,12,1024,64)", (16, 12, 1024, 64), "plain"),
             ("attention (32,12,1024,64)", (32, 12, 1024, 64), "plain"),
             ("attention (4,16,4096,128)", (4, 16, 4096, 128), "plain"),
             ("ALiBi (16,12,1024,64)", (16, 12, 1024, 64), "alibi"),
             ("softcap (16,12,1024,64)", (16, 12, 1024, 64), "softcap"))


def attention(results):
    for name, size, kind in ATTENTION:
        results.add(name, "forward", lambda: attention_us(size, kind, False))
        results.add(name, "forward and backward", lambda: attention_us(size, kind, True))


# ---- networks

class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=False)
        self.out, self.up = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def heads_of(self, x, rope):
        b, t, _ = x.shape
        parts = self.qkv(self.norm_1(x)).split([self.heads * self.size, *[self.kv_heads * self.size] * 2], -1)
        q, k, v = (p.view(b, t, -1, self.size).transpose(1, 2) for p in parts)

        def turn(z):
            (c, s), (a, b) = rope, z.chunk(2, -1)
            return torch.cat([a * c - b * s, a * s + b * c], -1).to(v.dtype)
        return turn(q), turn(k), v

    def rest(self, x, y):
        x = x + self.out(y.transpose(1, 2).flatten(2))
        gate, up = self.up(self.norm_2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def forward(self, x, rope):
        q, k, v = self.heads_of(x, rope)
        return self.rest(x, F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))


class Llama(nn.Module):
    def __init__(self, layers, heads, kv_heads, width, hidden, vocab, context):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv_heads, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        half = width // heads // 2
        angle = torch.arange(context)[:, None] * 1e4 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x, y):
        h, t = self.embed(x), x.shape[1]
        for block in self.blocks:
            h = block(h, (self.cos[:t], self.sin[:t]))
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


# PyTorch's users pad GPT-2's vocabulary to 50304 by hand; Tenon's network has 50257.
NETWORKS = {
    "GPT-2 124M, B 32": (lambda: gpu_models.GPT2(vocab=50304), 32, 1024, 50257),
    "GPT-2 124M, B 4": (lambda: gpu_models.GPT2(vocab=50304), 4, 1024, 50257),
    "GPT-2 350M, B 16": (lambda: gpu_models.GPT2(24, 16, 1024, 50304), 16, 1024, 50257),
    "Llama 1.1B, B 4": (lambda: Llama(22, 32, 4, 2048, 5632, 32000, 2048), 4, 2048, 32000),
}


def train(case, compiled, most=100):
    make, batch, tokens, vocab = NETWORKS[case]
    net = make().cuda()
    opt = torch.optim.AdamW(net.parameters(), lr=6e-4, fused=True)
    x, y = (torch.randint(0, vocab, (batch, tokens), device="cuda") for _ in range(2))
    run = torch.compile(net) if compiled else net

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = run(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)

    first, took = time_loop(step, 4, 0.5, most)
    return took and {"tokens/s": batch * tokens / took, "first step": first, "peak": peak_gib()}


def training(results):
    for case in NETWORKS:
        results.add(case, "compile", lambda: train(case, True))


def eager(results):
    for case in ("GPT-2 124M, B 32", "GPT-2 124M, B 4"):
        results.add(case, "eager", lambda: train(case, False))


# ---- generation: one row, greedy, a static cache of keys and values

class Generator(nn.Module):
    """One token of a GPT-2 or Llama: token (1, 1) and its position (1) to the next token."""

    def __init__(self, net, context):
        super().__init__()
        self.net, self.llama = net, isinstance(net, Llama)
        blocks = net.blocks if self.llama else net.transformer.h
        size = 64
        heads = blocks[0].kv_heads if self.llama else blocks[0].attn.heads
        self.cache = [tuple(torch.zeros(1, heads, context, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
                      for _ in blocks]
        self.places = torch.arange(context, device="cuda")

    def attend(self, i, q, k, v, at):
        keys, values = self.cache[i]
        keys.index_copy_(2, at, k)
        values.index_copy_(2, at, v)
        seen = (self.places <= at)[None, None, None]
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen, enable_gqa=self.llama)

    def forward(self, token, at):
        if self.llama:
            n = self.net
            h, rope = n.embed(token), (n.cos[at], n.sin[at])
            for i, block in enumerate(n.blocks):
                h = block.rest(h, self.attend(i, *block.heads_of(h, rope), at))
            return n.head(n.norm(h)).argmax(-1)
        t = self.net.transformer
        h = t.wte(token) + t.wpe(at)
        for i, block in enumerate(t.h):
            a = block.attn
            q, k, v = (y.view(1, 1, a.heads, -1).transpose(1, 2) for y in a.c_attn(block.ln_1(h)).chunk(3, -1))
            h = h + a.c_proj(self.attend(i, q, k, v, at).transpose(1, 2).flatten(2))
            h = h + block.mlp.c_proj(F.gelu(block.mlp.c_fc(block.ln_2(h)), approximate="tanh"))
        return F.linear(t.ln_f(h), t.wte.weight).argmax(-1)


def generate(case, context=528, tokens=400):
    net = NETWORKS[case][0]().cuda().bfloat16().eval()
    run = torch.compile(Generator(net, context), mode="reduce-overhead", fullgraph=True)
    token, at = torch.ones(1, 1, device="cuda", dtype=torch.long), torch.zeros(1, device="cuda", dtype=torch.long)
    with torch.inference_mode():
        for i in range(20):
            token = run(token, at + i).clone()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(tokens):
            token = run(token, at + 20 + i).clone()
        torch.cuda.synchronize()
    return tokens / (time.perf_counter() - start)


def generation(results):
    for case in GENERATED:
        results.add(case, "generated tokens/s", lambda: generate(case))


# ---- compiling ahead: it takes most of the time, and one core

GENERATED = ("GPT-2 124M, B 4", "Llama 1.1B, B 4")
AHEAD = ([lambda c=c: train(c, True, 0) for c in NETWORKS] + [lambda c=c: generate(c, tokens=1) for c in GENERATED]
         + [lambda s=s, k=k, b=b: attention_us(s, k, b) for _, s, k in ATTENTION if k != "plain" for b in (False, True)])


if __name__ == "__main__":
    main((training, generation, attention, eager), AHEAD)
