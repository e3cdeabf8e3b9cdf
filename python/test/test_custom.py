"""Ops of the program's own, gradients as values, and the check of gradients."""
import array
import gc
import threading
import unittest

import tenon as tn

try:
    import numpy as np
except ImportError:
    np = None


def doubled(x):
    """x, whatever it is, as a flat list of twice its elements."""
    return [2 * v for v in (x.ravel().tolist() if hasattr(x, "ravel") else memoryview(x).cast("B").cast(x.format))]


class Expressions(unittest.TestCase):
    def test_values_and_gradients(self):
        leaky = tn.op("a > 0 ? a : b * a", name="leaky")
        self.assertEqual(leaky.inputs, 2)
        x = tn.tensor([-2.0, 3.0], requires_grad=True)
        y = leaky(x, 0.5)
        self.assertEqual(y.tolist(), [-1, 3])
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), [0.5, 1])
        straight = tn.op("rint(a)", "g")
        x = tn.tensor([0.4, 1.6], requires_grad=True)
        (straight(x) * tn.tensor([2.0, 3.0])).sum().backward()
        self.assertEqual(x.grad.tolist(), [2, 3])
        self.assertIs(tn.op("rint(a)", "g"), straight)
        self.assertEqual(tn.op("x3 + a").inputs, 4)

    def test_mistakes_name_the_column(self):
        with self.assertRaisesRegex(tn.ArgumentError, "wrong: expr: column"):
            tn.op("(a + ", name="wrong")(tn.ones(2))
        with self.assertRaisesRegex(TypeError, "takes 1 tensors, 2 were given"):
            tn.op("exp(a)")(tn.ones(2), tn.ones(2))
        with self.assertRaises(TypeError):
            tn.op("a", compute=lambda x, out: None)
        with self.assertRaises(TypeError):
            tn.op()
        with self.assertRaisesRegex(TypeError, "give numbers as inputs"):
            tn.op("exp(a)")(tn.ones(2), k=3)


