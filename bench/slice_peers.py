"""The slice in PyTorch, eager and compiled, and the table that puts it beside Tenon's.

    slice_peers.py measure PEERS.json          times PyTorch on this GPU
    slice_peers.py table OURS.json PEERS.json NAME COMMIT

`table` writes NAME.md and NAME.json. A call is timed as Tenon times it: 20 calls one after the
other between two events, and one call alone after a wait; the median of 15 such rounds, on random
data of the same sizes.
"""
import datetime
import json
import statistics
import sys

TIMES, ROUNDS = 20, 15


def microseconds(call, times=TIMES):
    import torch
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    took = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            call()
        end.record()
        torch.cuda.synchronize()
        took.append(start.elapsed_time(end) / times * 1e3)
    return statistics.median(took)


def both(result, name, function, run):
    """run(f) calls f as a user would; f is the function, then what torch.compile makes of it."""
    import torch
    torch._dynamo.reset()
    result[name] = {"eager": microseconds(lambda: run(function)),
                    "eager_alone": microseconds(lambda: run(function), 1)}
    try:
        compiled = torch.compile(function, dynamic=False)
        result[name]["compile"] = microseconds(lambda: run(compiled))
        result[name]["compile_alone"] = microseconds(lambda: run(compiled), 1)
    except Exception as error:  # a version without a compiler for this machine
        print(name, "compile:", str(error)[:300], file=sys.stderr)
    print(name, result[name], flush=True)


def rows(result):
    import torch
    for side in (16384, 4096):
        x = torch.randn(side, side, device="cuda")
        both(result, f"relu chain {side}^2 f32", lambda x: torch.relu(x) * 0.5 + 1, lambda f: f(x))
    for r, c in ((8192, 4096), (65536, 128), (1024, 50257), (512, 131072)):
        x = torch.randn(r, c, device="cuda")
        both(result, f"softmax {r}x{c} f32", lambda x: torch.softmax(x, -1), lambda f: f(x))


def losses(result):
    import torch
    from torch.nn import functional as F
    x = torch.randn(8192, 50257, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    y = torch.randint(0, 50257, (8192,), device="cuda")
    both(result, "cross-entropy 8192x50257 bf16", lambda x: F.cross_entropy(x.float(), y),
         lambda f: torch.autograd.grad(f(x), x))


def norms(result):
    import torch
    from torch.nn import functional as F
    def make(*size):
        return torch.randn(*size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    x, w, b, gy = make(8192, 4096), make(4096), make(4096), make(8192, 4096).detach()
    both(result, "layer norm 8192x4096 bf16", lambda x, w, b: F.layer_norm(x, (4096,), w, b),
         lambda f: torch.autograd.grad(f(x, w, b), (x, w, b), gy))


def sums(result):
    import torch
    x = torch.randn(1 << 26, device="cuda")
    both(result, "sum 64 Mi f32", lambda x: x.sum(), lambda f: f(x))
    z = torch.randn(65536, 1024, device="cuda")
    both(result, "column sum 65536x1024 f32", lambda x: x.sum(0), lambda f: f(z))


def updates(result):
    """Of the optimizer's eager ways the fastest counts."""
    import torch
    name, best = "adamw 130 M f32", {}
    p = [torch.randn(1024, 1024, device="cuda", requires_grad=True) for _ in range(124)]
    for t in p:
        t.grad = torch.randn_like(t)
    for way in ({"foreach": True}, {"fused": True}):
        step = torch.optim.AdamW(p, lr=1e-3, **way).step
        for key, times in (("eager", TIMES), ("eager_alone", 1)):
            best[key] = min(best.get(key, 1e30), microseconds(step, times))
    result[name] = best
    try:
        torch._dynamo.reset()
        step = torch.compile(torch.optim.AdamW(p, lr=1e-3, foreach=True, capturable=True).step)
        best["compile"] = microseconds(step)
        best["compile_alone"] = microseconds(step, 1)
    except Exception as error:
        print(name, "compile:", str(error)[:300], file=sys.stderr)
    print(name, result[name], flush=True)


def measure(path):
    import torch
    torch.manual_seed(0)
    result = {}
    for part in (rows, losses, norms, sums, updates):
        part(result)
        torch.cuda.empty_cache()
    about = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0)}
    json.dump({**about, "cases": result}, open(path, "w"), indent=1)


def line(cells):
    return "| " + " | ".join(cells) + " |\n"


def value(rows, case):
    return rows[case]["value"] if case in rows else None


def record(case, ours, peer):
    """One case; what is missing is None."""
    us, raw, alone = (value(ours[g], case) for g in ("slice", "slice_raw", "slice_alone"))
    best = min([peer[k] for k in ("eager", "compile") if k in peer], default=None)
    best_alone = min([peer[k] for k in ("eager_alone", "compile_alone") if k in peer], default=None)
    shown = ours["slice"].get(case) or ours["slice_raw"].get(case)
    return {"case": case, "us": us, "raw_us": raw, "alone_us": alone, **peer,
            "ratio": best / shown["value"] if shown and best else None,
            "ratio_alone": best_alone / alone if alone and best_alone else None,
            "of_copy": shown and 100 * shown["ratio"]}


def rows_of(records, keys):
    text = ""
    for r in records:
        cells = [r["case"]]
        for key, form in keys:
            cells.append(form.format(r[key]) if r.get(key) is not None else "-")
        text += line(cells)
    return text


def header(names):
    return line(["case"] + names) + line(["---"] + ["---:"] * len(names))


def table(ours_path, peers_path, name, commit):
    read, peers = json.load(open(ours_path)), json.load(open(peers_path))
    ours = {"slice": {}, "slice_raw": {}, "slice_alone": {}}
    for r in read["results"]:
        ours[r["case"]][r["what"]] = r
    copy = next(g["copy of 1 GiB"]["value"] for g in ours.values() if "copy of 1 GiB" in g)
    date = datetime.date.today().isoformat()
    records = [record(case, ours, peer) for case, peer in peers["cases"].items()]
    us, ratio = "{:.1f}", "{:.2f}"
    with open(name + ".md", "w") as f:
        f.write(f"# The slice on one {peers['gpu']}\n\n{date}, commit {commit}, PyTorch "
                f"{peers['torch']}; a copy of 1 GiB moves {copy / 1000:.2f} TB/s, read and written.\n"
                "Microseconds a call between two events, the median of 15 rounds; random data, results "
                "checked against double in the\nsame run. `of the copy rate`: the fewest bytes that must "
                "move, over the time.\n\n## 20 calls one after the other\n\n")
        f.write(header(["Tenon", "its kernel by hand", "PyTorch eager", "torch.compile",
                        "best peer / Tenon", "of the copy rate"]))
        f.write(rows_of(records, [("us", us), ("raw_us", us), ("eager", us), ("compile", us),
                                  ("ratio", ratio), ("of_copy", "{:.0f} %")]))
        f.write("\n## One call alone, after a wait\n\n")
        f.write(header(["Tenon", "PyTorch eager", "torch.compile", "best peer / Tenon"]))
        f.write(rows_of(records, [("alone_us", us), ("eager_alone", us), ("compile_alone", us),
                                  ("ratio_alone", ratio)]))
    json.dump({"date": date, "commit": commit, "gpu": peers["gpu"], "torch": peers["torch"],
               "copy_gb_s": copy, "cases": records}, open(name + ".json", "w"), indent=1)
    print(open(name + ".md").read())


if __name__ == "__main__":
    {"measure": measure, "table": table}[sys.argv[1]](*sys.argv[2:])
