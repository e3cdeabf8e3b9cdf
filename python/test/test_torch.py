"""Tenon inside PyTorch: functions as ops with gradients, fake tensors and torch.compile; weights by name."""
import threading
import unittest

import tenon as tn

try:
    import torch
    import tenon.torch
except ImportError:
    torch = None


@unittest.skipUnless(torch is not None, "PyTorch is not installed")
class Functions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        @tenon.torch.function
        def scaled(x, w, scale: float = 2.0):
            return tn.tanh(x @ w) * scale

        @tenon.torch.function(outputs=2)
        def parts(x):
            return x.sum(1), tn.argmax(x, 1)

        @tenon.torch.function(random=True)
        def dropped(x):
            return tn.dropout(x, 0.5, True)

        cls.scaled, cls.parts, cls.dropped = scaled, parts, dropped

    def arguments(self, dtype=None):
        torch.manual_seed(1)
        dtype = dtype or torch.float64
        return torch.randn(3, 4, dtype=dtype, requires_grad=True), torch.randn(4, 5, dtype=dtype, requires_grad=True)

    def test_values_and_gradients(self):
        x, w = self.arguments()
        y = Functions.scaled(x, w, 3.0)
        want = torch.tanh(x @ w) * 3
        self.assertTrue(torch.allclose(y, want))
        gy = torch.randn_like(y)
        for a, b in zip(torch.autograd.grad(y, (x, w), gy), torch.autograd.grad(want, (x, w), gy)):
            self.assertTrue(torch.allclose(a, b))
        self.assertTrue(torch.allclose(Functions.scaled(x, w), torch.tanh(x @ w) * 2))
        self.assertTrue(torch.allclose(Functions.scaled(scale=1.0, w=w, x=x), torch.tanh(x @ w)))
        g = torch.autograd.grad(Functions.scaled(x[:1].expand(3, 4), w).sum(), x)[0]
        self.assertTrue(torch.allclose(g, torch.autograd.grad((torch.tanh(x[:1].expand(3, 4) @ w) * 2).sum(), x)[0]))
        # A transposed argument, and one that needs no gradient.
        t = torch.randn(4, 3, dtype=torch.float64)
        y = Functions.scaled(t.T, w)
        y.sum().backward()
        self.assertTrue(torch.allclose(w.grad, t @ (2 * (1 - torch.tanh(t.T @ w) ** 2))))

    def test_second_gradients(self):
        f = tenon.torch.function(lambda x, w, k: tn.exp(x) * tn.tanh(x * w) * k.sum(), name="second")
        x, w, k = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(3))
        self.assertTrue(torch.autograd.gradgradcheck(f, (x, w, k)))
        self.assertTrue(torch.autograd.gradgradcheck(f, (x, w.detach(), k)))
        two = tenon.torch.function(lambda x, p: (x * x * x, (x > p).to("i64"), tn.sin(x) * p), name="second_two", outputs=3)
        self.assertTrue(torch.autograd.gradgradcheck(lambda x, p: two(x, p)[::2], (x, w)))
        g = torch.autograd.grad(f(x, w, k).sum(), x, create_graph=True)[0]
        with self.assertRaisesRegex(RuntimeError, "no third gradient"):
            torch.autograd.grad(g.sum(), x, create_graph=True)
        y = torch.autograd.grad(f.op(x, w, k).sum(), x, create_graph=True)[0]
        with self.assertRaisesRegex(RuntimeError, "no second gradient"):  # of the op itself
            y.sum().backward()

    def test_transforms(self):
        f = tenon.torch.function(lambda x, k: tn.sin(x) * x * k, name="transformed")
        x, k = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)

        def theirs(x, k):
            return torch.sin(x) * x * k

        for call in (lambda f: torch.func.grad(lambda x: f(x, k).sum())(x),
                     lambda f: torch.func.grad(lambda k: torch.func.grad(lambda x: f(x, k).sum())(x).sum())(k),
                     lambda f: torch.func.jacrev(f)(x, k), lambda f: torch.func.vjp(f, x, k)[1](x)[1],
                     lambda f: torch.func.jacrev(torch.func.jacrev(lambda x: f(x, k)))(x),
                     lambda f: torch.func.vmap(torch.func.grad(lambda x: f(x, k).sum()))(torch.stack([x, k]))):
            self.assertTrue(torch.allclose(call(f), call(theirs)))
        for call in (lambda: torch.func.jvp(f, (x, k), (x, k)), lambda: torch.func.hessian(lambda x: f(x, k).sum())(x)):
            with self.assertRaisesRegex(NotImplementedError, "transformed has no forward-mode derivative.*jacrev"):
                call()
        with torch.autograd.forward_ad.dual_level(), self.assertRaisesRegex(NotImplementedError, "forward-mode"):
            f(torch.autograd.forward_ad.make_dual(x, k), k)

    def test_a_tensor_that_is_no_argument(self):
        c = tn.tensor([1.0, 2, 3])
        with self.assertRaisesRegex(ValueError, "captures uses a tensor of Tenon that is no argument"):
            tenon.torch.function(lambda x: x * c, name="captures")(torch.ones(3))

    def test_streams_of_random_numbers(self):
        f = tenon.torch.function(lambda x: tn.nn.functional.dropout(x, 0.5, True), name="draws", random=True)
        x = torch.ones(4096, requires_grad=True)
        torch.manual_seed(3)
        a, b = f(x), f(x)
        torch.manual_seed(3)
        c = f(x)
        torch.manual_seed(3)
        d = f.op(x, torch.randint(0, 2**62, ()))  # the op and the plain call are one
        self.assertTrue(torch.equal(a, c) and torch.equal(a, d))
        self.assertFalse(torch.equal(a, b))
        for y in (a, d):
            self.assertTrue(torch.equal(torch.autograd.grad(y.sum(), x)[0], a.detach()))

    def test_random_numbers_that_nobody_announced(self):
        def drops(x, train: bool):
            return tn.dropout(x, 0.5, train)

        f = tenon.torch.function(drops, name="draws_unsaid")
        x = torch.ones(8, requires_grad=True)
        self.assertTrue(torch.equal(f(x, False), x))
        with self.assertRaisesRegex(RuntimeError, r"draws_unsaid draws random numbers.*random=True"):
            f(x, True)
        with self.assertRaisesRegex(RuntimeError, "random=True"):
            torch.compile(lambda x: f(x, True) * 2, backend="aot_eager", fullgraph=True)(x)

    def test_gradcheck(self):
        self.assertTrue(torch.autograd.gradcheck(lambda x, w: Functions.scaled(x, w, 0.5), self.arguments()))

    def test_opcheck(self):
        x, w = self.arguments()
        torch.library.opcheck(Functions.scaled.op, (x, w, 2.0))
        torch.library.opcheck(Functions.parts.op, (x,))
        torch.library.opcheck(Functions.scaled._backward_op,
                              ([torch.ones(3, 5, dtype=torch.float64)], [True, False], x.detach(), w.detach(), 2.0))

    def test_several_outputs(self):
        x = torch.tensor([[1.0, 5, 2], [4, 0, 3]], requires_grad=True)
        total, where = Functions.parts(x)
        self.assertEqual((total.tolist(), where.tolist(), where.dtype), ([8, 7], [1, 0], torch.int64))
        self.assertFalse(where.requires_grad)
        total.sum().backward()
        self.assertTrue(torch.equal(x.grad, torch.ones(2, 3)))

    def test_random_numbers_come_from_pytorch(self):
        x = torch.ones(100, requires_grad=True)
        torch.manual_seed(3)
        a = Functions.dropped(x)
        b = Functions.dropped(x)
        torch.manual_seed(3)
        self.assertTrue(torch.equal(Functions.dropped(x), a) and not torch.equal(a, b))
        a.sum().backward()
        self.assertTrue(torch.equal(x.grad, a))  # the same elements were dropped

    def test_compile(self):
        x, w = self.arguments(torch.float32)

        def model(x, w):
            return (Functions.scaled(x * 2, w) + 1).sum()
        want = torch.autograd.grad(model(x, w), (x, w))
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        got = torch.autograd.grad(compiled(x, w), (x, w))
        for a, b in zip(got, want):
            self.assertTrue(torch.allclose(a, b))

    def test_fake_tensors_and_meta(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            y = Functions.scaled(torch.empty(7, 4), torch.empty(4, 2))
            self.assertEqual((tuple(y.shape), y.dtype), ((7, 2), torch.float32))

    def test_arguments_that_are_wrong(self):
        x, w = self.arguments(torch.float32)
        with self.assertRaises(tn.ShapeError):
            Functions.scaled(x, x)
        with self.assertRaisesRegex(TypeError, "complex32"):
            Functions.parts(torch.ones(2, 2, dtype=torch.complex32))
        with self.assertRaises(TypeError):
            tenon.torch.function(lambda *xs: xs)
        with self.assertRaises(TypeError):
            tenon.torch.function(lambda a=1.0: a)
        two = tenon.torch.function(lambda x: (x, x), name="two")
        with self.assertRaisesRegex(ValueError, "returned 2 tensors"):
            two(x)
        same = tenon.torch.function(lambda x: x, name="same")
        y = same(x.detach())
        y += 1
        self.assertNotEqual(y.data_ptr(), x.data_ptr())
        self.assertFalse(torch.equal(y, x))

    def test_threads_and_leaks(self):
        x, w = self.arguments(torch.float32)
        want, wrong = Functions.scaled(x, w), []

        def work():
            for _ in range(50):
                y = Functions.scaled(x, w)
                torch.autograd.grad(y.sum(), x)
                if not torch.equal(y, want):
                    wrong.append(1)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertFalse(wrong)
        context = tenon.torch._contexts["cpu"]
        work()
        nodes, bytes = tn.stats(context).nodes, tn.stats(context).bytes
        work()
        self.assertLessEqual(tn.stats(context).nodes, nodes)
        self.assertLessEqual(tn.stats(context).bytes, bytes)


@unittest.skipUnless(torch is not None, "PyTorch is not installed")
class CudaText(unittest.TestCase):
    """An op of CUDA text, by its function for the CPU; gpu_exchange.py runs the text."""

    def test_on_the_cpu(self):
        op = tenon.torch.cuda_op(
            'extern "C" __global__ void times(tn::in<0> x, tn::out<0> y, float factor) { long long i = tn::index(); '
            'if (i < y.count) y[i] = x[i] * factor; }',
            kernel="times", inputs=1, attrs={"factor": "f"}, launch=lambda x, out, factor: ((x.size + 255) // 256, 256),
            compute=lambda x, out, factor: x * factor, grad=lambda gy, y, x, factor: gy * factor)
        x = torch.randn(5, requires_grad=True)
        y = op(x, 3.0)
        self.assertTrue(torch.allclose(y, x * 3))
        y.sum().backward()
        self.assertTrue(torch.allclose(x.grad, torch.full((5,), 3.0)))
        torch.library.opcheck(op.op, (x, 2.0))


@unittest.skipUnless(torch is not None, "PyTorch is not installed")
class Weights(unittest.TestCase):
    def test_in_bfloat16(self):
        theirs = torch.nn.Linear(3, 5).bfloat16()
        for take in (lambda m: tenon.torch.load(m, theirs),
                     lambda m: m.load_state_dict(dict(theirs.named_parameters()))):
            ours = tn.nn.Linear(3, 5)
            take(ours)
            self.assertEqual(ours.weight.dtype, tn.float32)
            self.assertEqual(ours.weight.tolist(), theirs.weight.float().tolist())
        x = tn.tensor(theirs.weight)
        self.assertEqual((x.dtype, x.tolist()), (tn.bfloat16, theirs.weight.float().tolist()))
        with torch.no_grad():
            theirs.weight.zero_()
        self.assertEqual(x.tolist(), ours.weight.tolist())  # a copy
        self.assertEqual(tn.tensor(torch.ones(2, requires_grad=True).double()).dtype, tn.float64)

    def test_by_name(self):
        theirs = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
        ours = tn.nn.Sequential(tn.nn.Linear(4, 8), tn.nn.ReLU(), tn.nn.BatchNorm1d(8), tn.nn.Linear(8, 2))
        tenon.torch.load(ours, theirs)
        x = torch.randn(3, 4)
        theirs.eval(), ours.eval()
        self.assertTrue(torch.allclose(theirs(x), torch.from_dlpack(ours(tn.from_dlpack(x)).detach()).cpu(), atol=1e-6))
        with self.assertRaisesRegex(RuntimeError, "shape"):
            tenon.torch.load(tn.nn.Linear(4, 8), torch.nn.Linear(4, 7))
        with self.assertRaisesRegex(RuntimeError, "missing"):
            tenon.torch.load(tn.nn.Linear(4, 8), {})


if __name__ == "__main__":
    unittest.main()
