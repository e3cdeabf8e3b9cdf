"""Puts Tenon's numbers on a GPU beside those of its peers.

    gpu_table.py OURS.json NOTES FILES PEERS.json JAX.json NAME COMMIT

writes NAME.md and NAME.json. A file that is missing or damaged leaves its columns empty. Profiles that
Tenon left in the folder FILES come last.
"""
import datetime
import glob
import json
import os
import sys

# What is wanted of a case: the best peer's time over Tenon's, at least; and of the limit.
WANTED = {
    "relu chain 4096^2 f32": 1.0, "relu chain 16384^2 f32": 1.0, "tanh(x.T+v)*x 4096^2 f32": 1.2,
    "softmax 8192x4096 f32": 1.4, "softmax 65536x128 f32": 1.0, "softmax 512x131072 f32": 1.4,
    "softmax 1024x50257 f32": 1.4, "layer norm 8192x4096 bf16": 1.6, "cross-entropy 8192x50257 bf16": 2.5,
    "sum 64 Mi f32": 1.0, "column sum 65536x1024 f32": 1.0, "linear+gelu 16384x768x3072 bf16": 1.1,
    "adamw 130 M f32": 1.4, "clip + adamw 130 M f32": 2.0,
}
WANTED_OF_LIMIT = {"relu chain 16384^2 f32": 0.95}
WANTED_DIFFERENCE = 1e-3
PROFILED = 30  # lines of a profile


