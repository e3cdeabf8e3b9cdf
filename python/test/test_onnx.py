"""Models as ONNX files."""
import copy
import pathlib
import tempfile
import unittest

import tenon as tn
from tenon.nn import functional as F

try:
    import numpy
except ImportError:
    numpy = None


class Two(tn.nn.Module):
    """Two inputs, two outputs, a batch norm and tied weights."""

    def __init__(self):
        super().__init__()
        self.first = tn.nn.Linear(4, 6)
        self.norm = tn.nn.BatchNorm1d(6)
        self.second = tn.nn.Linear(6, 4, bias=False)
        self.again = self.second

    def forward(self, x, y):
        h = F.relu(self.norm(self.first(x)))
        return self.again(h) + y, self.second(h)


class Onnx(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "m.onnx"

    def near(self, a, b, most=1e-5):
        self.assertEqual(a.shape, b.shape)
        self.assertLessEqual(float((a - b).abs().max()), most)

    def saved(self, **options):
        tn.manual_seed(1)
        net = Two()
        x = (tn.randn(3, 4), tn.randn(3, 4))
        tn.onnx.save(net, x, self.path, **options)
        return net, x

    def test_a_module_comes_back(self):
        net, x = self.saved(batch="N", opset=18, input_names=["a", "b"], output_names=["sum", "part"])
        self.assertTrue(net.training)
        m = tn.onnx.load(self.path)
        self.assertEqual([p.name for p in m.inputs + m.outputs], ["a", "b", "sum", "part"])
        self.assertEqual(m.inputs[0], ("a", tn.float32, ("N", 4), False))
        self.assertIn("m.onnx", repr(m))
        net.eval()
        for n in (3, 5):
            a, b = tn.randn(n, 4), tn.randn(n, 4)
            for y in (m(a, b), m(a, b=b), m.run(None, {"b": b, "a": a})):
                for got, want in zip(y, net(a, b)):
                    self.near(got, want)
        (part,) = m.run(["part"], {"a": x[0], "b": x[1].tolist()})
        self.near(part, net(*x)[1])
        self.assertFalse(part.requires_grad)

    def test_arrays(self):
        if not numpy:
            self.skipTest("no numpy")
        net, x = self.saved()
        y = tn.onnx.load(self.path).run(None, {f"x{i}": numpy.asarray(v) for i, v in enumerate(x)})
        self.near(y[0], net.eval()(*x)[0])

    def test_any_function(self):
        w = tn.tensor([1.0, 2.0])
        tn.onnx.save(lambda x: (x * w).sum(-1), tn.zeros(3, 2), self.path, batch="rows")
        m = tn.onnx.load(self.path)
        self.assertEqual(m(tn.ones(5, 2)).tolist(), [3.0] * 5)

    def test_another_dtype(self):
        net, x = self.saved()
        y = tn.onnx.load(self.path).cast("f16")(*x)
        self.assertEqual(y[0].dtype, tn.float32)
        self.near(y[0], net.eval()(*x)[0], 0.02)
        with self.assertRaisesRegex(TypeError, "onnx_cast"):
            tn.onnx.load(self.path).cast("int8")

    def test_it_is_trained_further(self):
        net, x = self.saved()
        layer = tn.onnx.load(self.path).layer()
        own = dict(layer.named_parameters())
        self.assertIn("first.bias", own)
        self.near(own["first.bias"], net.first.bias)
        opt = tn.optim.Adam(layer, lr=0.05)
        losses = []
        for _ in range(20):
            loss = ((layer(*x)[0] - 1) ** 2).mean()
            losses.append(float(loss))
            opt.step(loss)
        self.assertLess(losses[-1], 0.5 * losses[0])
        other = copy.deepcopy(layer)
        self.near(other(*x)[0], layer(*x)[0])
        tn.save(layer, self.path.with_suffix(".safetensors"))
        fresh = tn.onnx.load(self.path).layer()
        fresh.load_state_dict(tn.load(self.path.with_suffix(".safetensors")))
        self.near(fresh(*x)[0], layer(*x)[0])
        tn.onnx.save(layer, x, self.path.with_name("tuned.onnx"))
        self.near(tn.onnx.load(self.path.with_name("tuned.onnx"))(*x)[0], layer.eval()(*x)[0])

    def test_a_layer_outlives_its_model(self):
        _, x = self.saved()
        layer = tn.onnx.load(self.path).layer()
        self.assertEqual(layer(*x)[0].shape, (3, 4))

    def test_networks_of_c(self):
        net = tn.models.mlp(6, 5, 3)
        tn.onnx.save(net, tn.zeros(2, 6), self.path, batch="N", beside=True)
        self.assertTrue(self.path.with_name("m.onnx.data").exists())
        x = tn.randn(7, 6)
        self.near(tn.onnx.load(self.path)(x), net(x))

    def test_errors(self):
        self.path.write_bytes(b"\xff" * 64)
        with self.assertRaises(tn.FormatError):
            tn.onnx.load(self.path)
        with self.assertRaises(OSError):
            tn.onnx.load(self.path.with_name("none.onnx"))
        net, x = self.saved()
        m = tn.onnx.load(self.path)
        with self.assertRaisesRegex(ValueError, '"z"'):
            m.run(None, {"z": x[0]})
        with self.assertRaisesRegex(ValueError, "missing"):
            m(x[0])
        with self.assertRaises(TypeError):
            m(*x, x[0])
        with self.assertRaises(TypeError):
            m(x[0], x[1], x0=x[0])
        with self.assertRaisesRegex(ValueError, "opset"):
            tn.onnx.save(net, x, self.path, opset=99)
        with self.assertRaises(ZeroDivisionError):
            tn.onnx.save(lambda v: v / (1 // 0), x[0], self.path)

    def test_an_error_of_the_function_is_the_cause(self):
        calls = []

        def second_fails(x):
            calls.append(x)
            if len(calls) > 1:
                raise KeyError("later")
            return x * 2
        with self.assertRaises(Exception) as caught:
            tn.onnx.save(second_fails, tn.zeros(2), self.path)
        error = caught.exception
        self.assertIsInstance(error if isinstance(error, KeyError) else error.__cause__, KeyError)


if __name__ == "__main__":
    unittest.main()
