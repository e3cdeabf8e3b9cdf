"""tenon.linalg: what factorizations promise, and NumPy's numbers."""
import math
import unittest

import tenon as tn
from tenon import linalg

try:
    import numpy as np
except ImportError:
    np = None


class Promises(unittest.TestCase):
    def setUp(self):
        tn.manual_seed(3)
        self.x = tn.randn(2, 4, 3, dtype=tn.float64)
        self.a = self.x.mT @ self.x + tn.eye(3, dtype=tn.float64)

    def near(self, a, b):
        self.assertTrue(tn.allclose(a, b, rtol=1e-9, atol=1e-9), f"{a} and {b}")

    def test_factors_multiply_to_what_was_factored(self):
        a, x = self.a, self.x
        L, U = linalg.cholesky(a), linalg.cholesky(a, upper=True)
        self.near(L @ L.mT, a)
        self.near(U.mT @ U, a)
        for mode in ("reduced", "complete"):
            q, r = linalg.qr(x, mode)
            self.near(q @ r, x)
            self.near(q.mT @ q, tn.eye(q.shape[-1], dtype=tn.float64))
        for uplo in "LU":
            w, v = linalg.eigh(a, uplo)
            self.near(v * w.unsqueeze(-2) @ v.mT, a)
            self.near(linalg.eigvalsh(a, uplo), w)
        u, s, vh = linalg.svd(x, full_matrices=False)
        self.near(u * s.unsqueeze(-2) @ vh, x)
        self.assertEqual(linalg.svd(x).U.shape, (2, 4, 4))
        self.near(linalg.svdvals(x), s)

    def test_equations(self):
        a, b = self.a, self.x.mT
        self.near(a @ linalg.solve(a, b), b)
        self.near(linalg.solve(a, self.x, left=False) @ a, self.x)
        self.near((a @ linalg.solve(a, b[..., 0]).unsqueeze(-1))[..., 0], b[..., 0])
        self.near(linalg.inv(a) @ a, tn.eye(3, dtype=tn.float64).expand(2, 3, 3))
        L = linalg.cholesky(a)
        self.near(L @ linalg.solve_triangular(L, b, upper=False), b)
        self.near(linalg.solve_triangular(L, self.x, upper=False, left=False) @ L, self.x)
        self.near(linalg.lstsq(self.x, self.x @ a).solution, a)
        self.near(linalg.pinv(self.x) @ self.x, tn.eye(3, dtype=tn.float64).expand(2, 3, 3))
        sign, log = linalg.slogdet(-a)
        self.near(sign * log.exp(), linalg.det(-a))

    def test_failures_are_nan_and_info(self):
        bad = tn.tensor([[[1.0, 2], [2, 1]], [[4, 0], [0, 4]]])
        L, info = linalg.cholesky_ex(bad)
        self.assertEqual(info.tolist(), [2, 0])
        self.assertTrue(all(math.isnan(v) for row in L[0].tolist() for v in row))
        self.assertEqual(L[1].tolist(), [[2, 0], [0, 2]])
        with self.assertRaisesRegex(tn.Error, "cholesky: matrix 0 of 2"):
            linalg.cholesky_ex(bad, check_errors=True)
        with self.assertRaisesRegex(tn.Error, "inv: matrix 0 of 1"):
            linalg.inv_ex(tn.ones(2, 2), check_errors=True)
        with self.assertRaisesRegex(tn.Error, r"inv: x \(2, 3\) is no square matrix"):
            linalg.inv(tn.ones(2, 3))

    def test_gradients(self):
        w = tn.randn(3, 3, dtype=tn.float64, requires_grad=True)
        linalg.det(w).backward()
        self.near(w.grad, linalg.det(w.detach()) * linalg.inv(w.detach()).mT)


@unittest.skipUnless(np, "NumPy is not there")
class Numpy(unittest.TestCase):
    def test_numbers_are_numpys(self):
        x = np.random.default_rng(1).standard_normal((2, 4, 4))
        t = tn.tensor(x)
        for ours, theirs in [
            (linalg.det(t), np.linalg.det(x)), (linalg.inv(t), np.linalg.inv(x)), (linalg.pinv(t), np.linalg.pinv(x)),
            (linalg.qr(t).R, np.linalg.qr(x).R), (linalg.svdvals(t), np.linalg.svd(x)[1]),
            (linalg.matrix_power(t, 3), np.linalg.matrix_power(x, 3)), (linalg.matrix_power(t, 0), np.linalg.matrix_power(x, 0)),
            (linalg.matrix_rank(t), np.linalg.matrix_rank(x)), (linalg.cond(t), np.linalg.cond(x)),
            (linalg.norm(t[0]), np.linalg.norm(x[0])), (linalg.norm(t, axis=1), np.linalg.norm(x, axis=1)),
            (linalg.multi_dot([t[0], t[1], t[0]]), np.linalg.multi_dot([x[0], x[1], x[0]])),
            *((linalg.norm(t[0], o), np.linalg.norm(x[0], o)) for o in ("fro", "nuc", 1, 2, -1, -2, math.inf, -math.inf)),
            *((linalg.norm(t[0, 0], o), np.linalg.norm(x[0, 0], o)) for o in (0, 1, 2, 3, math.inf, -math.inf)),
            *((linalg.cond(t, p), np.linalg.cond(x, p)) for p in (1, 2, "fro", math.inf)),
        ]:
            np.testing.assert_allclose(np.asarray(ours.tolist()), theirs, rtol=1e-9, atol=1e-12)


if __name__ == "__main__":
    unittest.main()