def load(path):
    try:
        with open(path) as f:
            text = f.read()
        try:
            return json.loads(text)
        except ValueError:
            return json.loads(text + "]}")  # of a run that was ended
    except (OSError, ValueError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return {}


def line(cells):
    return "| " + " | ".join(cells) + " |\n"


def head(first, *rest):
    return line([first, *rest]) + line(["---"] + ["---:"] * len(rest))


def cell(value, form="{:.1f}"):
    return "-" if value is None else form.format(value)


def best(peer, ways):
    return min((peer[way] for way in ways if peer.get(way)), default=None)


def over(a, b):
    return a / b if a and b else None


class Tables:
    def __init__(self, ours, peers, jax):
        self.ours = {}
        for row in ours.get("results", []):
            self.ours.setdefault(row["case"], {})[row["what"]] = row
        self.peers, self.jax = peers.get("cases", {}), jax.get("cases", {})
        self.missed, self.data = [], {}

    def value(self, group, what):
        row = self.ours.get(group, {}).get(what)
        return row["value"] if row else None

    def want(self, what, ok):
        """Writes down what is not as wanted; ok None: not measured."""
        if ok is not True:
            self.missed.append(what + (" (not measured)" if ok is None else ""))

    def ops(self):
        text = head("case, us", "Tenon", "PyTorch eager", "torch.compile", "best peer / Tenon", "wanted", "limit",
                    "of the limit", "launches")
        found = self.data["ops"] = []
        rows = self.ours.get("gpu_ops", {})
        for case in [*[c for c in rows if c != "copy of 1 GiB"], *[c for c in WANTED if c not in rows]]:
            us, peer, of = self.value("gpu_ops", case), self.peers.get(case, {}), rows.get(case, {}).get("ratio")
            ratio, wanted = over(best(peer, ("eager", "compile")), us), WANTED.get(case)
            limit, launches = us * of if us and of else None, self.value("gpu_launches", case)
            if wanted:
                self.want(f"{case}: {wanted} of the best peer", ratio and ratio >= wanted)
            if case in WANTED_OF_LIMIT:
                self.want(f"{case}: {WANTED_OF_LIMIT[case]} of the limit", of and of >= WANTED_OF_LIMIT[case])
            found.append({"case": case, "us": us, "eager": peer.get("eager"), "compile": peer.get("compile"),
                          "ratio": ratio, "wanted": wanted, "limit_us": limit, "of_limit": of, "launches": launches})
            text += line([case, cell(us), cell(peer.get("eager")), cell(peer.get("compile")), cell(ratio, "{:.2f}"),
                          cell(wanted, "{:.1f}"), cell(limit), cell(of and 100 * of, "{:.0f} %"),
                          cell(launches, "{:.0f}")])
        return text

    def steps(self):
        text = head("MLP 784-256-128-10, Adam, us a step", "Tenon", "wanted", "PyTorch eager", "torch.compile",
                    "its graph by hand", "JAX", "best peer / Tenon")
        where = head("where they go", "host", "device", "kernels and calls", "graph launches", "copies", "waits",
                     "loss 1, 20 without TF32", "PyTorch's")
        self.data["steps"] = []
        for batch in (64, 1024):
            name = f"mlp step, batch {batch}"
            rows = {w[len(name):].lstrip(": "): r for w, r in self.ours.get("gpu_steps", {}).items()
                    if w == name or w.startswith(name + ":")}
            got = {key or "us": row["value"] for key, row in rows.items()}
            peer = {**self.peers.get(name, {}), **self.jax.get(name, {})}
            wanted = rows.get("", {}).get("wanted")
            ratio = over(best(peer, ("eager", "compile", "graph", "jax")), got.get("us"))
            self.want(f"{name}: at most {wanted} us", got.get("us") and wanted and got["us"] <= wanted)
            for key in ("1", "20"):
                a, b = got.get("loss " + key), peer.get("loss_" + key)
                self.want(f"{name}: loss {key} as PyTorch's", a and b and abs(a - b) <= WANTED_DIFFERENCE * b)
            self.data["steps"].append({"case": name, **got, "peers": peer, "ratio": ratio, "wanted": wanted})
            text += line([f"batch {batch}", cell(got.get("us")), cell(wanted, "{:.0f}")]
                         + [cell(peer.get(way)) for way in ("eager", "compile", "graph", "jax")] + [cell(ratio, "{:.2f}")])
            where += line([f"batch {batch}", cell(got.get("host")), cell(got.get("device"))]
                          + [cell(got.get(key), "{:.2f}") for key in ("kernels and calls", "graph launches", "copies", "waits")]
                          + [f"{cell(d.get('loss' + c + '1'), '{:.4f}')}, {cell(d.get('loss' + c + '20'), '{:.4f}')}"
                             for d, c in ((got, " "), (peer, "_"))])
        return text + "\n" + where

    def gpt2(self):
        mine = {what: row["value"] for what, row in self.ours.get("gpu_gpt2", {}).items()}
        first, peer = dict(self.peers.get("gpt2 first step", {})), self.peers.get("gpt2 training", {})
        tokens = mine.get("gpt2 tokens a second")
        text = head("GPT-2 124M, f32 with TF32, B 4 x T 1024", "Tenon", "PyTorch eager", "torch.compile",
                    "Tenon / best peer")
        top = max((peer[way] for way in ("eager", "compile") if way in peer), default=None)
        text += line(["tokens/s", cell(tokens, "{:,.0f}"), cell(peer.get("eager"), "{:,.0f}"),
                      cell(peer.get("compile"), "{:,.0f}"), cell(over(tokens, top), "{:.2f}")])
        for what in ("kernels and calls", "copies", "waits"):
            text += line([f"a step: {what}", cell(mine.get("gpt2 step: " + what)), "-", "-", "-"])
        text += line(["peak memory, GB", cell(mine.get("gpt2 peak memory")), "-", "-", "-"])
        self.data["gpt2"] = {**mine, "peers": peer, "first_step": first}
        differs = [first.get("loss_difference"), first.get("gradient_difference")]
        self.want("gpt2: first loss and gradients as PyTorch's",
                  max(differs) <= WANTED_DIFFERENCE if None not in differs else None)
        if None not in differs:
            text += (f"\nA first step without TF32 beside PyTorch's, from the same weights: the loss differs by {differs[0]:.1e}, "
                     f"{first['gradients']} gradients\nby {differs[1]:.1e} of their largest element at most "
                     f"({first['worst_gradient']}).\n")
        return text

    def images(self):
        text = head("60,000 images from IDX files, MLP, 5 epochs, batch 512, s with process start", "Tenon", "wanted")
        rows = self.data["images"] = self.ours.get("gpu_images", {})
        for way in ("warm", "cold"):
            row = rows.get(f"60,000 images, 5 epochs, {way}", {})
            text += line([f"{way} cache", cell(row.get("value"), "{:.2f}"), cell(row.get("wanted"), "{:.1f}")])
            self.want(f"60,000 images, {way}", row["value"] <= row["wanted"] if row.get("value") else None)
        return text


def profiles(files, shown=("",)):
    """Of each profile with one of these texts in its name the kernels that take longest, and of their lines what fits."""
    text = ""
    for path in sorted(p for p in glob.glob(f"{files}/*.profile") if any(name in p for name in shown)):
        with open(path) as f:
            lines = [row.rstrip()[:120] for row in f][:PROFILED]
        name = os.path.basename(path).removesuffix(".profile").replace("_", ", batch ")
        text += f"\n## Kernels of {name}, each alone, TF32 on\n\n" + "".join(f"    {row}\n" for row in lines)
    return text


def write(ours_path, notes_path, files, peers_path, jax_path, name, commit):
    peers, jax = load(peers_path), load(jax_path)
    t = Tables(load(ours_path), peers, jax)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    copy = t.value("gpu_ops", "copy of 1 GiB")
    try:
        with open(notes_path) as f:
            notes = [text.rstrip() for text in f if text.strip()]
    except OSError:
        notes = []
    notes += peers.get("notes", []) + jax.get("notes", [])
    about = {"date": date, "commit": commit, "gpu": peers.get("gpu", "GPU"), "torch": peers.get("torch", "-"),
             "jax": jax.get("jax", "-"), "copy_gb_s": copy}
    tables = [t.ops(), t.steps(), t.gpt2(), t.images()]
    with open(name + ".md", "w") as f:
        f.write(f"# Tenon on one {about['gpu']}\n\n{date}, commit {commit}, beside PyTorch {about['torch']} and JAX {about['jax']} "
                f"in one run; a copy of 1 GiB moves {cell(copy and copy / 1000, '{:.2f}')} TB/s, read\nand written. "
                "Single ops: 20 calls one after the other between two events, the median of 15 rounds, on random data; results are checked\n"
                "against double before. The limit is the fewest bytes at the rate of the copy, or the operations at the rate of the matrix\n"
                "units (776, 750, 366 and 50 TFLOP/s in bf16, f16, tf32 and f32). Training steps: the wall time of 300, TF32 on, the batch on\n"
                "the device.\n")
        for text in tables:
            f.write("\n" + text)
        f.write("\n## Not as wanted\n\n" + ("".join(f"- {m}\n" for m in t.missed) or "Nothing.\n"))
        if notes:
            f.write("\n## Notes of the run\n\n" + "".join(f"    {n}\n" for n in notes))
        f.write(profiles(files))
    with open(name + ".json", "w") as f:
        json.dump({**about, **t.data, "missed": t.missed, "notes": notes}, f, indent=1)
    print(open(name + ".md").read())


if __name__ == "__main__":
    write(*sys.argv[1:])
