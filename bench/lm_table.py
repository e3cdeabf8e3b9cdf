"""The tables of language models, for models_table.py."""
from gpu_table import cell, head, line, over

TITLE = "Language models"
PROFILES = ("",)
CASES = ("GPT-2 124M, B 32", "GPT-2 124M, B 4", "GPT-2 350M, B 16", "Llama 1.1B, B 4")
ATTENTION = ("attention (16,12,1024,64)", "attention (32,12,1024,64)", "attention (4,16,4096,128)",
             "ALiBi (16,12,1024,64)", "softcap (16,12,1024,64)")


def training(runs, peers):
    text = head("training, bf16, AdamW, clip 1.0, tokens/s", *runs, "torch.compile", "PyTorch eager", "Tenon / compile",
                "first step, s", "compile's", "peak, GiB", "compile's")
    for case in CASES:
        ours = [run.get(case, {}) for run in runs.values()]
        peer = peers.get(case, {}).get("compile", {})
        eager = peers.get(case, {}).get("eager", {})
        text += line([case] + [cell(run.get("tokens/s"), "{:,.0f}") for run in ours]
                     + [cell(peer.get("tokens/s"), "{:,.0f}"), cell(eager.get("tokens/s"), "{:,.0f}"),
                        cell(over(ours[0].get("tokens/s"), peer.get("tokens/s")), "{:.2f}"),
                        cell(ours[0].get("first step"), "{:.2f}"), cell(peer.get("first step")),
                        cell(ours[0].get("peak")), cell(peer.get("peak"))])
    return text


def attention(runs, peers):
    text = head("causal attention, bf16, us", *[f"{run}, {way}" for run in runs for way in ("forward", "with backward")],
                "PyTorch, forward", "with backward", "Tenon / PyTorch")
    for case in ATTENTION:
        peer, mine = peers.get(case, {}), []
        for run in runs.values():
            mine += [run.get(case, {}).get(way) for way in ("forward", "forward and backward")]
        text += line([case] + [cell(v) for v in mine]
                     + [cell(peer.get("forward")), cell(peer.get("forward and backward")),
                        cell(over(mine[1], peer.get("forward and backward")), "{:.2f}")])
    return text + "\nPyTorch's are cuDNN's, and flex_attention compiled for the last two, which Tenon gets as plain ops.\n"


def generation(runs, peers):
    text = head("generation, bf16, one row, greedy, tokens/s", *runs, "torch.compile with graphs", "Tenon / PyTorch")
    for case in (CASES[1], CASES[3]):
        ours = [run.get(case, {}).get("generated tokens/s") for run in runs.values()]
        peer = peers.get(case, {}).get("generated tokens/s")
        text += line([case.split(",")[0]] + [cell(v, "{:,.0f}") for v in ours]
                     + [cell(peer, "{:,.0f}"), cell(over(ours[0], peer), "{:.2f}")])
    return text


def tables(runs, peers):
    return [part(runs, peers) for part in (training, attention, generation)], None
