#!/usr/bin/env python3
"""Compares language models of Tenon with those of Hugging Face's transformers:

    compare.py PROGRAM DEVICE [MODEL]...

Each model has random weights. transformers writes its folder (in files of at most 100 MB, so that there are
several), PROGRAM loads that and computes logits and gradients. Both are compared with those of transformers in
double precision, in which it still normalizes and rotates in f32. A line has the largest error of the logits, as
a part of the largest logit, and the largest error of the gradient of a parameter, by norms; first of Tenon, then
of transformers in f32. More than 1e-4 is a failure. Models with bf16 in their name have weights in bf16, and
may be 1.5 times as far off as transformers.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors import safe_open
from torch.nn import functional as F

LIMIT = 1e-4


def llama(layers, heads, kv, width, hidden, vocab, T, **more):
    more.setdefault("max_position_embeddings", 2048)
    return transformers.LlamaConfig(num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv,
                                    hidden_size=width, intermediate_size=hidden, vocab_size=vocab,
                                    rms_norm_eps=1e-5, **more), T


def scaled(kind, **more):
    rope = {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0, **more}
    return llama(2, 4, 2, 64, 128, 100, 96, max_position_embeddings=64, rope_parameters=rope)


# name: configuration, tokens of a text. The shapes of published models; those of billions with fewer layers.
MODELS = {
    "tinyllama": lambda: llama(2, 32, 4, 2048, 5632, 32000, 64),
    "smollm": lambda: llama(30, 9, 3, 576, 1536, 49152, 64, tie_word_embeddings=True),
    "llama-3.2": lambda: llama(1, 32, 8, 2048, 8192, 32000, 64, head_dim=64, tie_word_embeddings=True,
                               max_position_embeddings=131072, rope_parameters={
                                   "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0,
                                   "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 8192}),
    "linear": lambda: scaled("linear"),
    "dynamic": lambda: scaled("dynamic"),
    "yarn": lambda: scaled("yarn", original_max_position_embeddings=32),
    "mistral": lambda: (transformers.MistralConfig(
        num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2, hidden_size=256, intermediate_size=512,
        vocab_size=1000, sliding_window=24), 100),
    "qwen2": lambda: (transformers.Qwen2Config(
        num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2, hidden_size=896, intermediate_size=4864,
        vocab_size=10000, tie_word_embeddings=True), 32),
    "smollm-bf16": lambda: llama(4, 9, 3, 576, 1536, 4000, 64, tie_word_embeddings=True),
    "gpt2": lambda: (transformers.GPT2Config(), 64),
}


def run(net, tokens, targets):
    """Logits, loss and gradients."""
    net.zero_grad()
    logits = net(tokens).logits
    F.cross_entropy(logits.transpose(1, 2), targets).backward()
    return logits.detach(), {name: p.grad for name, p in net.named_parameters()}


def errors(have, want):
    """Of logits and of the worst gradient."""
    (y, g), (z, h) = have, want
    worst = max(((g[k].double() - h[k]).norm() / h[k].norm().clamp_min(1e-12)).item() for k in h)
    return ((y.double() - z).abs().max() / z.abs().max()).item(), worst


def compare(program, device, name):
    torch.manual_seed(1)
    config, T = MODELS[name]()
    net = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    half = name.endswith("bf16")
    if half:
        net = net.bfloat16()
    tokens, targets = torch.randint(0, config.vocab_size, (2, 2, T))
    with tempfile.TemporaryDirectory() as folder:
        net.save_pretrained(folder, max_shard_size="100MB")
        numpy.save(f"{folder}/tokens.npy", tokens.numpy())
        numpy.save(f"{folder}/targets.npy", targets.numpy())
        files = len(list(pathlib.Path(folder).glob("*.safetensors")))
        subprocess.run([program, folder, device], check=True)
        plain = run(net, tokens, targets)
        plain = plain[0], {k: v.clone() for k, v in plain[1].items()}
        exact = run(net.double(), tokens, targets)
        with safe_open(f"{folder}/have.safetensors", "pt") as f:
            have = f.get_tensor("logits"), {k: f.get_tensor(f"grad.{k}") for k in exact[1]}
            unknown = set(f.keys()) - {f"grad.{k}" for k in exact[1]} - {"logits", "loss"}
    mine, theirs = errors(have, exact), errors(plain, exact)
    limits = [1.5 * t for t in theirs] if half else (LIMIT, LIMIT)
    ok = all(m <= most for m, most in zip(mine, limits)) and not unknown
    print(f"{name:<12} {sum(p.numel() for p in net.parameters()) / 1e6:7.1f} M in {files:2} files   logits {mine[0]:.1e}"
          f" ({theirs[0]:.1e})   gradients {mine[1]:.1e} ({theirs[1]:.1e})   {'ok' if ok else 'FAILED'}", flush=True)
    return ok


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}; in brackets: transformers itself")
    results = [compare(sys.argv[1], sys.argv[2], name) for name in sys.argv[3:] or MODELS]
    sys.exit(not all(results))
