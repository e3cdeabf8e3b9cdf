#!/usr/bin/env python3
"""Writes the tables of figures in README.md from bench/results/h200.json, lm.json and conv.json.

    readme_figures.py           # renews the tables
    readme_figures.py --check   # fails if the tables are not what the results say

They stand between two comments, `<!-- figures -->` and `<!-- end of figures -->`.
"""
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"

# Which cases of the results a reader of the README sees, and what they are called there.
OPS = {
    "cross-entropy 8192x50257 bf16": "cross-entropy and its gradient, 8192 x 50257, bf16",
    "layer norm 8192x4096 bf16": "layer norm and its gradients, 8192 x 4096, bf16",
    "softmax 8192x4096 f32": "softmax, 8192 x 4096, f32",
    "linear+gelu 16384x768x3072 bf16": "linear + gelu, 16384 x 768 x 3072, bf16",
    "adamw 130 M f32": "AdamW over 130 M parameters, f32",
}

# What results of networks there are, what they are about, and of them which cases, what of these, and what they are called.
NETWORKS = {
    "lm": ("language models", {
        ("GPT-2 124M, B 32", "tokens/s"): "training GPT-2 124M, bf16, batch 32 x 1024, tokens/s",
        ("Llama 1.1B, B 4", "tokens/s"): "training a Llama of 1.1 B parameters, bf16, batch 4 x 2048, tokens/s",
    }),
    "conv": ("convolution networks", {
        ("ResNet-50 training, B 256", "img/s"): "training ResNet-50, bf16, batch 256, images/s",
        ("ResNet-50 training, B 64", "img/s"): "training ResNet-50, bf16, batch 64, images/s",
        ("MobileNetV2 training, B 256", "img/s"): "training MobileNetV2, bf16, batch 256, images/s",
        ("U-Net training, B 16", "img/s"): "training a U-Net, bf16, batch 16 of 256 x 256, images/s",
        ("ResNet-50 inference, B 1", "img/s"): "ResNet-50 inference, f16, batch 1, images/s",
        ("ResNet-50 inference, B 64", "img/s"): "ResNet-50 inference, f16, batch 64, images/s",
    }),
}


def time(us):
    return "-" if us is None else f"{us:.1f} us" if us < 100 else f"{us:,.0f} us"


def row(*cells):
    return "| " + " | ".join(cells) + " |\n"


def table(results):
    text = (f"One {results['gpu']}, {results['date'][:10]}, commit {results['commit']}, beside PyTorch {results['torch'].split('+')[0]} and JAX {results['jax']} in the "
            "same run ([all results](bench/results/h200.md)); less time is better, more tokens are.\n\n")
    text += row("case", "Tenon", "PyTorch eager", "torch.compile", "JAX") + row("---", *["---:"] * 4)
    for step in results["steps"]:
        if step.get("us"):
            peers = step["peers"]
            text += row(f"a step of an MLP 784-256-128-10 with Adam, {step['case'].split(', ')[1]}", time(step["us"]),
                        time(peers.get("eager")), time(peers.get("compile")), time(peers.get("jax")))
    for op in results["ops"]:
        if op["case"] in OPS and op["us"]:
            text += row(OPS[op["case"]], time(op["us"]), time(op["eager"]), time(op["compile"]), "-")
    gpt2 = results["gpt2"]
    if gpt2.get("gpt2 tokens a second"):
        ways = [gpt2["gpt2 tokens a second"], gpt2["peers"].get("eager"), gpt2["peers"].get("compile")]
        text += row("training GPT-2 124M, TF32, batch 4 x 1024, tokens/s", *[f"{v:,.0f}" if v else "-" for v in ways], "-")
    return text


def path_of(name):
    return os.path.join(ROOT, "bench", "results", name)


def load(name):
    with open(path_of(name + ".json")) as f:
        return json.load(f)


def networks():
    """A table of those networks whose kind has been measured."""
    rows, pages = "", []
    for kind, (page, cases) in NETWORKS.items():
        if not os.path.exists(path_of(kind + ".json")):
            continue
        found = load(kind)
        pages.append(f"[{page}](bench/results/{kind}.md), `make bench-{kind}`, {found['date'][:10]}, commit {found['commit']}")
        for (case, what), name in cases.items():
            ours = found["runs"]["Tenon"].get(case, {}).get(what)
            peer = found["peers"].get("cases", {}).get(case, {}).get("compile", {}).get(what)
            if ours and peer:
                rows += row(name, f"{ours:,.0f}", f"{peer:,.0f}", f"{ours / peer:.2f}")
    return ("\nWhole networks, where more is better: " + "; ".join(pages) + ".\n\n"
            + row("case", "Tenon", "torch.compile", "Tenon / compile") + row("---", *["---:"] * 3) + rows)


def main():
    path = os.path.join(ROOT, "README.md")
    new = table(load("h200")) + networks()
    with open(path) as f:
        page = f.read()
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    if "--check" in sys.argv[1:]:
        sys.exit(page[begin:end] != new and "README.md: the figures are not those of bench/results; run bench/readme_figures.py")
    with open(path, "w") as f:
        f.write(page[:begin] + new + page[end:])


if __name__ == "__main__":
    main()