class Functions(unittest.TestCase):
    def tearDown(self):
        gc.collect()  # an exception holds the frames that hold the tensors that cannot be computed
    def test_shape_compute_grad_and_attributes(self):
        def compute(x, out, times):
            flat = x.ravel() if np else x
            for i in range(len(flat)):
                out[i] = flat[i] * times

        scale = tn.op(name="scale", compute=compute, inputs=1, shape=lambda x, times: (x.size,),
                      grad=lambda gy, y, x, times: gy.reshape(x.shape) * times)
        x = tn.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = scale(x, times=3.0)
        (y * y).sum().backward()
        self.assertEqual(y.tolist(), [3, 6, 9])
        self.assertEqual(x.grad.tolist(), [18, 36, 54])
        self.assertEqual(scale(x.detach(), times=2.0).tolist(), [2, 4, 6])
        with self.assertRaisesRegex(tn.UserError, "shape failed") as caught:
            scale(x)
        self.assertIsInstance(caught.exception.__cause__, TypeError)

    def test_results_may_be_returned_and_be_several(self):
        both = tn.op(name="both", inputs=1, outputs=2,
                     shape=lambda x: [x, ((2,), "int64")],
                     compute=lambda x, out: (array.array("f", doubled(x)), array.array("q", [7, 8])),
                     grad=lambda gy, y, x: gy[0] * 2)
        x = tn.tensor([1.0, 2.0, 4.0], requires_grad=True)
        y, z = both(x)
        self.assertEqual(z.tolist(), [7, 8])
        self.assertEqual(y.tolist(), [2, 4, 8])
        y.sum().backward()
        self.assertEqual(x.grad.tolist(), [2, 2, 2])

    def test_an_exception_is_the_cause_of_the_error(self):
        def fail(x, out):
            raise KeyError("lost")

        bad = tn.op(compute=fail, grad=lambda gy, y, x: 1 / 0)
        y = bad(tn.ones(2))
        with self.assertRaisesRegex(tn.UserError, "fail: compute failed.*: KeyError: 'lost'") as caught:
            y.tolist()
        self.assertIsInstance(caught.exception.__cause__, KeyError)
        x = tn.ones(2, requires_grad=True)
        with self.assertRaises(tn.UserError) as caught:
            bad(x).sum().backward()
        self.assertIsInstance(caught.exception.__cause__, ZeroDivisionError)
        self.assertEqual((tn.ones(2) + 1).tolist(), [2, 2])

    def test_wrong_results_are_refused(self):
        twice = lambda x, out: None  # noqa: E731
        x = tn.ones(2, requires_grad=True)
        for grad, kind in [(lambda gy, y, x: (gy, gy), ValueError), (lambda gy, y, x: 3, TypeError)]:
            with self.assertRaises(tn.UserError) as caught:
                tn.op(compute=twice, grad=grad)(x).sum().backward()
            self.assertIsInstance(caught.exception.__cause__, kind)
        with self.assertRaises(tn.GradError):
            tn.op(compute=twice)(x).sum().backward()
        with self.assertRaises(tn.UserError):
            tn.op(compute=twice, shape=lambda x: "ab")(x)
        with self.assertRaises(tn.UserError):
            tn.op(compute=twice, shape=lambda x: (1,) * 9)(x)

    @unittest.skipUnless(np, "NumPy is not installed")
    def test_arrays_of_numpy(self):
        order = tn.op(name="order", shape=lambda x: (x.shape, "int64"), compute=lambda x, out: np.argsort(x, axis=-1))
        self.assertEqual(order(tn.tensor([[3.0, 1.0, 2.0]])).tolist(), [[1, 2, 0]])
        kept = []
        keeps = tn.op(name="keeps", compute=lambda x, out: kept.append(x))
        with self.assertRaises(tn.UserError) as caught:
            keeps(tn.ones(3)).tolist()
        self.assertIn("has kept one of its arrays", str(caught.exception.__cause__))
        kept.clear()
        gc.collect()

    def test_it_runs_in_a_training_step_and_on_another_thread(self):
        square = tn.op(name="square_", inputs=1, compute=lambda x, out: array.array("f", [v * v for v in (x.tolist())]),
                       grad=lambda gy, y, x: gy * 2 * x)
        w = tn.nn.Parameter(tn.tensor([2.0, 3.0]))
        opt = tn.optim.SGD([w], lr=0.25)

        def train():
            opt.step(square(w).sum())

        train()
        self.assertEqual(w.tolist(), [1, 1.5])
        t = threading.Thread(target=train)
        t.start()
        t.join()
        self.assertEqual(w.tolist(), [0.5, 0.75])

    def test_cuda_text_is_kept_and_refused_elsewhere(self):
        text = 'extern "C" __global__ void twice(tn::in<0> x, tn::out<0> y, float k) { long long i = tn::index(); ' \
               'if (i < y.count) y[i] = x[i] * k; }'
        twice = tn.op(name="twice", cuda=text, attrs={"k": "f"}, launch=lambda x, out, k: ((out.size + 63) // 64, 64))
        self.assertEqual(twice.inputs, 1)
        with self.assertRaisesRegex(TypeError, "takes the attributes k, not none"):
            twice(tn.ones(2))
        y = twice(tn.ones(2), k=2.0)
        if tn.current_context().device.startswith("cuda"):
            self.assertEqual(y.tolist(), [2, 2])
        else:
            with self.assertRaisesRegex(tn.DeviceError, "give the op a compute function"):
                y.tolist()
        self.assertEqual(twice._run_launch(((tn.float32, (100,), None),), ((tn.float32, (100,), None),),
                                           twice._pack({"k": 1.0})), (2, 1, 1, 64, 1, 1, 0))


class Gradients(unittest.TestCase):
    def test_as_values(self):
        x = tn.tensor([1.0, 2.0], requires_grad=True)
        y = (x ** 3).sum()
        g, = tn.grad(y, x)
        self.assertEqual(g.tolist(), [3, 12])
        self.assertIsNone(x.grad)
        g, = tn.grad((x ** 3).sum(), x, create_graph=True)
        self.assertEqual(tn.grad(g.sum(), [x])[0].tolist(), [6, 12])
        a, b = tn.grad(x * 2, [x, tn.ones(1, requires_grad=True)], tn.tensor([1.0, 10.0]))
        with self.assertRaisesRegex(RuntimeError, "reaches input 1"):
            tn.grad(x * 2, [x, tn.ones(1, requires_grad=True)], tn.tensor([1.0, 10.0]), allow_unused=False)
        self.assertEqual(tn.grad((x ** 2).sum(), x, allow_unused=False)[0].tolist(), (2 * x).tolist())
        self.assertEqual(a.tolist(), [2, 20])
        self.assertEqual(b.tolist(), [0])
        with self.assertRaises(tn.Error):
            tn.grad(x * 2, x)
        with self.assertRaises(ValueError):
            tn.grad(y, x, [None, None])

    def test_against_differences(self):
        x = tn.tensor([0.3, -0.7], dtype="float64")
        self.assertTrue(tn.gradcheck(lambda v: tn.tanh(v) * v, x))
        self.assertTrue(tn.gradgradcheck(lambda v, w: (v ** 3 * w), [x, x]))
        wrong = tn.op("a * a", "g")
        with self.assertRaisesRegex(tn.GradError, "differences"):
            tn.gradcheck(wrong, x)
        with self.assertRaises(tn.DTypeError):
            tn.gradcheck(tn.exp, tn.ones(2))
        with self.assertRaises(tn.Error) as caught:
            tn.gradcheck(lambda v: 1 / 0, x)
        self.assertIsInstance(caught.exception.__cause__, ZeroDivisionError)
        self.assertTrue(tn.is_grad_enabled())


if __name__ == "__main__":
    unittest.main()
