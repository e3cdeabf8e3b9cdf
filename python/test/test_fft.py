"""Fourier transforms and complex tensors beside NumPy."""
import unittest

import tenon as tn

try:
    import numpy as np
except ImportError:
    np = None


class Fourier(unittest.TestCase):
    def test_a_line_and_back(self):
        x = tn.tensor([1.0, 2.0, -1.0, 3.0])
        y = tn.fft.fft(x)
        self.assertEqual((y.dtype, y.tolist()), (tn.complex64, [5, 2 + 1j, -5, 2 - 1j]))
        self.assertEqual(tn.fft.irfft(tn.fft.rfft(x)).tolist(), x.tolist())
        self.assertEqual(tn.fft.fftfreq(4).tolist(), [0, 0.25, -0.5, -0.25])
        self.assertEqual(tn.fft.fftshift(tn.arange(4)).tolist(), [2, 3, 0, 1])
        with self.assertRaisesRegex(ValueError, "norm"):
            tn.fft.fft(x, norm="none")
        with self.assertRaisesRegex(tn.DTypeError, "softmax: x is c64"):
            tn.softmax(y, 0)

    def test_gradients(self):
        x = tn.tensor([1.0, 2.0, -1.0, 3.0], requires_grad=True)
        (abs(tn.fft.fft(x)) ** 2).sum().backward()
        self.assertEqual([round(v, 4) for v in x.grad.tolist()], [8, 16, -8, 24])

    @unittest.skipIf(np is None, "NumPy is not installed")
    def test_beside_numpy(self):
        a = np.random.default_rng(1).standard_normal((3, 4, 10)) + 1j * np.random.default_rng(2).standard_normal((3, 4, 10))
        x, r = tn.tensor(a), tn.tensor(a.real)
        for name in ("fft", "ifft", "hfft", "irfft"):
            for kw in ({}, {"n": 7}, {"n": 13, "axis": 1, "norm": "ortho"}):
                np.testing.assert_allclose(getattr(tn.fft, name)(x, **kw).numpy(), getattr(np.fft, name)(a, **kw), atol=1e-12)
        for name in ("fft2", "ifft2", "irfft2", "fftn", "ifftn", "irfftn"):
            np.testing.assert_allclose(getattr(tn.fft, name)(x).numpy(), getattr(np.fft, name)(a), atol=1e-12)
        for name in ("rfft", "ihfft", "rfft2", "rfftn"):
            np.testing.assert_allclose(getattr(tn.fft, name)(r).numpy(), getattr(np.fft, name)(a.real), atol=1e-12)
        np.testing.assert_allclose(tn.fft.fftn(x, s=(3, 6), axes=(2, 0)).numpy(), np.fft.fftn(a, s=(3, 6), axes=(2, 0)), atol=1e-12)
        back = tn.istft(tn.stft(r[0], 8, window=tn.hann_window(8, dtype="float64")), 8, window=tn.hann_window(8, dtype="float64"), length=10)
        np.testing.assert_allclose(back.numpy(), a.real[0], atol=1e-12)


if __name__ == "__main__":
    unittest.main()
