"""Names and defaults of NumPy and PyTorch, of functions that are composed of others."""
import copy
import math
import pickle
import unittest

import tenon as tn

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None


def grid(*shape):
    """Numbers of no pattern, exact in float32."""
    n = math.prod(shape)
    return tn.tensor([((i * 37 + 11) % 64 - 32) / 4 for i in range(n)]).reshape(*shape)


class Case(unittest.TestCase):
    def check(self, got, want, places=5):
        got = got.tolist() if isinstance(got, tn.Tensor) else got
        want = want.tolist() if hasattr(want, "tolist") else want
        if isinstance(want, (list, tuple)):
            self.assertEqual(len(got), len(want))
            for g, w in zip(got, want):
                self.check(g, w, places)
        elif isinstance(want, float) and not math.isfinite(want):
            self.assertEqual(str(got), str(want))
        else:
            self.assertAlmostEqual(got, want, places)


class Order(Case):
    def test_sort(self):
        x = tn.tensor([[3.0, 1, 2], [0, 5, 4]])
        s = tn.sort(x)
        self.check(s.values, [[1, 2, 3], [0, 4, 5]])
        self.check(s.indices, [[1, 2, 0], [0, 2, 1]])
        values, _ = x.sort(dim=0, descending=True)
        self.check(values, [[3, 5, 4], [0, 1, 2]])
        self.check(x.argsort(), [[1, 2, 0], [0, 2, 1]])
        self.check(tn.argsort(x, descending=True), [[0, 2, 1], [1, 2, 0]])
        t = x.topk(2)
        self.check(t.values, [[3, 2], [5, 4]])
        self.check(t.indices, [[0, 2], [1, 2]])
        self.check(tn.topk(x, 1, dim=0, largest=False).values, [[0, 1, 2]])

    def test_unique_bincount_nonzero(self):
        x = tn.tensor([[3, 1], [3, 7]])
        self.check(tn.unique(x), [1, 3, 7])
        values, inverse, counts = tn.unique(x, return_inverse=True, return_counts=True)
        self.check(inverse, [[1, 0], [1, 2]])
        self.check(counts, [1, 2, 1])
        self.check(tn.unique(tn.zeros(0)), [])
        self.check(tn.bincount(tn.tensor([1, 1, 3])), [0, 2, 0, 1])
        self.check(tn.bincount(tn.tensor([1, 1, 3]), minlength=6), [0, 2, 0, 1, 0, 0])
        self.check(tn.bincount(tn.tensor([1, 1, 3]), weights=[0.5, 1.0, 2.0]), [0, 1.5, 0, 2])
        y = tn.tensor([[0, 2], [5, 0]])
        self.check(tn.nonzero(y), ([0, 1], [1, 0]))
        self.check(y.nonzero(as_tuple=False), [[0, 1], [1, 0]])
        self.check(tn.where(y > 3), ([1], [0]))
        self.check(tn.where(y > 3, y, -1), [[-1, -1], [5, -1]])
        self.check(tn.count_nonzero(y), 2)
        self.check(y.count_nonzero(axis=0), [1, 1])

    def test_max_of_a_dim(self):
        x = tn.tensor([[3.0, 1, 2], [0, 5, 5]], requires_grad=True)
        values, indices = x.max(dim=1)
        self.check(values, [3, 5])
        self.check(indices, [0, 1])
        values.sum().backward()
        self.check(x.grad, [[1, 0, 0], [0, 1, 0]])
        self.assertEqual(x.min(dim=0, keepdim=True).indices.shape, (1, 3))
        self.check(tn.min(x, dim=0).values, [0, 1, 2])
        self.check(tn.max(x, axis=1), [3, 5])
        for values, indices in (x.max(1), tn.max(x, -1), x.max(1, True)):  # PyTorch's; axis= is NumPy's
            self.check(values.reshape(-1), [3, 5])
            self.check(indices.reshape(-1), [0, 1])
        self.check(x.max(), 5)
        self.check(tn.max(x, tn.full_like(x, 2)), [[3, 2, 2], [2, 5, 5]])
        self.check(tn.amax(x, dim=(0, 1)), 5)
        self.check(x.amin(1), [1, 0])

    def test_median(self):
        x = tn.tensor([[3.0, 1, 2, 10], [0, 5, 5, 6]])
        self.check(tn.median(x, axis=1), [2.5, 5])
        self.check(x.median(dim=1).values, [2, 5])
        self.check(x.median(dim=1).indices[0], 2)
        self.check(tn.median(x), 4)
        self.check(tn.median(tn.tensor([1, 2, 9])), 2)

    def test_spread(self):
        x = tn.tensor([[1.0, 2, 4], [0, 0, 6]])
        self.check(x.var(1), [7 / 3, 12])
        self.check(x.var(1, unbiased=False), [14 / 9, 8])
        self.check(x.std(dim=1, correction=0), [math.sqrt(14 / 9), math.sqrt(8)])
        self.check(tn.var(x, ddof=0), 57 / 6 - 169 / 36)
        self.assertEqual(x.var(1, keepdim=True, ddof=0).shape, (2, 1))

    def test_cumulative(self):
        x = tn.tensor([[1, 2], [3, 4]])
        self.check(tn.cumsum(x, dim=1), [[1, 3], [3, 7]])
        self.check(x.cumsum(0), [[1, 2], [4, 6]])
        self.check(tn.cumsum(x), [1, 3, 6, 10])
        self.check(tn.cumprod(x, axis=1), [[1, 2], [3, 12]])


