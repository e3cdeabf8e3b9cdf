"""The same work in PyTorch: peers.py CASE prints `seconds T` and `torch VERSION`.

Each case is measured as Tenon measures it: fixed random data, warm-up, the median of repeated
steps. Of the ways PyTorch offers (of running Adam; eager or compiled) the fastest counts.
"""
import os
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def mlp_3():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))


def lstm():
    return nn.LSTM(512, 512, 2)


TRAINING = {"mlp_64": (mlp, 64), "mlp_128": (mlp, 128), "mlp_3_64": (mlp_3, 64), "lstm_64": (lstm, 64),
            "lenet_64": (lenet, 64)}


# The cases of inference.c.

def conv(i, o, k, stride=1, groups=1, act=None):
    parts = [nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o)]
    return nn.Sequential(*parts, *([act()] if act else []))


class Around(nn.Module):
    """y = end(body(x) + shortcut(x))"""

    def __init__(self, body, shortcut, end):
        super().__init__()
        self.body, self.shortcut, self.end = body, shortcut, end

    def forward(self, x):
        return self.end(self.body(x) + self.shortcut(x))


def resnet(depth):
    blocks, wider = {18: ((2, 2, 2, 2), 1), 50: ((3, 4, 6, 3), 4)}[depth]
    parts, i = [conv(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)], 64
    for count, c in zip(blocks, (64, 128, 256, 512)):
        for k in range(count):
            stride, o = (2 if k == 0 and c > 64 else 1), c * wider
            body = [conv(i, c, 3, stride, act=nn.ReLU), conv(c, o, 3)]
            if wider > 1:
                body = [conv(i, c, 1, act=nn.ReLU), conv(c, c, 3, stride, act=nn.ReLU), conv(c, o, 1)]
            shortcut = nn.Identity() if i == o and stride == 1 else conv(i, o, 1, stride)
            parts.append(Around(nn.Sequential(*body), shortcut, nn.ReLU()))
            i = o
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 1000))


