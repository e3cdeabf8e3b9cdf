"""04_conv.py: a module of your own: a small residual network for digits, trained with augmented images and a schedule.

    python 04_conv.py [steps]
"""
import sys

import tenon as tn
from tenon import nn
from tenon.nn import functional as F

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 120


class Block(nn.Module):
    """Two convolutions with batch norm, and a shortcut around them."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + x)


net = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2, padding=1), Block(16),
    nn.Conv2d(16, 32, 3, stride=2, padding=1), Block(32),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
print(net)
print(sum(p.numel() for p in net.parameters()), "parameters")

data = tn.data.digits(10000).augment(shift=2)
opt = tn.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
schedule = tn.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps)

right = seen = 0
for step in range(1, steps + 1):
    x, y = data.next(32)
    logits = net(x)
    loss = F.cross_entropy(logits, y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    schedule.step()
    right += int((logits.argmax(dim=1) == y).sum())
    seen += len(y)
    if step % 30 == 0:
        print(f"step {step:3}  lr {schedule.get_last_lr()[0]:.3f}  loss {loss:.3f}  right {right / seen:.0%}")
        right = seen = 0