class Shape(Case):
    def test_joining(self):
        a, b = tn.tensor([1, 2]), tn.tensor([3, 4])
        self.check(tn.stack([a, b]), [[1, 2], [3, 4]])
        self.check(tn.stack([a, b], dim=1), [[1, 3], [2, 4]])
        for join in (tn.cat, tn.concat, tn.concatenate, tn.hstack):
            self.check(join([a, b]), [1, 2, 3, 4])
        self.check(tn.cat([a.reshape(2, 1), b.reshape(2, 1)], dim=1), [[1, 3], [2, 4]])
        self.check(tn.vstack([a, b]), [[1, 2], [3, 4]])
        self.check(tn.hstack([tn.ones(2, 1), tn.zeros(2, 2)]), [[1, 0, 0]] * 2)

    def test_parting(self):
        x = tn.arange(10)
        self.check(x.split(4), ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9]))
        self.check(tn.split(x, [3, 7]), ([0, 1, 2], [3, 4, 5, 6, 7, 8, 9]))
        self.assertRaises(ValueError, tn.split, x, [3, 3])
        self.assertEqual([c.shape for c in tn.chunk(x.reshape(2, 5), 2, dim=1)], [(2, 3), (2, 2)])
        self.check(tn.unbind(x.reshape(2, 5), 1)[4], [4, 9])
        self.check(x.narrow(0, 2, 3), [2, 3, 4])
        self.assertRaises(IndexError, x.narrow, 0, 8, 3)
        self.check(x.unfold(0, 4, 3), [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]])
        self.assertEqual(tn.zeros(4, 6, 3).unfold(1, 2, 2).shape, (4, 3, 3, 2))

    def test_axes(self):
        x = tn.arange(24).reshape(2, 3, 4)
        self.assertEqual(tn.permute(x, 2, 0, 1).shape, (4, 2, 3))
        self.assertEqual(tn.permute(x, (2, 0, 1)).shape, (4, 2, 3))
        self.assertEqual(tn.movedim(x, 0, -1).shape, (3, 4, 2))
        self.assertEqual(x.movedim((0, 1), (1, 0)).shape, (3, 2, 4))
        self.assertEqual(x[None, :, None].squeeze(dim=0).shape, (2, 1, 3, 4))
        self.assertEqual(tn.squeeze(x[None, :, None], (0, 2)).shape, (2, 3, 4))
        self.assertEqual(tn.squeeze(x[tn.newaxis]).shape, (2, 3, 4))
        self.assertEqual(x.unsqueeze(dim=-1).shape, (2, 3, 4, 1))
        self.assertEqual(tn.flatten(x, 1).shape, (2, 12))
        self.assertEqual(x.flatten(start_dim=1).shape, (2, 12))
        self.assertEqual(x.ravel().shape, (24,))
        self.assertEqual(x[0].t().shape, (4, 3))
        self.assertRaises(ValueError, x.t)
        self.assertEqual(tn.ones(3, 1).expand_as(tn.ones(3, 2)).shape, (3, 2))
        self.assertEqual(x.view_as(tn.ones(24)).shape, (24,))
        self.check(tn.flip(tn.tensor([[1, 2], [3, 4]]), (0, 1)), [[4, 3], [2, 1]])
        self.check(tn.tensor([[1, 2], [3, 4]]).flip(0, 1), [[4, 3], [2, 1]])
        self.check(tn.tensor([[1, 2], [3, 4]]).flip(dims=[0]), [[3, 4], [1, 2]])
        self.check(tn.tensor([[1, 2], [3, 4]]).roll(1), [[4, 1], [2, 3]])
        self.check(tn.roll(tn.tensor([[1, 2], [3, 4]]), (1, 1), (0, 1)), [[4, 3], [2, 1]])

    def test_matrices(self):
        x = tn.ones(3, 3)
        self.check(x.tril(), [[1, 0, 0], [1, 1, 0], [1, 1, 1]])
        self.check(tn.triu(x, diagonal=1), [[0, 1, 1], [0, 0, 1], [0, 0, 0]])
        self.check(tn.diag(tn.tensor([1, 2])), [[1, 0], [0, 2]])
        self.check(tn.diag(tn.tensor([1, 2]), 1), [[0, 1, 0], [0, 0, 2], [0, 0, 0]])
        self.check(tn.diag(tn.tensor([1, 2]), -1), [[0, 0, 0], [1, 0, 0], [0, 2, 0]])
        self.check(tn.diag(tn.tensor([[1, 2], [3, 4]])), [1, 4])

    def test_repeating(self):
        x = tn.tensor([[1, 2], [3, 4]])
        self.check(tn.tile(x, (2,)), [[1, 2, 1, 2], [3, 4, 3, 4]])
        self.check(tn.repeat_interleave(x, 2), [1, 1, 2, 2, 3, 3, 4, 4])
        self.check(x.repeat_interleave(2, dim=0), [[1, 2], [1, 2], [3, 4], [3, 4]])
        self.check(x.repeat_interleave(2, 1), [[1, 1, 2, 2], [3, 3, 4, 4]])
        self.check(tn.repeat_interleave(x, tn.tensor([2, 1]), axis=1), [[1, 1, 2], [3, 3, 4]])
        self.check(tn.broadcast_to(tn.tensor([1, 2]), (2, 2)), [[1, 2], [1, 2]])
        a, b = tn.meshgrid(tn.tensor([1, 2]), tn.tensor([3, 4, 5]))
        self.check(a, [[1, 2]] * 3)
        self.check(b, [[3, 3], [4, 4], [5, 5]])
        a, b = tn.meshgrid(tn.tensor([1, 2]), tn.tensor([3, 4, 5]), indexing="ij")
        self.check(a, [[1, 1, 1], [2, 2, 2]])


