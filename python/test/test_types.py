"""Programs as users write them pass a type checker."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

import tenon

PROGRAM = '''
import tenon as tn
import tenon.nn.functional as F
from tenon import nn, optim


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return tn.relu(self.fc(x))


net = nn.Sequential(Net(), nn.ReLU(), nn.Linear(2, 2))
opt = optim.AdamW(net.parameters(), lr=1e-3)
x = tn.softmax(tn.ones(2, 3), dim=1)
opt.step(F.cross_entropy(net(x), tn.tensor([0, 1])))
with tn.no_grad(), tn.autocast(tn.bfloat16):
    y: tn.Tensor = tn.sum(x, dim=1) + tn.randn(2, requires_grad=True)[tn.arange(2)]
tn.save({"y": y}, "file.safetensors")
values, places = x.max(1)
rows: int = x.size(0) + x.size


def pooled(x: tn.Tensor) -> tn.Tensor:
    x = tn.where(x > 0, x, 0.0).float() / tn.norm(x, 1)
    x = tn.concat([x.sum(dim=1), x.max(axis=1), values, x.std(1)]) + x.topk(1).values.add(x.mean(), alpha=2)
    return tn.from_numpy(x.numpy()) if x.size > 3 else tn.flip(x, 0).contiguous()
'''


@unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
class Types(unittest.TestCase):
    def test_a_program_of_a_user(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w") as f:
                f.write(PROGRAM)
            home = os.path.dirname(os.path.dirname(tenon.__file__))
            r = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", folder, path],
                               capture_output=True, text=True, env={**os.environ, "MYPYPATH": home})
            self.assertEqual((r.returncode, r.stdout), (0, "Success: no issues found in 1 source file\n"))


if __name__ == "__main__":
    unittest.main()
