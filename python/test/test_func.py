"""Derivatives of functions, functions over examples and steps, hooks."""
import unittest

import tenon as tn
from tenon import func


def f(x, w):
    return tn.tanh(x @ w).square().sum()


class Functions(unittest.TestCase):
    def setUp(self):
        tn.manual_seed(0)
        self.x, self.w = tn.randn(5, 3), tn.randn(3, 2)

    def close(self, a, b):
        self.assertEqual(a.shape, b.shape)
        self.assertTrue(tn.allclose(a, b, rtol=1e-4, atol=1e-5))

    def test_derivatives_agree_with_grad(self):
        x, w = self.x.clone().requires_grad_(), self.w.clone().requires_grad_()
        gx, gw = tn.grad(f(x, w), [x, w])
        self.close(func.grad(f)(self.x, self.w), gx)
        both, value = func.grad_and_value(f, argnums=(0, 1))(self.x, self.w)
        self.close(both[1], gw)
        self.close(value, f(self.x, self.w))
        y, pull = func.vjp(lambda a: a @ self.w, self.x)
        self.close(pull(tn.ones(5, 2))[0], tn.ones(5, 2) @ self.w.T)
        y, dy = func.jvp(f, (self.x, self.w), (self.x, tn.zeros(3, 2)))
        self.close(dy, (gx * self.x).sum())
        j = func.jacrev(lambda a: a.exp())(self.w)
        self.close(j.sum((0, 1)), self.w.exp())
        h = func.hessian(lambda a: (a ** 3).sum())(tn.tensor([1.0, 2.0]))
        self.assertEqual(h.tolist(), [[6, 0], [0, 12]])
        twice = func.grad(lambda a: func.grad(lambda b: (b ** 3).sum())(a).sum())(tn.tensor([1.0, 2.0]))
        self.assertEqual(twice.tolist(), [6, 12])

    def test_vmap_is_the_stack_of_single_calls(self):
        rows = tn.stack([f(v, self.w) for v in self.x], 0)
        self.close(tn.vmap(f, in_dims=(0, None))(self.x, self.w), rows)
        each = tn.vmap(func.grad(f, argnums=1), in_dims=(0, None))(self.x, self.w)
        self.close(each, tn.stack([func.grad(f, argnums=1)(v, self.w) for v in self.x], 0))
        out = tn.vmap(lambda d: {"sum": d["a"].sum(), "both": (d["a"], d["b"])})({"a": self.x, "b": self.x * 2})
        self.close(out["sum"], self.x.sum(1))
        self.close(out["both"][1], self.x * 2)
        self.close(tn.vmap(lambda a: a * 2, in_dims=1, out_dims=1)(self.x), self.x * 2)
        w = self.w.clone().requires_grad_()
        tn.vmap(f, in_dims=(0, None))(self.x, w).sum().backward()
        self.close(w.grad, func.grad(f, argnums=1)(self.x, self.w))
        with self.assertRaisesRegex(tn.Error, "has 3 examples, others have 5"):
            tn.vmap(lambda a, b: a.sum() + b.sum())(self.x, self.w)
        with self.assertRaises(ZeroDivisionError):
            tn.vmap(lambda a: 1 // 0)(self.x)

    def test_scan_carries_states(self):
        last, all_sums = tn.scan(lambda c, v: (c + v, {"sum": c + v}), tn.zeros(3), self.x)
        self.close(last, self.x.sum(0))
        self.close(all_sums["sum"], tn.cumsum(self.x, 0))

    def test_hooks_of_values(self):
        x = tn.tensor([1.0, 2.0], requires_grad=True)
        h = x * x
        seen = []
        handle = h.register_hook(lambda g: (seen.append(g), g * 2)[1])
        (h * h).sum().backward()
        self.assertEqual(x.grad.tolist(), [8, 64])
        self.assertEqual(len(seen), 1)
        x.grad = None
        h = x * x
        handle = h.register_hook(lambda g: g * 100)
        handle.remove()
        (h * h).sum().backward()
        self.assertEqual(x.grad.tolist(), [4, 32])
        h = x * x
        h.register_hook(lambda g: 1 // 0)
        with self.assertRaisesRegex(tn.Error, "ZeroDivisionError"):
            (h * h).sum().backward()
        with self.assertRaisesRegex(tn.Error, "is a view"):
            (x * x).reshape(2, 1).register_hook(lambda g: g)


if __name__ == "__main__":
    unittest.main()
