"""The GPU benches in PyTorch, eager and compiled, and in JAX.

    gpu_peers.py torch OUT.json FILES SECONDS    times PyTorch on this GPU
    gpu_peers.py jax OUT.json

A call is timed as Tenon times it: 20 calls one after the other between two events, the median of 15
rounds, on random data of the same sizes; outputs come from memory that earlier calls have left. A
training step is the wall time of 300. FILES is what Tenon left: weights, batches and results to
compare with. What fails is printed, and the rest goes on; after SECONDS nothing new is begun.
"""
import json
import statistics
import sys
import time

TIMES, ROUNDS, STEPS, WARM = 20, 15, 300, 20
started = time.monotonic()


class Results:
    """Written to the file after each case, so that nothing is lost."""

    def __init__(self, path, seconds):
        self.path, self.end, self.data = path, started + seconds, {"cases": {}, "notes": []}

    def note(self, name, error):
        text = f"{name}: {type(error).__name__}: {error}" if isinstance(error, Exception) else f"{name}: {error}"
        self.data["notes"].append(text[:300])
        print(text[:300], file=sys.stderr, flush=True)

    def add(self, name, **values):
        self.data["cases"].setdefault(name, {}).update(values)
        print(name, values, f"at {time.monotonic() - started:.0f} s", flush=True)
        self.save()

    def save(self):
        with open(self.path, "w") as f:
            json.dump(self.data, f, indent=1)

    def attempt(self, name, function, *args):
        """Runs function(*args), if there is time; its failure is a note."""
        if time.monotonic() > self.end:
            return self.note(name, "no time was left")
        try:
            return function(*args)
        except Exception as error:
            self.note(name, error)


def microseconds(call):
    import torch
    for _ in range(5):
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


# ---- single ops

def uniform(*size, dtype=None, grad=False):
    import torch
    x = (torch.rand(*size, device="cuda") * 6 - 3).to(dtype or torch.float32)
    return x.requires_grad_(grad)


def both(results, name, function, run, out=None):
    """run(f) calls f as a user would; f is the function, then what torch.compile makes of it. out
    writes into a tensor that is there, where PyTorch has such a form."""
    import torch

    def compiled():
        torch._dynamo.reset()
        f = torch.compile(function, dynamic=False)
        results.add(name, compile=microseconds(lambda: run(f)))

    eager = microseconds(lambda: run(function))
    results.add(name, eager=min(eager, microseconds(out)) if out else eager)
    results.attempt(name + ", compiled", compiled)


def maps(results):
    import torch
    for side in (4096, 16384):
        x = uniform(side, side)
        both(results, f"relu chain {side}^2 f32", lambda x: torch.relu(x) * 0.5 + 1, lambda f: f(x))
    x, v = uniform(4096, 4096), uniform(4096, 1)
    both(results, "tanh(x.T+v)*x 4096^2 f32", lambda x, v: torch.tanh(x.t() + v) * x, lambda f: f(x, v))


def softmaxes(results):
    import torch
    for r, c in ((8192, 4096), (65536, 128), (512, 131072), (1024, 50257)):
        x, y = uniform(r, c), torch.empty(r, c, device="cuda")
        both(results, f"softmax {r}x{c} f32", lambda x: torch.softmax(x, -1), lambda f: f(x),
             lambda: torch.softmax(x, -1, out=y))


def losses(results):
    import torch
    from torch.nn import functional as F
    x = uniform(8192, 50257, dtype=torch.bfloat16, grad=True)
    y = torch.randint(0, 50257, (8192,), device="cuda")
    both(results, "cross-entropy 8192x50257 bf16", lambda x: F.cross_entropy(x.float(), y),
         lambda f: torch.autograd.grad(f(x), x))


def norms(results):
    import torch
    from torch.nn import functional as F

    def make(*size, grad=True):
        return uniform(*size, dtype=torch.bfloat16, grad=grad)

    x, w, b = make(8192, 4096, grad=False), make(4096, grad=False), make(4096, grad=False)
    both(results, "layer norm 8192x4096 bf16, forward", lambda x, w, b: F.layer_norm(x, (4096,), w, b),
         lambda f: f(x, w, b))
    X, W, B, gy = make(8192, 4096), make(4096), make(4096), make(8192, 4096, grad=False)
    both(results, "layer norm 8192x4096 bf16", lambda x, w, b: F.layer_norm(x, (4096,), w, b),
         lambda f: torch.autograd.grad(f(X, W, B), (X, W, B), gy))


def sums(results):
    import torch
    x, y = uniform(1 << 26), torch.empty(1024, device="cuda")
    both(results, "sum 64 Mi f32", lambda x: x.sum(), lambda f: f(x))
    z = uniform(65536, 1024)
    both(results, "column sum 65536x1024 f32", lambda x: x.sum(0), lambda f: f(z),
         lambda: torch.sum(z, 0, out=y))


def linears(results):
    import torch
    from torch.nn import functional as F
    x, w, b = (uniform(*size, dtype=torch.bfloat16) for size in ((16384, 768), (3072, 768), (3072,)))
    both(results, "linear+gelu 16384x768x3072 bf16",
         lambda x: F.gelu(F.linear(x, w, b), approximate="tanh"), lambda f: f(x))


def updates(results):
    """Of the optimizer's ways the faster counts; clipping stands before the fused one."""
    import torch
    p = [uniform(1024, 1024, grad=True) for _ in range(124)]
    for t in p:
        t.grad = uniform(1024, 1024)
    ways = {way: torch.optim.AdamW(p, lr=1e-3, **{way: True}).step for way in ("foreach", "fused")}
    results.add("adamw 130 M f32", eager=min(microseconds(step) for step in ways.values()))

    def clip():
        torch.nn.utils.clip_grad_norm_(p, 1.0)
        ways["fused"]()

    results.add("clip + adamw 130 M f32", eager=microseconds(clip))