class Elements(Case):
    def test_clamp(self):
        x = tn.tensor([-2.0, 0.5, 3.0])
        self.check(x.clamp(0.0, 1.0), [0, 0.5, 1])
        self.check(x.clamp(min=0), [0, 0.5, 3])
        self.check(tn.clip(x, max=1), [-2, 0.5, 1])
        self.check(tn.clip(x, -1, 1), [-1, 0.5, 1])
        self.check(tn.clamp(tn.tensor([1, 5, 9]), 2, 6), [2, 5, 6])
        self.check(tn.clamp(x, max=tn.tensor([-3.0, 0, 9])), [-3, 0, 3])
        self.assertRaises(TypeError, x.clamp)
        self.check(tn.lerp(tn.tensor([0.0, 4.0]), tn.tensor([2.0, 8.0]), 0.5), [1, 6])

    def test_softmax(self):
        x = tn.tensor([[0.0, math.log(3.0)]])
        self.check(tn.softmax(x, dim=-1), [[0.25, 0.75]])
        self.check(x.softmax(1), [[0.25, 0.75]])
        self.check(x.log_softmax(dim=1), [[math.log(0.25), math.log(0.75)]])
        self.assertRaises(TypeError, tn.softmax, x)

    def test_comparing(self):
        a, b = tn.tensor([1.0, math.inf, math.nan, 1.0]), tn.tensor([1.0 + 1e-7, math.inf, math.nan, math.inf])
        self.check(tn.isclose(a, b), [True, True, False, False])
        self.check(tn.isclose(a, b, equal_nan=True), [True, True, True, False])
        self.assertIs(tn.allclose(a[:2], b[:2]), True)
        self.assertIs(tn.allclose(tn.tensor([1, 2]), tn.tensor([1, 3])), False)
        self.assertIs(tn.equal(tn.tensor([1, 2]), tn.tensor([1, 2])), True)
        self.assertIs(tn.equal(tn.tensor([1, 2]), tn.tensor([[1, 2]])), False)

    def test_products(self):
        a, b = tn.tensor([[1.0, 2], [3, 4]]), tn.tensor([[0.0, 1], [1, 0]])
        self.check(tn.mm(a, b), [[2, 1], [4, 3]])
        self.check(a[None].bmm(b[None]), [[[2, 1], [4, 3]]])
        self.assertRaises(ValueError, tn.mm, a[None], b)
        self.check(tn.dot(a[0], a[1]), 11)
        self.check(tn.outer(a[0], a[1]), [[3, 4], [6, 8]])

    def test_numbers(self):
        self.check(round(tn.tensor([1.26, -0.51])), [1, -1])
        self.check(round(tn.tensor([1.26, -0.51]), 1), [1.3, -0.5])
        self.check(divmod(tn.tensor([7.0, -7.0]), 2), ([3, -4], [1, 1]))
        self.check(divmod(7, tn.tensor([2, 4])), ([3, 1], [1, 3]))
        self.assertEqual((tn.pi, tn.e, tn.inf), (math.pi, math.e, math.inf))
        self.assertTrue(math.isnan(tn.nan))

    def test_dtypes(self):
        self.assertIs(tn.float, tn.float32)
        self.assertIs(tn.long, tn.int64)
        self.assertIs(tn.half, tn.float16)
        self.assertIs(tn.double, tn.float64)
        self.assertIs(tn.bool, tn.bool_)
        space = {}
        exec("from tenon import *", space)
        self.assertFalse({"float", "int", "bool"} & set(space))
        self.assertRaises(TypeError, tn.dtype, tn.ones(2))
        self.assertRaises(TypeError, tn.ones(2).to, object())

    def test_making(self):
        x = tn.ones(2, 3, dtype="float64")
        self.assertIs(tn.as_tensor(x), x)
        self.assertTrue(tn.is_tensor(x))
        self.assertFalse(tn.is_tensor([1]))
        self.assertEqual((tn.empty_like(x).shape, tn.empty_like(x).dtype), ((2, 3), tn.float64))
        self.assertEqual((x.new_zeros(2).dtype, x.new_ones((2, 1)).shape), (tn.float64, (2, 1)))
        self.check(x.new_full((2,), 3), [3, 3])
        self.assertIs(x.new_tensor([1, 2]).dtype, tn.float64)
        self.assertFalse(x.is_cuda and x.device == "cpu")

    def test_leaves_and_their_gradients(self):
        x = tn.tensor([0.5, 1.0], requires_grad=True)
        y = x * 2
        self.assertEqual((x.is_leaf, y.is_leaf, tn.ones(2).is_leaf, y.detach().is_leaf), (True, False, True, True))
        x.grad = tn.tensor([3.0, 4.0])
        y.sum().backward()
        self.check(x.grad, [5, 6])
        x.grad = None
        self.assertIsNone(x.grad)
        for wrong, error in ((1, TypeError), (tn.ones(3), ValueError), (tn.ones(2, dtype=tn.float64), ValueError)):
            with self.assertRaises(error):
                x.grad = wrong
        with self.assertRaisesRegex(tn.GradError, "x.detach()"):
            y.requires_grad_(False)
        with tn.Context("ref"), self.assertRaisesRegex(ValueError, r"see x.to\(device\)"):
            tn.ones(2) + x

    def test_gpus(self):
        self.assertEqual(tn.cuda.is_available(), tn.cuda.device_count() > 0)
        tn.cuda.synchronize()

    def test_gradients_at_bounds(self):
        x = tn.tensor([-1.0, 0.0, 2.0], requires_grad=True)
        (x.clamp(min=0).sum() + x.clamp(0, 1).sum()).backward()
        self.check(x.grad, [0, 2, 1])

    def test_other_names(self):
        x = tn.tensor([[5.0, -5.0], [1.0, 0.25]])
        self.check(tn.subtract(x, 1), [[4, -6], [0, -0.75]])
        self.check(tn.fmod(x, 3), [[2, -2], [1, 0.25]])
        self.check(tn.log10(tn.tensor([1.0, 1000.0])), [0, 3])
        self.check(tn.sinh(x[1]), [math.sinh(1), math.sinh(0.25)])
        self.check(tn.cosh(x[1]), [math.cosh(1), math.cosh(0.25)])
        y = tn.tensor([-0.99, -0.5, 0.0, 0.001, 0.75], requires_grad=True)
        for name, slope in (("asin", lambda v: (1 - v * v) ** -0.5), ("acos", lambda v: -(1 - v * v) ** -0.5),
                            ("asinh", lambda v: (1 + v * v) ** -0.5), ("atanh", lambda v: 1 / (1 - v * v))):
            z = getattr(tn, name)(y)
            self.check(z, [getattr(math, name)(v) for v in y.tolist()])
            self.check(tn.grad(z.sum(), y)[0], [slope(v) for v in y.tolist()])
        self.check(tn.acosh(tn.tensor([1.0, 1.5, 1e4])), [0, math.acosh(1.5), math.acosh(1e4)])
        self.check(tn.asinh(tn.tensor([-1e20, 1e30])), [-math.asinh(1e20), math.asinh(1e30)])
        self.check(tn.masked_select(x, x > 0), [5, 1, 0.25])
        self.check(tn.transpose(x), x.T)
        self.check(tn.transpose(x, 0, 1), x.T)
        self.check(tn.transpose(x, (1, 0)), x.T)
        self.check(tn.addmm(tn.ones(2), x, tn.eye(2), alpha=2), [[11, -9], [3, 1.5]])
        self.assertIs(tn.zeros_like(x, dtype=tn.int64).dtype, tn.int64)
        self.assertIs(x.to("cpu", tn.float64).dtype, tn.float64)
        self.assertIs(x.to(device="cpu", dtype=tn.float64).dtype, tn.float64)
        self.assertIs(x.to(tn.float64, device="cpu").dtype, tn.float64)
        self.assertIs(x.type_as(tn.tensor([1])).dtype, tn.int64)
        self.check(tn.greater(x, 1), [[True, False], [False, False]])

    def test_writing(self):
        x = tn.zeros(2, 2)
        self.check(x.copy_(tn.tensor([1.0, 2])), [[1, 2], [1, 2]])
        self.check(x.masked_fill_(x > 1, -3), [[1, -3], [1, -3]])
        self.check(x.clamp_(min=0), [[1, 0], [1, 0]])
        self.check(x.fill_(4), [[4, 4], [4, 4]])
        self.assertTrue(((x.uniform_(2, 3) >= 2) & (x < 3)).all())
        self.assertTrue(tn.isfinite(x.normal_(0, 0.1)).all())
        p = tn.ones(2, requires_grad=True)
        p.data -= 0.5
        p.data.mul_(2)
        self.check(p, [1, 1])
        p.data = tn.tensor([5.0, 6.0])
        self.check(p, [5, 6])
        self.assertTrue(p.requires_grad)
        (p * p).sum().backward(retain_graph=True)
        self.check(p.grad, [10, 12])


