#!/usr/bin/env python3
"""Exchange on a GPU with PyTorch, JAX and CuPy where they are installed: run by hand on a machine with one.

    PYTHONPATH=build/python python3 python/test/gpu_exchange.py

It is no part of `make test`: values, addresses, the order of streams, functions as ops of PyTorch, CUDA text, CUDA graphs.
"""
import sys
import unittest

import tenon as tn

try:
    import torch
    import tenon.torch
    here = torch.cuda.is_available()
except ImportError:
    torch, here = None, False
try:
    import cupy
except ImportError:
    cupy = None
try:
    import jax
    import jax.numpy as jnp
    jax_gpu = any(d.platform == "gpu" for d in jax.devices())
except Exception:
    jax_gpu = False


class Consumer:
    """What CuPy does with __cuda_array_interface__, for machines without it."""

    def __init__(self, x):
        self.owner, self.facts = x, x.__cuda_array_interface__


@unittest.skipUnless(here, "PyTorch with CUDA is not here")
class OnAGPU(unittest.TestCase):
    def setUp(self):
        self.context = tn.Context("cuda")
        self.context.__enter__()

    def tearDown(self):
        self.context.__exit__()

    def test_dlpack_both_ways_without_waiting(self):
        x = tn.arange(1 << 20, dtype="f32")
        for _ in range(20):
            x = x * 1.0001  # work that is under way when the value is exported
        syncs = tn.stats().syncs
        t = torch.from_dlpack(x)
        self.assertEqual((t.device.type, tn.stats().syncs), ("cuda", syncs))
        self.assertTrue(torch.allclose(t, torch.arange(1 << 20, device="cuda").float() * 1.0001 ** 20, rtol=1e-4))
        y = tn.from_dlpack(t * 2)
        self.assertAlmostEqual(y[1000].item() / (2000 * 1.0001 ** 20), 1, places=4)
        x += 1
        self.assertEqual(t[0].item(), 0)
        self.assertEqual(x[0].item(), 1)

    def test_an_export_on_a_side_stream(self):
        side = torch.cuda.Stream()
        for i in range(50):
            x = tn.full((1 << 20,), float(i)) + 1
            with torch.cuda.stream(side):
                total = torch.from_dlpack(x).sum()
            del x
            y = tn.zeros(1 << 20) + 5  # may reuse the memory: after the sum
            tn._c.eval_of(y)
            side.synchronize()  # item() would read in the default stream, which PyTorch's other streams do not wait for
            self.assertEqual(total.item(), (i + 1) * (1 << 20))

    def test_an_import_from_a_side_stream(self):
        side = torch.cuda.Stream()
        for i in range(50):
            with torch.cuda.stream(side):
                t = torch.full((1 << 20,), float(i), device="cuda").mul_(2)
                x = tn.from_dlpack(t)
            self.assertEqual((x + 1)[-1].item(), 2 * i + 1)

    def test_to_the_host_and_back(self):
        x = tn.arange(5)
        self.assertEqual(x.numpy().tolist(), [0, 1, 2, 3, 4])
        self.assertEqual(torch.from_dlpack(x, device="cpu").tolist(), [0, 1, 2, 3, 4])
        self.assertEqual(tn.asarray(torch.ones(3).numpy()).device, self.context.device)
        with self.assertRaises(BufferError):
            x.__dlpack__(stream=0)
        with self.assertRaises(BufferError):
            x.__dlpack__(dl_device=(1, 0), copy=False)

    def test_cuda_array_interface(self):
        x = tn.arange(6, dtype="f32").reshape(2, 3).T
        facts = Consumer(x).facts
        self.assertEqual((facts["shape"], facts["strides"], facts["typestr"], facts["data"][1]), ((3, 2), (4, 12), "<f4", True))
        with self.assertRaisesRegex(TypeError, "read only flag"):  # PyTorch takes memory that it may write to alone
            torch.as_tensor(x, device="cuda")
        self.assertEqual(torch.from_dlpack(x).tolist(), x.tolist())
        if cupy is not None:
            self.assertEqual(cupy.asarray(x).get().tolist(), x.tolist())
            self.assertEqual(cupy.from_dlpack(x).get().tolist(), x.tolist())
            self.assertEqual(tn.from_dlpack(cupy.arange(4)).tolist(), [0, 1, 2, 3])

    @unittest.skipUnless(jax_gpu, "JAX with CUDA is not here")
    def test_jax(self):
        x = tn.arange(1000, dtype="f32") + 1
        self.assertEqual(float(jax.dlpack.from_dlpack(x).sum()), 500500)
        self.assertEqual(tn.from_dlpack(jnp.ones(10)).sum().item(), 10)

    def test_functions(self):
        f = tenon.torch.function(lambda x, w: tn.gelu(x @ w), name="gpu_gelu")
        x = torch.randn(64, 32, device="cuda", dtype=torch.float64, requires_grad=True)
        w = torch.randn(32, 16, device="cuda", dtype=torch.float64, requires_grad=True)
        want = torch.nn.functional.gelu(x @ w)
        self.assertTrue(torch.allclose(f(x, w), want))
        for a, b in zip(torch.autograd.grad(f(x, w).sum(), (x, w)), torch.autograd.grad(want.sum(), (x, w))):
            self.assertTrue(torch.allclose(a, b))
        torch.library.opcheck(f.op, (x, w))
        self.assertTrue(torch.autograd.gradcheck(f, (x[:3].detach().requires_grad_(), w)))
        compiled = torch.compile(lambda x, w: f(x, w).sum(), fullgraph=True)
        self.assertTrue(torch.allclose(compiled(x, w), want.sum()))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(50):
                y = f(x, w)
                self.assertTrue(torch.allclose(y, want))

    def test_functions_in_a_cuda_graph(self):
        f = tenon.torch.function(lambda x: tn.tanh(x) * 2, name="gpu_tanh")
        x = torch.randn(1024, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                f(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = f(x)
        for value in (1.0, -0.5):
            x.fill_(value)
            graph.replay()
            f(torch.full_like(x, 3))  # uses the same memory for what lies between
            self.assertTrue(torch.allclose(y, torch.tanh(x) * 2))

    def test_a_training_step_in_a_cuda_graph(self):
        f = tenon.torch.function(lambda x, w: tn.gelu(x @ w).sum(dim=1, keepdim=True) * 2, name="gpu_step")
        x = torch.randn(256, 64, device="cuda")
        w = torch.randn(64, 32, device="cuda", requires_grad=True)

        def step():
            w.grad = None
            f(x, w).sum().backward()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        for _ in range(3):
            x.normal_()
            graph.replay()
            v = w.detach().clone().requires_grad_()
            (torch.nn.functional.gelu(x @ v).sum() * 2).backward()
            self.assertTrue(torch.allclose(w.grad, v.grad, rtol=1e-3, atol=1e-3))

    def test_what_a_cuda_graph_cannot_have(self):
        new = tenon.torch.function(lambda x: tn.sigmoid(x) * 3 + x, name="gpu_new")
        drop = tenon.torch.function(lambda x: tn.nn.functional.dropout(x, 0.5, True), name="gpu_drop", random=True)
        x = torch.randn(1024, device="cuda")
        drop(x)
        for f, error in ((new, "run it once before the capture"), (drop, "random numbers")):
            with self.assertRaisesRegex(Exception, error):
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    f(x)
            torch.cuda.synchronize()
            self.assertEqual(f(x).shape, x.shape)

    def test_streams_of_two_kinds(self):
        f = tenon.torch.function(lambda x: (tn.exp(x) * 0.5).cumsum(dim=0) - 1, name="gpu_streams")
        streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
        x = torch.full((1 << 18,), 0.0, device="cuda")
        for i in range(60):
            s = streams[i % 3]
            s.wait_stream(streams[(i - 1) % 3])
            with torch.cuda.stream(s):
                x = f(x) * 0 + (i + 1) / 100
        streams[59 % 3].synchronize()
        self.assertEqual(x[5].item(), torch.tensor(0.6).item())

    def test_random_numbers_follow_the_generator(self):
        f = tenon.torch.function(lambda x: tn.nn.functional.dropout(x, 0.5, True), name="gpu_dropout", random=True)
        x = torch.ones(4096, device="cuda", requires_grad=True)
        torch.manual_seed(3)
        a, b = f(x), f(x)
        torch.manual_seed(3)
        c = f(x)
        self.assertTrue(torch.equal(a, c))
        self.assertFalse(torch.equal(a, b))
        self.assertAlmostEqual((a != 0).float().mean().item(), 0.5, delta=0.05)
        self.assertTrue(torch.equal(torch.autograd.grad(a.sum(), x)[0], a.detach()))  # the same are dropped

    def test_cuda_text(self):
        op = tenon.torch.cuda_op(
            'extern "C" __global__ void times(tn::in<0> x, tn::out<0> y, float factor) { long long i = tn::index(); '
            'if (i < y.count) y[i] = x[i] * factor; }',
            kernel="times", attrs={"factor": "f"}, launch=lambda x, out, factor: ((x.size + 255) // 256, 256),
            grad=lambda gy, y, x, factor: gy * factor)
        x = torch.randn(5000, device="cuda", requires_grad=True)
        y = op(x, 3.0)
        self.assertTrue(torch.allclose(y, x * 3))
        y.sum().backward()
        self.assertTrue(torch.allclose(x.grad, torch.full_like(x, 3)))
        torch.library.opcheck(op.op, (x, 2.0))


if __name__ == "__main__":
    if not here:
        print("gpu_exchange: no PyTorch with CUDA here")
        sys.exit(0)
    unittest.main()
