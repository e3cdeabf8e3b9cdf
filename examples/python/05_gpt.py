"""05_gpt.py: a very small GPT learns a nursery rhyme, byte by byte, and continues it.

    python 05_gpt.py [steps]

B batch, T time, V vocabulary, C width
"""
import sys

import tenon as tn
from tenon import nn
from tenon.nn import functional as F

B, T, V, C, HEADS, LAYERS = 16, 32, 128, 64, 4, 2
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200

TEXT = """This is the house that Jack built.
This is the malt that lay in the house that Jack built.
This is the rat that ate the malt that lay in the house that Jack built.
This is the cat that killed the rat that ate the malt that lay in the house that Jack built.
"""


class Block(nn.Module):
    """Attention to what came before, then two linear layers, each added to its input."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        b, t, _ = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, t, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4)  # 3, B, HEADS, T, C / HEADS
        y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, C))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, V, bias=False)

    def forward(self, ids):
        x = self.token(ids) + self.place(tn.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


tn.manual_seed(1)
tokens = tn.tensor(list(TEXT.encode()))
windows = tn.arange(T + 1)
net = GPT()
opt = tn.optim.AdamW(net.parameters(), lr=3e-3)
print(sum(p.numel() for p in net.parameters()), "parameters")

for step in range(steps):
    starts = tn.randint(0, len(TEXT) - T, (B, 1))
    batch = tokens[starts + windows]  # (B, T + 1)
    logits = net(batch[:, :-1])
    loss = F.cross_entropy(logits.reshape(B * T, V), batch[:, 1:].reshape(B * T))
    opt.step(loss)
    if step % 50 == 0:
        print(f"step {step:3}  loss {loss:.3f}")

line = list(b"This is the ")
net.eval()
with tn.no_grad():
    for _ in range(5 if steps < 50 else 80):
        logits = net(tn.tensor([line[-T:]]))[0, -1]
        line.append(int(tn.multinomial(F.softmax(logits / 0.5, dim=-1), 1)))
print(bytes(line).decode())
