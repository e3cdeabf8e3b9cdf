"""07_save_and_resume.py: stop a training run at any step and resume it later, with equal bits.

A checkpoint is one file: weights, optimizer, position of the dataset, random counter, and a few values of the program's own.
"""
import os

import tenon as tn
from tenon import nn
from tenon.nn import functional as F


class Training:
    def __init__(self):
        tn.manual_seed(7)
        self.data = tn.data.digits(2000)
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 10))
        self.opt = tn.optim.Adam(self.net, accumulate=2, clip_norm=1.0)
        self.step, self.best = 0, 1e9

    def train(self, until):
        for self.step in range(self.step, until):
            x, y = self.data.next(32)
            loss = F.cross_entropy(self.net(x), y)
            self.opt.step(loss)
            self.best = min(self.best, loss.item())
        self.step = until

    def save(self, path):
        tn.checkpoint.save(path, self.net, self.opt, self.data, step=self.step, user={"best": self.best})

    def load(self, path):
        self.step, user = tn.checkpoint.load(path, self.net, self.opt, self.data)
        self.best = user["best"]


path = "resume.checkpoint"

whole = Training()  # 60 steps without a break
whole.train(60)

first = Training()  # 25 steps, then this program might end
first.train(25)
first.save(path)
print(f"saved after step {first.step}, best loss {first.best:.4f}")

second = Training()  # another run: everything is made again, then loaded
second.load(path)
print(f"resumed at step {second.step}, update {second.opt.updates}")
second.train(60)

same = all((a == b).all() for a, b in zip(whole.net.parameters(), second.net.parameters()))
print("weights after 60 steps:", "equal" if same and whole.best == second.best else "different")
os.remove(path)
