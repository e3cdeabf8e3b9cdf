"""Data-parallel steps on several processes of one machine, beside PyTorch DDP with Gloo.

    scaling.py BUILD [--ranks 1,2,4,8] [--threads 1,2] [--rounds 3] [--only mlp] [--markdown FILE]

Every rank has a batch of its own, of the same size for any number of ranks, so that a step ideally takes as long as
with one. The two take turns, and a row is the median of the rounds. Ranks of Tenon are started by `tenon launch`, with the mpiexec in
PATH; those of PyTorch are this file. Then what distribution costs with one rank: MPI asked for by name against no world.
TN_PYTHON names a Python that has PyTorch.
"""
import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

CASES = {"mlp": "mlp 784-1024-1024-10, 128 items a rank", "gpt2": "GPT-2 of 4 layers, width 256, 4 x 128 tokens a rank"}


# ---- a rank of PyTorch

def make(name, torch, nn, F):
    if name == "mlp":
        net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        return net, torch.rand(128, 784), torch.randint(0, 10, (128,))
    width, heads, vocab, tokens = 256, 4, 2048, 128

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = (t.view(B, T, heads, C // heads).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(C, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
            return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class GPT2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(tokens, width)
            self.h, self.ln_f = nn.ModuleList(Block() for _ in range(4)), nn.LayerNorm(width)

        def forward(self, x):
            x = self.wte(x) + self.wpe.weight[:x.shape[1]]
            for block in self.h:
                x = block(x)
            return F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1)

    return GPT2(), torch.randint(0, vocab, (4, tokens)), torch.randint(0, vocab, (4 * tokens,))


def run_rank(names):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn import functional as F

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    dist.init_process_group("gloo")
    for name in names.split(","):
        measure_rank(name, rank, size, torch, nn, F, dist)
    dist.destroy_process_group()


def measure_rank(name, rank, size, torch, nn, F, dist):
    torch.manual_seed(1 + rank)
    net, x, y = make(name, torch, nn, F)
    if size > 1:
        net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True, static_graph=True)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    def step():
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(net(x), y).backward()
        opt.step()

    for _ in range(3):
        step()
    start = time.perf_counter()
    step()
    n = torch.tensor(0.5 / (time.perf_counter() - start))
    dist.broadcast(n, 0)
    took = []
    dist.barrier()
    for _ in range(min(max(int(n), 7), 2000)):
        start = time.perf_counter()
        step()
        took.append(time.perf_counter() - start)
    if rank == 0:
        print(f"{name} {statistics.median(took):.9g}\ntorch {torch.__version__}")


# ---- starting ranks

def number(text, key="seconds"):
    for line in text.splitlines():
        if key + " " in line:
            return line.split(key + " ")[1].split()[0]
    return None


def tenon(build, name, ranks, threads, engine=""):
    rank = [f"{build}/tenon-bench", "--child", f"scaling:{name}" + (f":{engine}" if engine else "")]
    launch = [f"{build}/tenon", "launch", "-n", str(ranks)] if ranks > 1 else []
    env = {**os.environ, "TN_NUM_THREADS": str(threads)}
    done = subprocess.run(launch + rank, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    value = number(done.stdout)
    if value is None:
        print(done.stdout, file=sys.stderr)
    if engine:
        return float(number(done.stdout, "alone") or "nan"), float(value or "nan")
    return float(value) if value else None


def gloo(python, names, ranks, threads):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks),
           "OMP_NUM_THREADS": str(threads)}
    started = [subprocess.Popen([python, __file__, "--rank", ",".join(names)], env={**env, "RANK": str(r)}, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for r in range(ranks)]
    out = [p.communicate()[0] for p in started]
    if any(number(out[0], name) is None for name in names):
        print(out[0], file=sys.stderr)
    return {name: float(number(out[0], name) or "nan") for name in names}, number(out[0], "torch")


def middle(values):
    values = [v for v in values if v is not None and v == v]
    return statistics.median(values) if values else None


def ms(v):
    return f"{v * 1e3:.2f}" if v else "-"


def share(a, b):
    return f"{a / b:.2f}" if a and b else "-"


def measure(args):
    python, version = os.environ.get("TN_PYTHON", "python3"), None
    names = [n for n in CASES if args.only in n]
    rows, over = {}, {}
    for threads in args.threads:
        for ranks in args.ranks:
            ours, theirs = {n: [] for n in names}, {n: [] for n in names}
            for _ in range(args.rounds):
                for name in names:
                    ours[name].append(tenon(args.build, name, ranks, threads))
                if not args.no_peers:
                    took, v = gloo(python, names, ranks, threads)
                    version = v or version
                    for name in names:
                        theirs[name].append(took[name])
            for name in names:
                rows[name, threads, ranks] = middle(ours[name]), middle(theirs[name])
                print(f"{name} {threads} threads {ranks} ranks: {ms(rows[name, threads, ranks][0])} "
                      f"{ms(rows[name, threads, ranks][1])} ms", file=sys.stderr, flush=True)
            keep(args, rows, over, version)
    for name in names if args.overhead else []:
        pairs = [tenon(args.build, name, 1, args.threads[0], "mpi") for _ in range(args.overhead)]
        over[name] = middle([a for a, _ in pairs]), middle([b for _, b in pairs])
    return keep(args, rows, over, version)


def table(rows, over, version):
    rows = dict(sorted(rows.items(), key=lambda r: (list(CASES).index(r[0][0]), *r[0][1:])))
    peer = f"PyTorch {version}, DDP with Gloo" if version else "PyTorch"
    out = ["| case | threads a rank | ranks | Tenon, ms a step | efficiency | " + peer + ", ms | efficiency | ratio |",
           "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for (name, threads, ranks), (ours, theirs) in rows.items():
        first = rows.get((name, threads, 1), (None, None))
        out.append(f"| {CASES[name]} | {threads} | {ranks} | {ms(ours)} | {share(first[0], ours)} | {ms(theirs)} | "
                   f"{share(first[1], theirs)} | {share(ours, theirs)} |")
    out += ["", "Efficiency: the time with one rank over that with several, with as much work for each rank. Ratio: Tenon's time over PyTorch's."]
    if over:
        out += ["", "One rank, in a world by MPI and without a world, whose steps take turns in one process:", ""]
    for name, (without, within) in over.items():
        if without and within:
            out.append(f"- {CASES[name]}: {ms(without)} ms without, {ms(within)} ms within: {100 * (within / without - 1):+.1f} %")
    return "\n".join(out) + "\n"


def keep(args, rows, over, version):
    """Writes the table of what has been measured so far, so that a time limit leaves it."""
    text = table(rows, over, version)
    if args.markdown:
        with open(args.markdown, "w") as f:
            f.write("# Scaling on one machine\n\n" + f"`bench/scaling.py`, {os.cpu_count()} cores{args.about}.\n\n" + text)
    return text


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(v) for v in text.split(",")]  # noqa: E731
    p.add_argument("build", nargs="?", default="build")
    p.add_argument("--ranks", type=numbers, default=[1, 2, 4, 8])
    p.add_argument("--threads", type=numbers, default=[1, 2])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--overhead", type=int, default=3, help="runs of one rank; 0: none")
    p.add_argument("--only", default="")
    p.add_argument("--no-peers", action="store_true")
    p.add_argument("--markdown", help="a file for the table")
    p.add_argument("--about", default="", help="more about the run, for the head of that file")
    p.add_argument("--rank", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.rank:
        return run_rank(args.rank)
    print(measure(args))


if __name__ == "__main__":
    main()