class ArrayApi(Case):
    def test_dtypes(self):
        x = tn.tensor([1, 2], tn.int32)
        self.assertIs(tn.astype(x, tn.float64).dtype, tn.float64)
        self.assertIs(tn.astype(x, tn.int32, copy=False), x)
        self.assertIs(tn.result_type(x, tn.uint8), tn.int32)
        self.assertIs(tn.result_type(x, 1.5), tn.float32)
        self.assertIs(tn.result_type(tn.tensor(1.0), tn.float16), tn.float32)  # also without axes
        self.assertTrue(tn.can_cast(tn.uint8, tn.int16) and not tn.can_cast(tn.float32, "int64"))
        self.assertTrue(tn.isdtype(tn.int8, "signed integer") and tn.isdtype(tn.float16, ("integral", "real floating")))
        self.assertFalse(tn.isdtype(tn.bool_, "numeric") or tn.isdtype(tn.float32, tn.float64))
        with self.assertRaisesRegex(ValueError, "no tensor or dtype"):
            tn.result_type(1, 2)

    def test_functions(self):
        x = tn.tensor([[3, 1, 3], [2, 1, 3]])
        every = tn.unique_all(x)
        self.assertEqual([v.tolist() for v in every], [[1, 2, 3], [1, 3, 0], [[2, 0, 2], [1, 0, 2]], [2, 1, 3]])
        self.assertEqual(tn.unique_counts(x).counts.tolist(), [2, 1, 3])
        self.assertEqual(tn.unique_inverse(x).inverse_indices.tolist(), [[2, 0, 2], [1, 0, 2]])
        self.assertEqual(tn.unique_values(tn.zeros(0)).tolist(), [])
        self.assertEqual(tn.cumulative_sum(x, axis=1, include_initial=True).tolist(), [[0, 3, 4, 7], [0, 2, 3, 6]])
        self.assertEqual(tn.cumulative_prod(x[0], dtype=tn.float32).tolist(), [3, 3, 9])
        self.assertIs(tn.cumulative_sum(x[0], dtype=tn.int8).dtype, tn.int8)
        with self.assertRaisesRegex(ValueError, "cumulative_sum: x has 2 axes"):
            tn.cumulative_sum(x)
        self.assertEqual(tn.permute_dims(x, (1, 0)).tolist(), tn.matrix_transpose(x).tolist())
        self.assertEqual([v.tolist() for v in tn.unstack(x, axis=1)], [[3, 2], [1, 1], [3, 3]])
        self.assertEqual([v.shape for v in tn.broadcast_arrays(x, tn.ones(1, 3))], [(2, 3), (2, 3)])
        self.assertEqual(tn.vecdot(x, x).tolist(), [19, 14])
        self.assertEqual(tn.bitwise_left_shift(x, 2).tolist(), (x * 4).tolist())
        self.assertEqual(tn.bitwise_right_shift(tn.bitwise_invert(x), 1).tolist(), [[-2, -1, -2], [-2, -1, -2]])
        self.assertEqual(tn.positive(x).tolist(), x.tolist())
        self.assertEqual(tn.linalg.trace(x[:, :2], offset=1).tolist(), 1)
        self.assertEqual(tn.linalg.tensordot(x, x, axes=2).tolist(), 33)
        self.assertEqual(tn.linalg.outer(x[0], x[1]).tolist(), [[6, 3, 9], [2, 1, 3], [6, 3, 9]])
        self.assertEqual(tn.linalg.matmul(x, tn.linalg.matrix_transpose(x)).tolist(), [[19, 16], [16, 14]])

    def test_bits(self):
        x = tn.tensor([1.0, -2.0])
        self.assertEqual(x.view(tn.int32).tolist(), [0x3f800000, -0x40000000])
        self.assertEqual(x.view("uint8").shape, (8,))
        self.assertEqual(x.view(tn.uint8).view(tn.float32).tolist(), [1, -2])


