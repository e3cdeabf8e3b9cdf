"""tenon.sparse: products beside dense ones, PyTorch's names, and errors."""
import unittest

import tenon as tn


class Sparse(unittest.TestCase):
    def setUp(self):
        tn.manual_seed(4)
        dense = tn.randn(5, 4, dtype=tn.float64)
        self.dense = tn.where(dense > 0, dense, tn.zeros_like(dense))
        self.a = self.dense.to_sparse()
        self.x = tn.randn(4, 3, dtype=tn.float64)

    def near(self, a, b):
        self.assertTrue(tn.allclose(a, b, rtol=1e-12, atol=1e-12), f"{a} and {b}")

    def test_products_are_those_of_the_dense_matrix(self):
        a, d, x = self.a, self.dense, self.x
        self.near(a.to_dense(), d)
        for y in (a @ x, tn.sparse.mm(a, x)):
            self.near(y, d @ x)
        self.near(a @ x[:, 0], d @ x[:, 0])
        self.near(a.T @ d, d.T @ d)
        self.near(d.T @ a, d.T @ d)
        self.near(d[:, 0] @ a, d[:, 0] @ d)
        self.near(tn.sparse.addmm(d, a, d.T @ d, beta=2, alpha=0.5), 2 * d + 0.5 * (d @ (d.T @ d)))
        y = tn.sparse.sampled_addmm(a, d, d.T @ d, beta=0)
        self.near(y.to_dense(), tn.where(d != 0, d @ (d.T @ d), tn.zeros_like(d)))
        self.near((a * 2).to_dense(), 2 * d)
        self.assertEqual((a.shape, a.t().shape, a.dtype), ((5, 4), (4, 5), tn.float64))

    def test_matrices_are_made_as_in_pytorch(self):
        coo = tn.sparse_coo_tensor([[1, 0, 1, 1], [2, 0, 0, 2]], [3.0, 4.0, 5.0, 1.0], (2, 3))
        csr = tn.sparse_csr_tensor([0, 1, 3], [0, 0, 2], [4.0, 5.0, 4.0])
        for a in (coo, csr, coo.coalesce()):
            self.assertEqual(a.to_dense().tolist(), [[4, 0, 0], [5, 0, 4]])
            self.assertEqual(a.indices().tolist(), [[0, 1, 1], [0, 0, 2]])
            self.assertEqual(a.crow_indices().tolist(), [0, 1, 3])
            self.assertEqual(a.col_indices().tolist(), [0, 0, 2])
            self.assertEqual(a.values().tolist(), [4, 5, 4])
        self.assertEqual(repr(coo), f"SparseTensor(2 x 3, 3 of {tn.float32})")

    def test_gradients_go_to_values_and_to_the_dense_side(self):
        v = tn.tensor([1.0, 2.0, 3.0], requires_grad=True)
        x = tn.tensor([[1.0], [2.0]], requires_grad=True)
        a = tn.sparse_coo_tensor([[0, 1, 1], [1, 0, 1]], v, (2, 2))
        (a @ x).sum().backward()
        self.assertEqual(v.grad.tolist(), [2, 1, 2])
        self.assertEqual(x.grad.tolist(), [[2], [4]])
        self.assertTrue(a.requires_grad and not a.detach().requires_grad)

    def test_semi_structured_weights_are_as_before(self):
        w = tn.randn(8, 16, dtype=tn.bfloat16)
        w = (w * tn.prune_2_4(w, False)).detach()
        x = tn.randn(4, 16, dtype=tn.bfloat16)
        y = x @ w.T
        self.assertIs(tn.sparse.to_sparse_semi_structured(w), w)
        self.assertEqual((x @ w.T).tolist(), y.tolist())
        with self.assertRaisesRegex(ValueError, "compress_2_4: w \\(4, 16\\) has fours with 4 elements that are not 0"):
            tn.sparse.to_sparse_semi_structured(x)

    def test_what_does_not_fit_is_named(self):
        with self.assertRaisesRegex(ValueError, "column 3 of element 1 is out of range for 3 columns"):
            tn.sparse_coo_tensor([[0, 1], [1, 3]], [1.0, 2.0], (2, 3))
        with self.assertRaisesRegex(ValueError, "not that of a matrix"):
            tn.sparse_coo_tensor([[0], [1]], [1.0], (2, 3, 4))
        with self.assertRaisesRegex(ValueError, "not those of 5 rows"):
            tn.sparse_csr_tensor([0, 1], [1], [1.0], (5, 4))
        with self.assertRaisesRegex(ValueError, "values of a transposed matrix"):
            self.a.T.crow_indices()


if __name__ == "__main__":
    unittest.main()