def products(results):
    import torch
    n = 8192
    for name, dtype, tf32 in (("bf16", torch.bfloat16, False), ("f16", torch.float16, False),
                              ("tf32", torch.float32, True), ("f32", torch.float32, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = uniform(n, n, dtype=dtype), uniform(n, n, dtype=dtype)
        y = torch.empty(n, n, device="cuda", dtype=dtype)
        results.add(f"matmul {n}^3 {name}", eager=microseconds(lambda: torch.matmul(a, b, out=y)))


# ---- training steps

def wall_microseconds(step, steps=STEPS):
    import torch
    for _ in range(WARM):
        step()
    took = []
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        took.append((time.perf_counter() - start) / steps * 1e6)
    return statistics.median(took)


def mlp(batch, files):
    """The network, its optimizer and its batch, as Tenon began with them."""
    import gpu_models
    import torch
    from torch import nn
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                        nn.Linear(128, 10)).cuda()
    left = gpu_models.read(f"{files}/mlp_{batch}.safetensors")
    x, y = (left.pop(key).cuda() for key in ("x", "y"))
    net.load_state_dict(left)
    return net, torch.optim.Adam(net.parameters(), lr=1e-3, fused=True, capturable=True), x, y


def mlp_step(net, opt, x, y):
    from torch.nn import functional as F

    def step():
        opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return step


def mlp_graph(net, opt, x, y):
    """The step captured by hand."""
    import torch
    from torch.nn import functional as F
    step, side = mlp_step(net, opt, x, y), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    opt.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        F.cross_entropy(net(x), y).backward()
        opt.step()
    return graph.replay


def steps(results, files):
    """Times with TF32; the losses of the first steps without, as Tenon has them."""
    import torch
    for batch in (64, 1024):
        name = f"mlp step, batch {batch}"

        def losses():
            torch.backends.cuda.matmul.allow_tf32 = False
            step = mlp_step(*mlp(batch, files))
            values = [step().item() for _ in range(WARM)]
            results.add(name, loss_1=values[0], loss_20=values[-1])

        def eager():
            torch.backends.cuda.matmul.allow_tf32 = True
            results.add(name, eager=wall_microseconds(mlp_step(*mlp(batch, files))))

        def graph():
            results.add(name, graph=wall_microseconds(mlp_graph(*mlp(batch, files))))

        def compiled():
            torch._dynamo.reset()
            net, opt, x, y = mlp(batch, files)
            step = mlp_step(torch.compile(net, mode="reduce-overhead"), opt, x, y)
            results.add(name, compile=wall_microseconds(step))

        for part in (losses, eager, graph, compiled):
            results.attempt(f"{name}, {part.__name__}", part)


def gpt2(results, files):
    import gpu_models
    import torch
    results.attempt("gpt2 first step", lambda: results.add("gpt2 first step", **gpu_models.compare(files)))
    torch.cuda.empty_cache()
    for way in ("eager", "compile"):
        results.attempt(f"gpt2 training, {way}",
                        lambda: results.add("gpt2 training", **{way: gpu_models.tokens_per_second(way == "compile")}))
        torch.cuda.empty_cache()


def measure_torch(path, files, seconds):
    import torch
    torch.manual_seed(0)
    results = Results(path, float(seconds))
    results.data |= {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0)}
    parts = [(f.__name__, f, ()) for f in (maps, softmaxes, norms, losses, sums, linears, updates, products)]
    parts += [(f.__name__, f, (files,)) for f in (steps, gpt2)]
    for name, part, more in parts:
        results.attempt(name, part, results, *more)
        torch.cuda.empty_cache()
    results.save()


# ---- JAX

def measure_jax(path):
    import jax
    import jax.numpy as jnp
    key = jax.random.PRNGKey(0)
    sizes = (784, 256, 128, 10)
    p = [(jax.random.normal(k, (a, b)) * 0.05, jnp.zeros(b))
         for k, a, b in zip(jax.random.split(key, 3), sizes, sizes[1:])]

    def loss(p, x, y):
        for i, (w, b) in enumerate(p):
            x = x @ w + b
            if i < 2:
                x = jax.nn.relu(x)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1))

    @jax.jit
    def step(p, m, v, t, x, y):
        value, g = jax.value_and_grad(loss)(p, x, y)
        m = jax.tree.map(lambda a, b: .9 * a + .1 * b, m, g)
        v = jax.tree.map(lambda a, b: .999 * a + .001 * b * b, v, g)
        p = jax.tree.map(lambda w, a, b: w - 1e-3 * (a / (1 - .9 ** t)) / (jnp.sqrt(b / (1 - .999 ** t)) + 1e-8),
                         p, m, v)
        return p, m, v, t + 1, value

    results = Results(path, 1e9)
    results.data["jax"] = jax.__version__
    for batch in (64, 1024):
        x, y = jax.random.normal(key, (batch, 784)), jax.random.randint(key, (batch,), 0, 10)
        zeros = jax.tree.map(jnp.zeros_like, p)
        s, value = (p, zeros, zeros, jnp.float32(1)), None
        for _ in range(WARM):
            *s, value = step(*s, x, y)
        value.block_until_ready()
        start = time.perf_counter()
        for _ in range(STEPS):
            *s, value = step(*s, x, y)
        value.block_until_ready()
        results.add(f"mlp step, batch {batch}", jax=(time.perf_counter() - start) / STEPS * 1e6)


if __name__ == "__main__":
    {"torch": measure_torch, "jax": measure_jax}[sys.argv[1]](*sys.argv[2:])