class Einsum(Case):
    FORMS = [("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
             ("ij->ji", (2, 3)), ("ij->", (2, 3)), ("ij->i", (2, 3)), ("ii->i", (3, 3)), ("ii", (3, 3)),
             ("i,i->", (4,), (4,)), ("i,j->ij", (3,), (4,)), ("ij,ij->ij", (2, 3), (2, 3)),
             ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)), ("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
             ("...ij,...jk->...ik", (2, 1, 2, 3), (4, 3, 2)), ("...i,i->...", (2, 3, 4), (4,)),
             ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)), ("i,ij,j->", (2,), (2, 3), (3,)),
             ("iij,jk->ik", (3, 3, 2), (2, 2)),
             ("ab,cd->acbd", (2, 3), (2, 2)), ("abc,cd->bd", (2, 3, 4), (4, 2)), ("b...,b->...", (2, 3), (2,))]

    def test_forms(self):
        a, b = tn.tensor([[1.0, 2], [3, 4]]), tn.tensor([[0.0, 1], [1, 0]])
        self.check(tn.einsum("ij,jk->ki", a, b), [[2, 4], [1, 3]])
        self.check(tn.einsum("ii", tn.tensor([[1, 2], [3, 4]])), 5)
        self.check(tn.einsum("i,i", tn.tensor([1, 2]), tn.tensor([3, 4])), 11)
        for wrong in ("ij->ik", "ij,jk->ik", "i->i", "ij->ii", "...ijk->i"):
            self.assertRaises(ValueError, tn.einsum, wrong, tn.ones(2, 2))
        self.assertRaises(ValueError, tn.einsum, "ij,jk->ik", tn.ones(2, 3), tn.ones(2, 3))
        a, b = grid(2, 3).requires_grad_(), grid(3, 4).requires_grad_()
        tn.einsum("ij,jk->ki", a, b).sum().backward()
        self.check(a.grad, [b.sum(1).tolist()] * 2)

    @unittest.skipUnless(numpy, "NumPy is not installed")
    def test_numpy(self):
        for form, *shapes in self.FORMS:
            with self.subTest(form):
                operands = [grid(*s) + i for i, s in enumerate(shapes)]
                want = numpy.einsum(form, *[x.numpy() for x in operands])
                got = tn.einsum(form, *operands)
                self.assertEqual(got.shape, want.shape)
                self.check(got, want, 2)


def trained(kind, steps, **options):
    """A net and its optimizer after some steps, and one more step."""
    tn.manual_seed(3)
    net = tn.nn.Linear(3, 2)
    opt = kind([{"params": [net.weight]}, {"params": [net.bias], "lr": 0.02, "weight_decay": 0.0}], lr=0.1, **options)
    for _ in range(steps):
        one_step(net, opt)
    return net, opt


def one_step(net, opt):
    opt.step((net(grid(4, 3)) ** 2).mean())


class Optimizers(Case):
    def same(self, a, b):
        self.check(a.weight.detach(), b.weight.detach(), 6)
        self.check(a.bias.detach(), b.bias.detach(), 6)

    def test_copies(self):
        for kind in (tn.optim.AdamW, tn.optim.Adam, tn.optim.RMSprop,
                     lambda p, lr: tn.optim.SGD(p, lr=lr, momentum=0.9, schedule="linear", total=9)):
            net, opt = trained(kind, 3)
            opt.param_groups[0]["lr"] = 0.05
            deep = copy.deepcopy({"net": net, "opt": opt})
            net2, opt2 = deep["net"], deep["opt"]
            net3, opt3 = pickle.loads(pickle.dumps((net, opt)))
            self.assertIsNot(net2.weight, net.weight)
            self.assertIs(opt2.param_groups[0]["params"][0], net2.weight)
            for n, o in ((net, opt), (net2, opt2), (net3, opt3)):
                self.assertEqual(o.updates, 3)
                self.assertEqual([g["lr"] for g in o.param_groups], [0.05, 0.02])
                one_step(n, o)
                one_step(n, o)
            self.same(net2, net)
            self.same(net3, net)

    def test_a_schedule_that_was_attached(self):
        net = tn.nn.Linear(3, 2)
        opt = tn.optim.SGD(net, lr=0.1)
        tn.optim.lr_scheduler.StepLR(opt, 1)
        other = pickle.loads(pickle.dumps(opt))
        self.assertEqual(other.param_groups[0]["initial_lr"], 0.1)


