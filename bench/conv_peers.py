"""Convolution networks in PyTorch on a GPU: what Tenon's gpu_conv is put beside. peer_kit.py says how it is called.

Networks and inputs are channels last. Training is compiled, under bf16 autocast or in TF32, with the fused SGD;
inference in f16 is compiled with CUDA graphs; lenet's steps are compiled with graphs, and recorded as a graph by
hand. Parts are training, small (lenet), inference, losses, eager. QUICK=1 takes small inputs, to try the program.
"""
import os

import torch
from torch import nn
from torch.nn import functional as F

from gpu_models import read
from peer_kit import CUDA, DEVICE, main, peak_gib, time_loop
from peers import lenet, mobilenet

QUICK = bool(os.environ.get("QUICK"))
torch.backends.cudnn.benchmark = True
SECONDS, MOST = (0.0, 3) if QUICK else (1.0, 300)


# ---- networks

class Block(nn.Module):
    """A block of a ResNet with torchvision's names; without a width of a middle it has two convolutions."""

    def __init__(self, i, width, stride, bottleneck, cifar):
        super().__init__()
        o = 4 * width if bottleneck else width
        sizes = ((i, width, 1, 1), (width, width, 3, stride), (width, o, 1, 1)) if bottleneck else \
            ((i, width, 3, stride), (width, width, 3, 1))
        self.count, self.pad = len(sizes), o // 4 if cifar and i != o else 0
        for n, (a, b, k, s) in enumerate(sizes, 1):
            setattr(self, f"conv{n}", nn.Conv2d(a, b, k, s, k // 2, bias=False))
            setattr(self, f"bn{n}", nn.BatchNorm2d(b))
        self.downsample = None
        if not cifar and (stride != 1 or i != o):
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        y = x
        for n in range(1, self.count + 1):
            y = getattr(self, f"bn{n}")(getattr(self, f"conv{n}")(y))
            if n < self.count:
                y = F.relu(y)
        if self.downsample:
            x = self.downsample(x)
        elif self.pad:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(x + y)


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck=False, cifar=False):
        super().__init__()
        width = i = 16 if cifar else 64
        self.conv1 = nn.Conv2d(3, i, 3, 1, 1, bias=False) if cifar else nn.Conv2d(3, i, 7, 2, 3, bias=False)
        self.bn1, self.stages, self.cifar = nn.BatchNorm2d(i), len(blocks), cifar
        for n, count in enumerate(blocks, 1):
            stage = []
            for k in range(count):
                stage.append(Block(i, width, 2 if k == 0 and n > 1 else 1, bottleneck, cifar))
                i = 4 * width if bottleneck else width
            setattr(self, f"layer{n}", nn.Sequential(*stage))
            width *= 2
        self.last = "linear" if cifar else "fc"
        setattr(self, self.last, nn.Linear(i, 10 if cifar else 1000))
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if not self.cifar:
            x = F.max_pool2d(x, 3, 2, 1)
        for n in range(1, self.stages + 1):
            x = getattr(self, f"layer{n}")(x)
        return getattr(self, self.last)(F.adaptive_avg_pool2d(x, 1).flatten(1))


def resnet18():
    return ResNet((2, 2, 2, 2))


def resnet50():
    return ResNet((3, 4, 6, 3), bottleneck=True)


def resnet20():
    return ResNet((3, 3, 3), cifar=True)


class UNet(nn.Module):
    def __init__(self, width=32, levels=5, classes=2):
        super().__init__()
        sizes = [width << i for i in range(levels)]

        def convs(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
                                 nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        self.down = nn.ModuleList(convs(sizes[i - 1] if i else 3, sizes[i]) for i in range(levels))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * s, s, 2, stride=2) for s in sizes[:-1])
        self.joined = nn.ModuleList(convs(2 * s, s) for s in sizes[:-1])
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = []
        for i, down in enumerate(self.down):
            x = down(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for i in reversed(range(len(self.up))):
            x = self.joined[i](torch.cat([kept[i], self.up[i](x)], 1))
        return self.out(x)


# ---- training: network, batch, side, classes, whether each pixel has one, whether in bf16

TRAINING = {
    "ResNet-50 training, B 256": (resnet50, 256, 224, 1000, False, True),
    "MobileNetV2 training, B 256": (mobilenet, 256, 224, 1000, False, True),
    "U-Net training, B 16": (UNet, 16, 256, 2, True, True),
    "ResNet-50 training, B 64": (resnet50, 64, 224, 1000, False, True),
    "ResNet-18 training, B 256": (resnet18, 256, 224, 1000, False, True),
    "ResNet-50 training in TF32, B 64": (resnet50, 64, 224, 1000, False, False),
}


def images(batch, channels, side):
    batch, side = (2, min(side, 32)) if QUICK else (batch, side)
    return torch.randn(batch, channels, side, side, device=DEVICE).to(memory_format=torch.channels_last)


def train(case, compiled, most=MOST):
    make, batch, side, classes, dense, bf16 = TRAINING[case]
    net = make().to(DEVICE, memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True)
    x = images(batch, 3, side)
    y = torch.randint(0, classes, (x.shape[0], *x.shape[2:]) if dense else (x.shape[0],), device=DEVICE)
    run = torch.compile(net) if compiled else net

    def step():
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(run(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)

    first, took = time_loop(step, 5, SECONDS, most)
    return took and {"img/s": x.shape[0] / took, "first step": first, "peak": peak_gib()}


def training(results):
    for case in TRAINING:
        results.add(case, "compile", lambda: train(case, True))


def eager(results):
    for case in ("ResNet-50 training, B 256", "ResNet-50 training, B 64"):
        results.add(case, "eager", lambda: train(case, False))


# ---- lenet

LENET = {"lenet training, B 64": 64, "lenet training, B 1024": 1024}


def train_lenet(case, way, most=MOST):
    net = lenet().to(DEVICE)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True, capturable=CUDA)
    x = torch.randn(2 if QUICK else LENET[case], 1, 28, 28, device=DEVICE)
    y = torch.randint(0, 10, (x.shape[0],), device=DEVICE)
    run = torch.compile(net, mode="reduce-overhead") if way == "compile" else net

    def step():
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(run(x), y).backward()
        opt.step()

    if way == "graph":
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(5):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        step = graph.replay
    _, took = time_loop(step, 20, SECONDS, most)
    return took and took * 1e6


def small(results):
    for case in LENET:
        for way in ("graph", "compile", "eager"):
            results.add(case, way, lambda: train_lenet(case, way))


# ---- inference

INFERENCE = {
    "ResNet-50 inference, B 64": (resnet50, 64), "ResNet-50 inference, B 1": (resnet50, 1),
    "MobileNetV2 inference, B 1": (mobilenet, 1), "MobileNetV2 inference, B 256": (mobilenet, 256),
    "ResNet-50 inference, B 256": (resnet50, 256),
}


def infer(case, most=MOST):
    make, batch = INFERENCE[case]
    net = make().to(DEVICE, torch.float16, memory_format=torch.channels_last).eval()
    x = images(batch, 3, 224).half()
    run = torch.compile(net, mode="reduce-overhead")
    with torch.inference_mode():
        first, took = time_loop(lambda: run(x), 8, SECONDS, most)
    return took and {"img/s": x.shape[0] / took, "first step": first, "peak": peak_gib()}


def inference(results):
    for case in INFERENCE:
        results.add(case, "compile", lambda: infer(case))


# ---- losses from Tenon's weights and batches

FOLLOWED = {"ResNet-20 losses, B 128": (resnet20, "resnet20", 0.003),
            "ResNet-50 losses, B 16": (resnet50, "resnet50", 0.001)}


def follow(files, make, file, lr, bf16, layout, count):
    """The losses of PyTorch's first steps."""
    net = make()
    weights = {name: t for name, t in read(f"{files}/{file}.safetensors").items() if "num_batches" not in name}
    missing, unknown = net.load_state_dict(weights, strict=False)
    if unknown or [name for name in missing if "num_batches" not in name]:
        raise ValueError(f"names differ: {missing[:3]} {unknown[:3]}")
    net = net.to(DEVICE, memory_format=layout)
    opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    data = {name: t.to(DEVICE) for name, t in read(f"{files}/{file}_batches.safetensors").items()}
    losses = []
    for i in range(count):
        x, y = (data[f"{name}{i % (len(data) // 2)}"] for name in "xy")
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(net(x.to(memory_format=layout)), y)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def differences(a, b):
    return [abs(x - y) / abs(y) for x, y in zip(a, b)]


def compare(files, make, file, lr, precision):
    """Tenon's losses beside PyTorch's, and how far PyTorch is from itself with images stored in another order."""
    ours = read(f"{files}/{file}_{precision}.safetensors")["losses"].tolist()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        last, first = (follow(files, make, file, lr, precision == "bf16", layout, len(ours))
                       for layout in (torch.channels_last, torch.contiguous_format))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    return {"tenon": ours, "torch": last, "difference": differences(ours, last), "torch's own": differences(first, last)}


def losses(results):
    for case, (make, file, lr) in FOLLOWED.items():
        for precision in ("f32", "bf16"):
            results.add(case, precision, lambda: compare(results.files, make, file, lr, precision), again=True)


# ---- compiling ahead: it takes most of the time, and one core

AHEAD = ([lambda c=c: train(c, True, 0) for c in TRAINING] + [lambda c=c: infer(c, 0) for c in INFERENCE]
         + [lambda c=c: train_lenet(c, "compile", 0) for c in LENET])

if __name__ == "__main__":
    main((training, small, inference, losses, eager), AHEAD)
