#!/usr/bin/env python3
"""Writes the table of figures in README.md from bench/results/h200.json.

    readme_figures.py           # renews the table
    readme_figures.py --check   # fails if the table is not what the results say

The table stands between two comments, `<!-- figures -->` and `<!-- end of figures -->`.
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


def main():
    path = os.path.join(ROOT, "README.md")
    with open(os.path.join(ROOT, "bench", "results", "h200.json")) as f:
        new = table(json.load(f))
    with open(path) as f:
        page = f.read()
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    if "--check" in sys.argv[1:]:
        sys.exit(page[begin:end] != new and "README.md: the figures are not those of bench/results/h200.json; run bench/readme_figures.py")
    with open(path, "w") as f:
        f.write(page[:begin] + new + page[end:])


if __name__ == "__main__":
    main()