class Squares(tn.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return float(i), i * i


class Samplers(Case):
    def test_orders(self):
        d = tn.data
        self.assertEqual(list(d.SequentialSampler(range(4))), [0, 1, 2, 3])
        s = d.RandomSampler(range(50), seed=1)
        first, second = list(s), list(s)
        self.assertEqual((sorted(first), sorted(second), len(s)), (list(range(50)),) * 2 + (50,))
        self.assertNotEqual(first, second)
        self.assertEqual(first, list(d.RandomSampler(range(50), seed=1)))
        tn.manual_seed(5)
        first = list(d.RandomSampler(range(50)))
        tn.manual_seed(5)
        self.assertEqual(first, list(d.RandomSampler(range(50))))
        self.assertEqual(len(list(d.RandomSampler(range(5), num_samples=12))), 12)
        self.assertEqual(len(set(d.RandomSampler(range(50), num_samples=12))), 12)
        self.assertLess(len(set(d.RandomSampler(range(50), True, seed=2))), 50)
        self.assertEqual(sorted(d.SubsetRandomSampler([3, 5, 7])), [3, 5, 7])
        w = list(d.WeightedRandomSampler([0, 1, 3], 4000, seed=0))
        self.assertEqual(w.count(0), 0)
        self.assertAlmostEqual(w.count(2) / 4000, 0.75, 1)
        self.assertEqual(sorted(d.WeightedRandomSampler(tn.tensor([0.0, 1, 3]), 2, False)), [1, 2])
        self.assertRaises(ValueError, d.WeightedRandomSampler, [0, 1], 2, False)
        self.assertEqual(list(d.BatchSampler(range(5), 2)), [[0, 1], [2, 3], [4]])
        self.assertEqual(list(d.BatchSampler(range(5), 2, True)), [[0, 1], [2, 3]])
        self.assertEqual(len(d.BatchSampler(range(5), 2)), 3)

    def test_loader(self):
        load = tn.data.DataLoader
        batches = list(load(Squares(), 3, sampler=[9, 1, 4, 2]))
        self.check(batches[0], ([9, 1, 4], [81, 1, 16]))
        self.check(batches[1], ([2], [4]))
        self.assertEqual(len(load(Squares(), 3, sampler=[9, 1, 4, 2], drop_last=True)), 1)
        self.check(list(load(Squares(), batch_sampler=[[1, 2], [3]]))[1], ([3], [9]))
        t = tn.data.TensorDataset(tn.arange(6), tn.arange(6) * 2)
        self.check(list(load(t, 2, sampler=[5, 0]))[0], ([5, 0], [10, 0]))
        self.assertRaises(ValueError, load, t, 2, True, sampler=[1])
        self.assertRaises(ValueError, load, t, 2, batch_sampler=[[1]])
        self.assertRaises(ValueError, load, (i for i in range(3)), sampler=[1])
        self.assertRaises(TypeError, load(t, sampler=[1]).state_dict)

    def test_iterables(self):
        load = tn.data.DataLoader
        self.check([b.tolist() for b in load((i for i in range(5)), 2)], [[0, 1], [2, 3], [4]])
        self.check([b.tolist() for b in load((i for i in range(5)), 2, drop_last=True)], [[0, 1], [2, 3]])
        self.check(list(load(map(lambda i: (i, 2.0 * i), range(3)), 3))[0], ([0, 1, 2], [0, 2, 4]))
        self.assertEqual(len(load({1: 2}.keys(), 2)), 1)
        self.assertRaises(TypeError, len, load(iter([1])))
        self.assertRaises(ValueError, load, iter([1]), 1, True)


@unittest.skipUnless(torch, "PyTorch is not installed")
class AsPyTorch(Case):
    CALLS = """x.sort() x.sort(0,True) x.topk(2) x.topk(2,dim=0) x.max(dim=1) x.min(dim=0,keepdim=True) x.median(dim=1)
        x.argsort(dim=0) x.split(2) x.split([1,2],dim=1) x.chunk(2,1) x.unbind(1) x.tril() x.triu(-1) x.clamp(min=0)
        x.clamp(-1,max=1) x.flip(0,1) x.roll(2) x.roll(1,0) x.t() x.narrow(1,0,2) x.unfold(0,2,1)
        x.var(1,unbiased=False) x.std(correction=2)
        x.cumsum(dim=1) x.softmax(dim=0) x.unique() x.nonzero(as_tuple=False)
        x.amax((0,1))
        x.repeat_interleave(3,dim=1) x.movedim(0,1) x.diag() x.new_full((2,2),7) x.count_nonzero() tn.cat((x,x),1)
        tn.stack([x,x]) tn.hstack((x,x)) tn.vstack((x,x)) tn.tile(x,(2,1)) tn.outer(x[0],x[1]) tn.lerp(x,x+1,0.25)
        tn.meshgrid(x[0],x[1],indexing="ij") tn.max(x,x.flip(0)) tn.allclose(x,x+1e-7) tn.isclose(x,x+1)
        tn.where(x>0,x,-x) tn.where(x>0) tn.bmm(x[None],x.t()[None]) x.flatten(start_dim=0)
        x.masked_fill(x>0,0) x.new_tensor([1,2])""".split()

    def test_calls(self):
        x = grid(5, 3)
        for call in self.CALLS:
            with self.subTest(call):
                got = eval(call, {"tn": tn, "x": x})
                want = eval(call, {"tn": torch, "x": torch.from_numpy(x.numpy().copy())})
                if hasattr(want, "_fields") or hasattr(want, "values") and isinstance(want, tuple):
                    self.check(got.values, want.values)
                    self.check(got.indices, want.indices)
                else:
                    self.check(got, want)


@unittest.skipUnless(torch is not None, "PyTorch is not installed")
class AsPyTorch(Case):
    """The same call with tensors of both."""

    def both(self, call, *tensors, places=5):
        theirs = [torch.tensor(t.tolist(), dtype=getattr(torch, t.dtype.name)) for t in tensors]
        got, want = call(tn, *tensors), call(torch, *theirs)
        self.check(list(got) if isinstance(got, tuple) else got, list(want) if isinstance(want, tuple) else want, places)

    def test_functions(self):
        x, y, i = grid(3, 4), grid(4, 3).T * 2, tn.tensor([[2, 0, 1, 1], [0, 0, 2, 1]])
        whole, other = tn.tensor([7, -7, 7, -7, 6, 0]), tn.tensor([2, 2, -2, -2, -3, 5])
        for call in (lambda t, x, y, i: t.add(x, y, alpha=3), lambda t, x, y, i: x.sub(y, alpha=0.5),
                     lambda t, x, y, i: t.div(x, y + 33, rounding_mode="trunc"),
                     lambda t, x, y, i: x.div(y + 33, rounding_mode="floor"),
                     lambda t, x, y, i: x.gather(0, i), lambda t, x, y, i: t.gather(x, dim=1, index=i[:, :3]),
                     lambda t, x, y, i: x.scatter(0, i, y), lambda t, x, y, i: x.scatter(1, i, value=9.0),
                     lambda t, x, y, i: x.clone().scatter_(0, i, 5.0), lambda t, x, y, i: x.clone().scatter_add_(0, i, y),
                     lambda t, x, y, i: t.zeros(3, 3).scatter_(1, i[:, :1], 1.0),
                     lambda t, x, y, i: x.index_add(1, i[0], y, alpha=2), lambda t, x, y, i: x.clone().index_add_(1, i[0], y),
                     lambda t, x, y, i: t.atan2(x, y), lambda t, x, y, i: t.diff(x), lambda t, x, y, i: x.diff(2, dim=0),
                     lambda t, x, y, i: t.trace(x @ x.T), lambda t, x, y, i: t.norm(x, 1), lambda t, x, y, i: x.norm(3, dim=1),
                     lambda t, x, y, i: t.norm(x, p=float("inf"), dim=0, keepdim=True), lambda t, x, y, i: x.norm(),
                     lambda t, x, y, i: x.norm(0), lambda t, x, y, i: x.norm(dim=(0, 1)), lambda t, x, y, i: x.median(1),
                     lambda t, x, y, i: x.size(), lambda t, x, y, i: [x.size(0), x.size(-1), x.numel()],
                     lambda t, x, y, i: x.addcmul(y, y, value=0.5), lambda t, x, y, i: x.clone().addcdiv_(y, y * y + 1),
                     lambda t, x, y, i: t.baddbmm(x[None], x[None] @ y.T[None], y[None], beta=0.5, alpha=0.1),
                     lambda t, x, y, i: t.broadcast_tensors(x, y[:1])[1], lambda t, x, y, i: t.cdist(x, y),
                     lambda t, x, y, i: t.cdist(x, y, p=1.0), lambda t, x, y, i: t.flipud(x) + t.fliplr(y),
                     lambda t, x, y, i: t.frac(x / 3), lambda t, x, y, i: t.hypot(x, y), lambda t, x, y, i: t.inner(x, y),
                     lambda t, x, y, i: t.isin(i, t.tensor([0, 2])) * 1, lambda t, x, y, i: t.logaddexp(x, y),
                     lambda t, x, y, i: t.mv(x, y[0]), lambda t, x, y, i: t.narrow(x, 1, 1, 2),
                     lambda t, x, y, i: t.searchsorted(t.tensor([-3.0, 0, 2, 2, 5]), x),
                     lambda t, x, y, i: t.bucketize(x, t.tensor([-3.0, 0, 2, 5]), right=True),
                     lambda t, x, y, i: t.take(x, i), lambda t, x, y, i: t.take_along_dim(x, i, dim=0),
                     lambda t, x, y, i: t.tensordot(x, y, dims=([1], [1])), lambda t, x, y, i: t.tensordot(x, y.T, 1),
                     lambda t, x, y, i: t.tril_indices(3, 4, 1), lambda t, x, y, i: t.triu_indices(3, 4, -1),
                     lambda t, x, y, i: x.unflatten(1, (2, -1)), lambda t, x, y, i: t.var_mean(x, 1),
                     lambda t, x, y, i: t.std_mean(x, dim=0, keepdim=True), lambda t, x, y, i: t.vdot(x[0], y[0]),
                     lambda t, x, y, i: t.xlogy(x * (x > 0), t.abs(y)), lambda t, x, y, i: t.deg2rad(t.rad2deg(x)),
                     lambda t, x, y, i: x.clone().tanh_().relu_().pow_(2), lambda t, x, y, i: x.clamp_min(1) - y.clamp_max(0),
                     lambda t, x, y, i: x.clone().index_fill_(1, t.tensor([0, 2]), 7.0),
                     lambda t, x, y, i: x.clone().index_copy_(0, t.tensor([2, 0]), y[:2]),
                     lambda t, x, y, i: t.nansum(t.where(x > 0, x, float("nan")), 1),
                     lambda t, x, y, i: t.nanmean(t.where(x > 0, x, float("nan"))),
                     lambda t, x, y, i: x.transpose(dim0=0, dim1=1), lambda t, x, y, i: t.mul(x, other=y)):
            self.both(call, x, y, i)
        self.both(lambda t, a, b: a.div(b, rounding_mode="trunc"), whole, other)
        self.both(lambda t, a, b: t.div(a, b, rounding_mode="floor"), whole, other)
        odd = tn.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 3.0])
        self.both(lambda t, x: t.nan_to_num(x[:3], nan=1.0)[0], odd)
        self.both(lambda t, x: x.nan_to_num(0.5, 2.0, -2.0), odd)
        pairs = [(s, o) for s in (0.0, -0.0, 2.0, -3.0, math.inf, -math.inf) for o in (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf)]
        self.both(lambda t, y, x: t.atan2(y, x), *(tn.tensor([p[i] for p in pairs]) for i in (0, 1)))

    def test_limits(self):
        for name in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
            ours, theirs = tn.finfo(getattr(tn, name)), torch.finfo(getattr(torch, name))
            for fact in ("bits", "eps", "max", "min", "tiny", "smallest_normal"):
                self.assertEqual(getattr(ours, fact), getattr(theirs, fact), (name, fact))
        for name in ("int8", "uint8", "int16", "int32", "int64"):
            ours, theirs = tn.iinfo(name), torch.iinfo(getattr(torch, name))
            self.assertEqual((ours.bits, ours.min, ours.max), (theirs.bits, theirs.min, theirs.max))
        with self.assertRaisesRegex(TypeError, "iinfo is for integers"):
            tn.finfo(tn.int32)

    def test_what_is_a_copy_and_what_is_not(self):
        x = grid(3, 3)
        for call in (lambda x: x.flip(0), lambda x: x.diag(), lambda x: x.repeat_interleave(1, 0)):
            y = call(x)
            y += 1
            self.check(x, grid(3, 3))
        self.assertIs(x.contiguous(), x)
        self.assertIsNot(x.T.contiguous(), x.T)
        self.assertTrue(x.T.contiguous().is_contiguous() and not x.T.is_contiguous() and x[:, :1].T.is_contiguous() is False)
        self.assertIs(x.float(), x)
        self.assertIs(x.type_as(x), x)
        self.assertIsNot(x.double(), x)

    def test_writing_operators(self):
        for op in ("__ifloordiv__", "__imod__", "__ipow__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"):
            a = tn.tensor([9, 5, 12])
            part, b = a[1:], torch.tensor([9, 5, 12])
            self.assertIs(getattr(part, op)(2), part)
            getattr(b[1:], op)(2)
            self.check(a, b)
        x = tn.tensor([3, 5])
        for op, v in (("__ifloordiv__", 2.0), ("__ipow__", 0.5)):
            with self.assertRaisesRegex(tn.DTypeError, "does not go into x of i64"):
                getattr(x, op)(v)
        self.check(x, [3, 5])

    def test_draws(self):
        w = tn.tensor([[1.0, 0, 3, 6], [0, 5, 5, 0]])
        tn.manual_seed(1)
        rows = tn.stack([tn.multinomial(w, 2) for _ in range(400)])
        self.assertTrue(all(len({*r}) == 2 for pair in rows.tolist() for r in pair))
        self.assertFalse((rows[:, 0] == 1).any() or (rows[:, 1] == 0).any() or (rows[:, 1] == 3).any())
        first = [sum(r == i for r in rows[:, 0, 0].tolist()) / 400 for i in range(4)]
        for share, want in zip(first, (0.1, 0, 0.3, 0.6)):
            self.assertAlmostEqual(share, want, delta=0.08)
        self.assertEqual(w[0].multinomial(9, replacement=True).shape, (9,))
        with self.assertRaisesRegex(ValueError, "without replacement"):
            tn.multinomial(w, 5)
        state = tn.get_rng_state()
        a = tn.rand(5)
        tn.set_rng_state(state)
        self.check(tn.rand(5), a)

    def test_gradients_have_names(self):
        x = tn.ones(2, 2, requires_grad=True)
        y = (x @ x).relu()
        self.assertEqual((x.grad_fn, repr(y.grad_fn), y.detach().grad_fn), (None, "<ReluBackward0>", None))
        with self.assertRaisesRegex(NotImplementedError, r"tn\.op"):
            class Scaled(tn.autograd.Function):
                pass
        with self.assertRaisesRegex(AttributeError, "the nearest is AdamW"):
            tn.optim.RAdam
        with self.assertRaisesRegex(tn.GradError, "is a view"):
            y.T.register_hook(print)

    def test_hooks_and_kept_gradients(self):
        found = []
        for t in (tn, torch):
            w = t.tensor([1.0, -2.0, 3.0], requires_grad=True)
            seen = []
            handles = [w.register_hook(lambda g: g * 2), w.register_hook(lambda g: seen.append(g.tolist()))]
            for turn in range(3):
                h = w * w
                h.retain_grad()
                (h * t.tensor([1.0, 2.0, 3.0])).sum().backward()
                found.append((w.grad.tolist(), h.grad.tolist(), list(seen)))
                if turn == 1:
                    for handle in handles:
                        handle.remove()
        self.assertEqual(found[:3], found[3:])
        w = tn.nn.Parameter(tn.ones(2))
        opt, handle = tn.optim.SGD([w], lr=1.0), w.register_hook(lambda g: g * 0)
        with self.assertRaisesRegex(NotImplementedError, r"loss\.backward\(\)"):
            opt.step((w * w).sum())
        handle.remove()
        h = w * w
        h.retain_grad()
        opt.step(h.sum())
        self.check(h.grad, [1, 1])
        self.check(w, [-1, -1])
        del h, w, opt
        self.assertFalse(tn._hooks.active())


