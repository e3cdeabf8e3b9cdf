"""Puts Tenon's language models on a GPU beside PyTorch's.

    lm_table.py PEERS.json FILES NAME COMMIT OURS.json [LABEL OURS.json ...]

writes NAME.md and NAME.json. The first OURS.json is of a run with the cuDNN file that PyTorch has; each
further one is another run of Tenon, named by its label. Profiles in the folder FILES come last.
"""
import datetime
import json
import sys

from gpu_table import cell, head, line, load, over, profiles

CASES = ("GPT-2 124M, B 32", "GPT-2 124M, B 4", "GPT-2 350M, B 16", "Llama 1.1B, B 4")
ATTENTION = ("attention (16,12,1024,64)", "attention (32,12,1024,64)", "attention (4,16,4096,128)",
             "ALiBi (16,12,1024,64)", "softcap (16,12,1024,64)")


def rows_of(path):
    """Rows "CASE: WHAT" of a run as {case: {what: value}}."""
    found = {}
    for row in load(path).get("results", []):
        case, _, what = row["what"].rpartition(": ")
        found.setdefault(case, {})[what] = row["value"]
    return found


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


def write(peers_path, files, name, commit, ours, *more):
    peers = load(peers_path)
    runs = {"Tenon": rows_of(ours)}
    for label, path in zip(more[::2], more[1::2]):
        runs[f"Tenon, {label}"] = rows_of(path)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    cases = peers.get("cases", {})
    with open(name + ".md", "w") as f:
        f.write(f"# Language models on one {peers.get('gpu', 'GPU')}\n\n{date}, commit {commit}, beside PyTorch "
                f"{peers.get('torch', '-')} (cuDNN {peers.get('cudnn', '-')}) in one run.\n")
        for part in (training, attention, generation):
            f.write("\n" + part(runs, cases))
        notes = peers.get("notes", [])
        if notes:
            f.write("\n## Notes of the run\n\n" + "".join(f"    {n}\n" for n in notes))
        f.write(profiles(files))
    with open(name + ".json", "w") as f:
        json.dump({"date": date, "commit": commit, "runs": runs, "peers": peers}, f, indent=1)
    print(open(name + ".md").read())


if __name__ == "__main__":
    write(*sys.argv[1:])
