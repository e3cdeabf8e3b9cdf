"""The slice in PyTorch, eager and compiled, and the table that puts it beside Tenon's.

    slice_peers.py measure PEERS.json          times PyTorch on this GPU
    slice_peers.py table OURS.json PEERS.json NAME COMMIT

`table` writes NAME.md and NAME.json. A call is timed as Tenon times it: 20 calls one after the
other between two events, the median of seven such rounds, on random data of the same sizes.
"""
import datetime
import json
import statistics
import sys

TIMES, ROUNDS = 20, 7


def microseconds(call):
    import torch
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    took = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(TIMES):
            call()
        end.record()
        torch.cuda.synchronize()
        took.append(start.elapsed_time(end) / TIMES * 1e3)
    return statistics.median(took)


def both(result, name, function, run):
    """run(f) calls f as a user would; f is the function, then what torch.compile makes of it."""
    import torch
    torch._dynamo.reset()
    result[name] = {"eager": microseconds(lambda: run(function))}
    try:
        compiled = torch.compile(function, dynamic=False)
        result[name]["compile"] = microseconds(lambda: run(compiled))
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
    name, best = "adamw 130 M f32", None
    p = [torch.randn(1024, 1024, device="cuda", requires_grad=True) for _ in range(124)]
    for t in p:
        t.grad = torch.randn_like(t)
    for way in ({"foreach": True}, {"fused": True}):
        took = microseconds(torch.optim.AdamW(p, lr=1e-3, **way).step)
        best = took if best is None else min(best, took)
    result[name] = {"eager": best}
    try:
        opt = torch.optim.AdamW(p, lr=torch.tensor(1e-3), foreach=True)
        torch._dynamo.reset()
        result[name]["compile"] = microseconds(torch.compile(opt.step, fullgraph=False))
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


def row(case, ours, peer):
    """One case as cells and as a record; what is missing is a dash."""
    best = min([v for v in peer.values()], default=None)
    recorded, by_hand = ours["slice"].get(case), ours["slice_raw"].get(case)
    first = recorded or by_hand
    record = {"case": case, "us": recorded and recorded["value"], "raw_us": by_hand and by_hand["value"],
              "eager_us": peer.get("eager"), "compile_us": peer.get("compile"),
              "ratio": best / first["value"] if first and best else None,
              "of_copy": first and first["ratio"]}
    def cell(value, form):
        return form.format(value) if value is not None else "-"
    text = [cell(record[k], "{:.1f}") for k in ("us", "raw_us", "eager_us", "compile_us")]
    of_copy = record["of_copy"] and 100 * record["of_copy"]
    return record, [case, *text, cell(record["ratio"], "{:.2f}"), cell(of_copy, "{:.0f} %")]


def table(ours_path, peers_path, name, commit):
    read, peers = json.load(open(ours_path)), json.load(open(peers_path))
    ours = {"slice": {}, "slice_raw": {}}
    for r in read["results"]:
        ours[r["case"]][r["what"]] = r
    copy = next(g["copy of 1 GiB"]["value"] for g in ours.values() if "copy of 1 GiB" in g)
    date = datetime.date.today().isoformat()
    records, text = [], ""
    for case, peer in peers["cases"].items():
        record, cells = row(case, ours, peer)
        records.append(record)
        text += line(cells)
    head = ["case", "Tenon", "by hand in the IR", "PyTorch eager", "torch.compile", "best peer / Tenon",
            "of the copy rate"]
    with open(name + ".md", "w") as f:
        f.write(f"# The slice on one {peers['gpu']}\n\n{date}, commit {commit}, PyTorch "
                f"{peers['torch']}; a copy moves {copy / 1000:.2f} TB/s, read and written.\n"
                "Microseconds a call, 20 calls between two events, the median of seven rounds; random "
                "data, results checked\nagainst double in the same run. `of the copy rate`: the fewest "
                "bytes that must move, over the time.\n\n")
        f.write(line(head) + line(["---"] + ["---:"] * (len(head) - 1)) + text)
    json.dump({"date": date, "commit": commit, "gpu": peers["gpu"], "torch": peers["torch"],
               "copy_gb_s": copy, "cases": records}, open(name + ".json", "w"), indent=1)
    print(open(name + ".md").read())


if __name__ == "__main__":
    {"measure": measure, "table": table}[sys.argv[1]](*sys.argv[2:])
