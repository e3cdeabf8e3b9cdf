"""03_mlp.py: train a two-layer perceptron on images of digits, and measure its accuracy.

    python 03_mlp.py [epochs]
"""
import sys

import tenon as tn
from tenon import nn
from tenon.data import DataLoader, progress

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 5

# The images are drawn on demand, so there is nothing to download. The test images differ.
train = DataLoader(tn.data.digits(20000), batch_size=64, shuffle=True)
test = DataLoader(tn.data.digits(2000, test=True), batch_size=500)

net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
opt = tn.optim.AdamW(net.parameters(), lr=1e-3)


def accuracy() -> float:
    net.eval()
    with tn.no_grad():
        right = sum(int((net(x).argmax(dim=1) == y).sum()) for x, y in test)
    net.train()
    return right / len(test.dataset)


for epoch in range(epochs):
    bar = progress(train, f"epoch {epoch + 1}")
    for x, y in bar:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.step(loss)  # zero_grad(), loss.backward() and step() in one: the whole step is one plan
        bar.note(loss=loss)
    print(f"epoch {epoch + 1}  test accuracy {accuracy():.1%}")

tn.save(net, "mlp.safetensors")