def mobilenet():
    parts, i = [conv(3, 32, 3, 2, act=nn.ReLU6)], 32
    for times, o, count, first in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                   (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for k in range(count):
            stride, wide = (1 if k else first), i * times
            body = [conv(wide, wide, 3, stride, wide, nn.ReLU6), conv(wide, o, 1)]
            if times > 1:
                body.insert(0, conv(i, wide, 1, act=nn.ReLU6))
            body = nn.Sequential(*body)
            parts.append(Around(body, nn.Identity(), nn.Identity()) if stride == 1 and i == o else body)
            i = o
    return nn.Sequential(*parts, conv(i, 1280, 1, act=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Dropout(0.2), nn.Linear(1280, 1000))


INFERENCE = {"resnet18": (lambda: resnet(18), 1), "mobilenet": (mobilenet, 1),
             "resnet50_1": (lambda: resnet(50), 1), "resnet50_32": (lambda: resnet(50), 32)}


def times_of_inference(make, batch):
    net, x = make().eval(), torch.randn(batch, 3, 224, 224)
    with torch.inference_mode():
        yield median(lambda: net(x)), " eager"


# The cases of fused.c: each gives a function to compile, and a step that uses what it is given for
# that function.

def chain():
    x = torch.randn(1 << 24)

    def maps(x):
        return ((torch.relu(x * 1.5 + 0.25) * 0.5).square() - 0.125) * 0.75 + 1

    return maps, lambda f: f(x)


def softmax():
    x = torch.randn(8192, 4096)
    return lambda x: torch.softmax(x, 1), lambda f: f(x)


def layer_norm():
    x, w, b = (torch.randn(*size, requires_grad=True) for size in ((8192, 1024), (1024,), (1024,)))
    gy = torch.randn(8192, 1024)

    def step(f):
        y = f(x, w, b)
        return y, torch.autograd.grad(y, (x, w, b), gy)

    return lambda x, w, b: F.layer_norm(x, (1024,), w, b), step


def cross_entropy():
    x, target = torch.randn(2048, 50257, requires_grad=True), torch.randint(0, 50257, (2048,))

    def step(f):
        loss = f(x, target)
        return loss, torch.autograd.grad(loss, x)

    return F.cross_entropy, step


FUSED = {f.__name__: f for f in (chain, softmax, layer_norm, cross_entropy)}


# The case of decode.c: a token of GPT-2 124M with a cache of fixed size, as PyTorch's users write it.

class Block(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for name in ("k", "v"):
            self.register_buffer(name, torch.zeros(1, heads, length, width // heads))

    def forward(self, x, at):
        shape = (1, 1, self.heads, -1)
        q, k, v = (y.view(shape).transpose(1, 2) for y in self.qkv(self.ln_1(x)).chunk(3, -1))
        self.k[:, :, at:at + 1], self.v[:, :, at:at + 1] = k, v
        y = F.scaled_dot_product_attention(q, self.k[:, :, :at + 1], self.v[:, :, :at + 1])
        x = x + self.proj(y.transpose(1, 2).reshape(1, 1, -1))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers=12, heads=12, width=768, vocab=50257, length=256):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(1024, width)
        self.h = nn.ModuleList(Block(width, heads, length) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, token, at):
        x = self.wte(token) + self.wpe.weight[at]
        for block in self.h:
            x = block(x, at)
        return F.linear(self.ln_f(x), self.wte.weight)[:, -1].argmax(-1, keepdim=True)


def times_of_decoding(dtype):
    net = GPT2().to(dtype).eval()
    with torch.inference_mode():
        token, took = torch.zeros(1, 1, dtype=torch.long), []
        for at in range(56):
            before = time.perf_counter()
            token = net(token, at)
            took.append(time.perf_counter() - before)
    yield statistics.median(took[16:]), " eager"


DECODING = {"decode_f32": torch.float32, "decode_bf16": torch.bfloat16}


def median(step):
    start = time.perf_counter()
    for i in range(10):
        step()
        if i >= 1 and time.perf_counter() - start > 1:
            break
    took, start = [], time.perf_counter()
    while len(took) < 3 or (len(took) < 1000 and time.perf_counter() - start < 1.5):
        before = time.perf_counter()
        step()
        took.append(time.perf_counter() - before)
    return statistics.median(took)


def measure_training(make, batch, **settings):
    net = make()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3, **settings)
    x, y = torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
    if make is lstm:
        x = torch.randn(128, batch, 512)

    def step():
        opt.zero_grad()
        loss = net(x)[0].square().mean() if make is lstm else F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()

    return median(step)


def times_of_training(make, batch):
    for settings in ({}, {"foreach": True}, {"fused": True}):
        try:
            yield measure_training(make, batch, **settings), ""
        except (TypeError, RuntimeError):  # this version has no such way on the CPU
            pass


def times_of_fused(make):
    function, step = make()
    yield median(lambda: step(function)), " eager"
    try:
        compiled = torch.compile(function)
        yield median(lambda: step(compiled)), " compiled"
    except Exception:  # it wants a C++ compiler, and fails in many ways without
        pass


def times_of_pictures():
    """Batches of 64 pictures: by the process itself, or by as many workers as threads."""
    import torchvision.transforms as T
    from torchvision.datasets import ImageFolder

    change = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor()])
    data = torch.utils.data.ConcatDataset([ImageFolder(os.environ["TN_BENCH_PICTURES"], change)] * 40)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    loader = iter(torch.utils.data.DataLoader(data, 64, shuffle=True, num_workers=threads if threads > 1 else 0))
    next(loader)
    times = []
    for _ in range(20):
        began = time.perf_counter()
        next(loader)
        times.append(time.perf_counter() - began)
    yield sum(times) / len(times), ""  # workers hand over several at once, so the median would be of none


def main():
    name = sys.argv[1]
    if name == "pictures":
        times = times_of_pictures()
    elif name in DECODING:
        times = times_of_decoding(DECODING[name])
    elif name in INFERENCE:
        times = times_of_inference(*INFERENCE[name])
    else:
        times = times_of_fused(FUSED[name]) if name in FUSED else times_of_training(*TRAINING[name])
    best, way = min(times)
    print("torch", torch.__version__ + way)
    print("seconds %.9f" % best)


if __name__ == "__main__":
    main()
