"""Worlds of several ranks: without a launcher, and this file as the ranks of tenon launch."""
import os
import subprocess
import sys
import tempfile
import unittest

import tenon as tn
from tenon import distributed as dist
from tenon import nn, optim


def data():
    x = [[((i * 7 + j * 3) % 11) / 11 - 0.5 for j in range(6)] for i in range(20)]
    return tn.tensor(x), tn.tensor([i % 3 if i % 4 else -100 for i in range(20)])


def run_rank(path):
    """Trains for ten steps with everything that has to know of the other ranks; prints what rank 0 sees."""
    tn.set_default_context(tn.Context("cpu", seed=3))
    dist.init_process_group(timeout=60)
    dist.barrier()
    rank, size = dist.get_rank(), dist.get_world_size()
    ones = tn.ones(2) * (rank + 1)
    assert dist.all_reduce(ones, dist.ReduceOp.MAX).tolist() == [size, size]
    assert dist.all_gather(ones).tolist() == [i + 1 for i in range(size) for _ in range(2)]
    assert dist.reduce_scatter(tn.ones(size)).tolist() == [size]
    assert dist.broadcast(ones, size - 1).tolist() == [size, size]
    loader = dist.shard(tn.data.DataLoader(tn.data.TensorDataset(*data()), 7, shuffle=True, seed=1))
    net = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Dropout(0.2), nn.Linear(9, 3))
    dist.sync_batch_norm(net)
    opt = optim.AdamW(net, lr=0.01).distribute(bucket_bytes=256, shard_state=True)
    losses = []
    for _ in range(4):
        for x, y in loader:
            total = nn.functional.cross_entropy(net(x), y, reduction="sum")
            loss = dist.mean(total, (y >= 0).sum())
            shown = dist.all_reduce(loss.detach(), dist.ReduceOp.AVG)
            opt.step(loss)
            losses.append(shown.item())
    tn.checkpoint.save(path, net, opt, loader, step=12, sharded=True)
    other = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Dropout(0.2), nn.Linear(9, 3))
    assert tn.checkpoint.load(path, other, optim.AdamW(other, lr=0.01), loader).step == 12
    assert other[0].weight.tolist() == net[0].weight.tolist()
    if rank == 0:
        print("losses", *losses)
    dist.destroy_process_group()


def run_ending_rank(how):
    """Rank 1 raises or exits, the others wait for it."""
    dist.init_process_group(timeout=60)
    dist.barrier()
    if dist.get_rank() == 1 and how == "exit":
        sys.exit(7)
    if dist.get_rank() == 1:
        raise ValueError("a target of \x27seven\x27")
    dist.barrier()


class Distributed(unittest.TestCase):
    def test_without_a_launcher_there_is_one_rank(self):
        x = tn.tensor([1.0, 2.0])
        for _ in range(2):
            self.assertEqual((dist.get_rank(), dist.get_world_size(), dist.get_backend()), (0, 1, "none"))
            self.assertEqual(dist.all_reduce(x, dist.ReduceOp.AVG).tolist(), [1, 2])
            self.assertEqual(dist.all_gather(dist.broadcast(dist.reduce_scatter(x))).tolist(), [1, 2])
            self.assertEqual(dist.mean(x.sum(), tn.tensor(2)).item(), 1.5)
            dist.barrier()
            if not dist.is_initialized():
                dist.init_process_group()
        with self.assertRaisesRegex(RuntimeError, "open already"):
            dist.init_process_group()
        dist.destroy_process_group()
        with self.assertRaisesRegex(ValueError, "no engine"):
            dist.init_process_group("pigeons")

    def test_ranks_train_as_one(self):
        if subprocess.run(["sh", "-c", "mpiexec --version >/dev/null 2>&1"]).returncode:
            self.skipTest("there is no mpiexec in PATH")
        losses = []
        with tempfile.TemporaryDirectory() as folder:
            for ranks in (1, 2):
                launch = [sys.executable, "-m", "tenon", "launch", "-n", str(ranks)] if ranks > 1 else []
                done = subprocess.run([*launch, sys.executable, __file__, os.path.join(folder, f"ck{ranks}")], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertEqual(done.returncode, 0, done.stdout)
                line = next(line for line in done.stdout.splitlines() if "losses" in line)
                losses.append([float(v) for v in line.split("losses")[1].split()])
            self.assertIn("ck2.a.rank1of2", os.listdir(folder))
        self.assertEqual(len(losses[0]), 12)
        for one, two in zip(*losses):
            self.assertAlmostEqual(one, two, delta=1e-5 * one)

    def test_an_end_reaches_the_other_ranks(self):
        if subprocess.run(["sh", "-c", "mpiexec --version >/dev/null 2>&1"]).returncode:
            self.skipTest("there is no mpiexec in PATH")
        for how, said, why in (("raise", "ValueError: a target of 'seven'", r"ValueError: a target of 'seven' \(.*test_distributed.py:\d+\)"),
                               ("exit", "tenon launch: ended with status 7", "it ended with status 7")):
            done = subprocess.run([sys.executable, "-m", "tenon", "launch", "-n", "2", sys.executable, __file__, how],
                                  text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stdout, r"\[0\] .*rank 1 \(process .*\) failed: " + why)
            self.assertIn(f"[1] {said}", done.stdout)


if __name__ == "__main__":
    run_ending_rank(sys.argv[1]) if sys.argv[1] in ("raise", "exit") else run_rank(sys.argv[1])