@unittest.skipUnless(numpy is not None, "NumPy is not installed")
class AsNumPy(Case):
    def test_functions_of_numpy(self):
        x = tn.tensor([[1.0, 4, 2], [0.5, 3, 8]], requires_grad=True)
        a = x.detach().numpy()
        for call in (numpy.exp, numpy.sum, lambda x: numpy.mean(x, axis=1), lambda x: numpy.max(x, axis=0, keepdims=True),
                     lambda x: numpy.arctan2(x, 2.0), lambda x: numpy.ones((2, 3), "f") + x, lambda x: numpy.float32(2) * x,
                     lambda x: numpy.concatenate([x, x]), lambda x: numpy.transpose(x), lambda x: numpy.equal(x, 4.0) * 1.0):
            self.assertIsInstance(call(x), tn.Tensor)
            self.check(call(x), call(a))
        numpy.exp(x).sum().backward()
        self.check(x.grad, numpy.exp(a), 3)
        for call in (numpy.linalg.norm, numpy.std, lambda x: numpy.add.reduce(x, 0),
                     lambda x: numpy.sum(x, where=a > 1), lambda x: numpy.interp([1.5], [1, 2], numpy.ravel(x)[:2])):
            self.assertNotIsInstance(call(x.detach()), tn.Tensor)
            self.check(call(x.detach()), call(a))
            with self.assertRaisesRegex(RuntimeError, "has no gradient: call it with x.detach"):
                call(x)
        total = numpy.zeros((2, 3))
        total += x.detach()
        self.check(total, a)

    def test_tensors_have_no_forms_of_c(self):
        self.assertFalse([n for n in dir(tn.Tensor) if n.endswith(("_s", "_i64", "_keep", "_all", "_axes", "_with", "_of"))])

    def test_size_is_a_number_that_can_be_called(self):
        x = tn.ones(2, 3)
        self.assertEqual((x.size, x.size + 1, x.size(), x.size(1), numpy.size(x.numpy())), (6, 7, (2, 3), 3, 6))
        self.assertEqual(pickle.loads(pickle.dumps(x.size)), 6)


if __name__ == "__main__":
    unittest.main()
