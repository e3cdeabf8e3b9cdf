"""Memory shared with NumPy, PyTorch and JAX: values, aliases, lifetimes, misuse."""
import os
import array
import gc
import io
import subprocess
import sys
import threading
import unittest
import weakref

import tenon as tn

try:
    import numpy as np
except ImportError:
    np = None
try:
    import torch
except ImportError:
    torch = None
try:
    import jax
    import jax.numpy as jnp
    jax.config.update("jax_platforms", "cpu")
except ImportError:
    jax = None

DTYPES = "bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()
on_cpu = tn.current_context().device == "cpu"


def address(x):
    """Where a tensor's elements begin."""
    capsule = tn._c.to_dlpack(x, 0, True, False, False)
    return tn._c.capsule_layout(capsule)[0]


def exported():
    return tn.stats().exported


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def check_memory(case, rounds, warm, many):
    """After rounds(warm), rounds(many) takes no more memory, and nothing stays exported."""
    rounds(warm)
    before = resident()
    rounds(many)
    if "asan" not in os.environ.get("LD_PRELOAD", ""):  # which keeps what is freed
        case.assertLess(resident() - before, 4 << 20)
    tn.ones(1).item()
    case.assertEqual(exported(), 0)


@unittest.skipUnless(on_cpu, "the default device is not the cpu")
class Buffers(unittest.TestCase):
    """What needs no other library."""

    def test_a_tensor_is_read_in_place(self):
        x = tn.arange(12, dtype="i32").reshape(3, 4)
        m = memoryview(x)
        self.assertEqual((m.shape, m.strides, m.format, m.readonly), ((3, 4), (16, 4), "i", True))
        self.assertEqual(m.tolist(), x.tolist())
        self.assertEqual(memoryview(x.T).strides, (4, 16))
        self.assertEqual(memoryview(x.T).tolist(), x.T.tolist())
        self.assertEqual(bytes(tn.tensor([1, 2], dtype="u8")), b"\1\2")
        self.assertEqual(bytes(memoryview(x.T)), bytes(memoryview(x.T.contiguous())))
        x += 1
        self.assertEqual(m.tolist()[0], [0, 1, 2, 3])
        self.assertEqual(exported(), 1)
        m.release()
        self.assertEqual(exported(), 0)

    def test_what_has_no_format_is_refused(self):
        with self.assertRaisesRegex(BufferError, "bf16"):
            memoryview(tn.ones(2, dtype="bf16"))
        with self.assertRaises(TypeError):
            io.BytesIO(b"1234").readinto(tn.ones(1))  # which would write

    def test_memory_of_others_is_borrowed(self):
        a = array.array("d", range(6))
        x = tn.asarray(a)
        y = x + 1
        self.assertEqual((x.dtype, x.tolist()), (tn.float64, [0, 1, 2, 3, 4, 5]))
        self.assertEqual(address(x), a.buffer_info()[0])
        with self.assertRaises(BufferError):
            a.append(1)  # it is in use
        self.assertEqual(y.tolist()[5], 6)
        x += 1
        self.assertEqual((a[0], x.tolist()[0]), (0, 1))
        del x, y
        gc.collect()
        a.append(1)
        self.assertEqual(tn.tensor(memoryview(b"abc")).tolist(), [97, 98, 99])
        with self.assertRaises(TypeError):
            tn.from_numpy("text")

    def test_results_are_computed_in_memory_of_others(self):
        out = bytearray(4 * 64)
        x = tn.arange(64, dtype="f32") * 2
        self.assertIs(tn.eval_into(out, x), out)
        self.assertEqual(memoryview(out).cast("f").tolist(), [2.0 * i for i in range(64)])
        self.assertEqual(x.sum().item(), 64 * 63)
        for wrong, error in [(bytearray(8), ValueError), (b"1" * 256, BufferError), (3.5, TypeError)]:
            with self.assertRaises(error):
                tn.eval_into(wrong, x + 1)

    def test_exports_of_a_closed_context_stay(self):
        c = tn.Context("cpu")
        x = tn.ones(1000, device=c)
        m = memoryview(x)
        c.close()
        del x, c
        gc.collect()
        for _ in range(4):
            with tn.Context("cpu"):
                tn.zeros(1000).tolist()
        self.assertEqual(sum(m.tolist()), 1000)

    def test_exports_outlive_the_end_of_the_program(self):
        code = """if True:
            import atexit
            held = []
            atexit.register(lambda: print(sum(held[0].tolist())))
            import tenon as tn
            held.append(memoryview(tn.ones(1000)))
            keep = tn.asarray(held[0])
            """
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout.strip(), done.stderr), (0, "1000.0", ""))

    def test_nothing_leaks(self):
        x = tn.arange(1000, dtype="f32")
        out = bytearray(4000)

        def rounds(n):
            for _ in range(n):
                y = tn.asarray(memoryview(x + 1))
                tn.from_dlpack(x.__dlpack__()) + 1
                x.__dlpack__(max_version=(1, 0), copy=True)
                tn.eval_into(out, y * 2)

        check_memory(self, rounds, 500, 2500)


@unittest.skipUnless(on_cpu, "the default device is not the cpu")
class Protocol(unittest.TestCase):
    """DLPack's rules, by a capsule that is taken here."""

    def test_streams_devices_copies(self):
        x = tn.ones(3)
        self.assertEqual(x.__dlpack_device__(), (1, 0))
        self.assertIn('"dltensor"', repr(x.__dlpack__()))
        self.assertIn('"dltensor"', repr(x.__dlpack__(max_version=(0, 8))))
        self.assertIn('"dltensor_versioned"', repr(x.__dlpack__(max_version=(1, 0), dl_device=(1, 0))))
        for wrong in [{"stream": 1}, {"dl_device": (2, 0)}, {"dl_device": (4, 0)}, {"stream": 0}]:
            with self.assertRaises(BufferError, msg=str(wrong)):
                x.__dlpack__(**wrong)
        with self.assertRaises(AttributeError):
            x.__cuda_array_interface__
        with tn.Context("ref"):
            y = tn.ones(2)
            self.assertEqual(tn.from_dlpack(y, device="cpu").tolist(), [1, 1])
            with self.assertRaisesRegex(BufferError, "copy"):
                y.__dlpack__(copy=False)

    def test_a_capsule_is_taken_once(self):
        x = tn.arange(4)
        capsule = x[::2].__dlpack__()
        y = tn.from_dlpack(capsule)
        self.assertEqual(y.tolist(), [0, 2])
        with self.assertRaisesRegex(BufferError, "used before"):
            tn.from_dlpack(capsule)
        with self.assertRaises(BufferError):
            tn.from_dlpack(3)
        del y, capsule
        tn.ones(1).item()
        self.assertEqual(exported(), 0)

    def test_a_consumer_on_another_thread(self):
        x = tn.arange(1000)
        capsules = [x.__dlpack__() for _ in range(100)]
        self.assertEqual(exported(), 100)
        thread = threading.Thread(target=capsules.clear)
        thread.start()
        thread.join()
        self.assertEqual(exported(), 0)

    def test_dtypes_that_are_missing_are_named(self):
        class Foreign:
            def __dlpack_device__(self):
                return (7, 0)

            def __dlpack__(self, **kw):
                raise AssertionError
        with self.assertRaisesRegex(BufferError, "type 7"):
            tn.from_dlpack(Foreign())


@unittest.skipUnless(np is not None and on_cpu, "NumPy is not installed")
class WithNumPy(unittest.TestCase):
    def test_scalars_of_numpy_count_as_numbers(self):
        x, small = tn.tensor([1, 3]), tn.tensor([5], dtype="u8")
        for number in (np.float64(2), np.float32(2)):
            self.assertEqual([(y.dtype, y.tolist()) for y in (x * number, number * x)], [(tn.float32, [2, 6])] * 2)
        self.assertEqual((small == np.int64(261)).tolist(), [False])
        self.assertEqual(small.clamp(np.int64(-1)).tolist(), [5])

    def test_values_of_every_dtype_both_ways(self):
        for name in DTYPES:
            with self.subTest(name=name):
                a = np.arange(12).reshape(3, 4).astype(name)
                exports = name != "bool" or np.__version__ >= "2"  # NumPy 1 has no bools in DLPack
                for x in (tn.tensor(a), tn.asarray(a), tn.from_numpy(a), tn.from_dlpack(a) if exports else tn.tensor(a)):
                    self.assertEqual((x.dtype.name, x.tolist()), (name, a.tolist()))
                for b in (x.numpy(), np.asarray(x), np.array(x), np.from_dlpack(x) if exports else x.numpy(), x.__array__()):
                    self.assertEqual((b.dtype, b.tolist()), (a.dtype, a.tolist()))
        x = tn.tensor([1.5, -2], dtype="bf16")
        self.assertEqual(np.asarray(x).astype("f4").tolist(), [1.5, -2])
        self.assertEqual(tn.tensor(x.numpy()).tolist(), [1.5, -2])
        with self.assertRaises((BufferError, RuntimeError)):
            np.from_dlpack(x)

    def test_layouts_both_ways(self):
        a = np.arange(60, dtype="f4").reshape(3, 4, 5)
        for b in (a.T, a[::-1, 1:, ::2], a[:, None], a[1], np.broadcast_to(a[0, 0], (2, 3, 5)), a[:0], a[0, 0, 0:1],
                  np.frombuffer(b"\0" + a.tobytes(), "f4", offset=1), a.view("V4").view("f4"), np.float32(3), a[0, 0, 0]):
            x = tn.asarray(b)
            self.assertEqual((x.shape, x.tolist()), (np.shape(b), b.tolist()))
            self.assertEqual(x.numpy().tolist(), b.tolist())
            self.assertEqual(np.from_dlpack(x).tolist(), b.tolist())
            if np.ndim(b) and b.flags.aligned and b.size:
                self.assertEqual(address(x), b.ctypes.data)
                self.assertEqual(x.numpy().ctypes.data, b.ctypes.data)
        x = tn.asarray(a).transpose(0, 2)[:, ::2]
        self.assertEqual(x.numpy().strides, (4, 40, 80))
        x += 1
        self.assertEqual((x.numpy() - a.T[:, ::2]).tolist(), np.ones((5, 2, 3)).tolist())

    def test_an_export_is_a_snapshot_and_read_only(self):
        x = tn.arange(4, dtype="f32")
        a, b, c = x.numpy(), np.from_dlpack(x), np.array(x)
        self.assertFalse(a.flags.writeable or b.flags.writeable)
        self.assertEqual(a.ctypes.data, b.ctypes.data)
        x += 10
        x[0] = -1
        self.assertEqual((a.tolist(), b.tolist(), x.tolist()), ([0, 1, 2, 3], [0, 1, 2, 3], [-1, 11, 12, 13]))
        c[0] = 7
        del x
        gc.collect()
        tn.zeros(4).tolist()
        self.assertEqual(a.tolist(), [0, 1, 2, 3])
        if np.__version__ >= "2.1":  # what is older takes no argument
            np.from_dlpack(tn.ones(2), copy=True)[0] = 5

    def test_lifetimes(self):
        class Array(np.ndarray):
            pass
        for take in (tn.asarray, tn.from_dlpack):
            a = np.ones(1000, "f4").view(Array)
            died = weakref.ref(a)
            x = take(a)
            y = x[10:] * 2
            del a, x
            gc.collect()
            self.assertIsNotNone(died())
            self.assertEqual(y.sum().item(), 1980)
            del y
            gc.collect()
            tn.ones(1).item()
            self.assertIsNone(died(), take)
        count = sys.getrefcount(np.float32)
        a = tn.ones(5).numpy()
        self.assertEqual(exported(), 1)
        del a
        self.assertEqual((exported(), sys.getrefcount(np.float32)), (0, count))

    def test_arguments_of_array(self):
        x = tn.arange(3)
        self.assertEqual(x.__array__(np.float64).dtype, np.float64)
        self.assertTrue(np.array(x, copy=True).flags.writeable)
        self.assertEqual(np.asarray(x, dtype="f4").tolist(), [0, 1, 2])
        with self.assertRaises(ValueError):
            x.__array__(np.float32, copy=False)
        self.assertEqual((np.ones(3) + x).tolist(), [1, 2, 3])
        self.assertIsInstance(np.ones(3) + x, tn.Tensor)
        self.assertEqual(np.stack([x, x]).shape, (2, 3))
        for wrong in (np.array(["a"]), np.array([object()]), np.ones((1,) * 9), np.zeros(2, ">f4")):
            with self.assertRaises((TypeError, ValueError)):
                tn.asarray(wrong)

    def test_results_in_arrays(self):
        a, b = np.zeros((4, 16), "f4"), np.zeros(4, "f8")
        x = tn.ones(4, 16) * 3
        y = x.sum(1).astype("f64")
        tn.eval_into([a, b], [x, y])
        self.assertEqual((a.tolist(), b.tolist()), ([[3.0] * 16] * 4, [48.0] * 4))
        for wrong in (np.zeros((4, 15), "f4"), np.zeros((4, 16), "f8"), np.zeros((16, 4), "f4").T):
            with self.assertRaises((ValueError, BufferError)):
                tn.eval_into(wrong, x + 1)
        died = weakref.ref(a)
        del a, x, y
        gc.collect()
        tn.ones(1).item()
        self.assertIsNone(died())


@unittest.skipUnless(torch is not None and on_cpu, "PyTorch is not installed")
class WithPyTorch(unittest.TestCase):
    def test_values_of_every_dtype_both_ways(self):
        for name in DTYPES + ["bfloat16", "float8_e4m3fn", "float8_e5m2"]:
            with self.subTest(name=name):
                a = torch.ones(3, 4).to(getattr(torch, name))
                x = tn.from_dlpack(a)
                self.assertEqual((x.dtype.name, x.shape, address(x)), (name, (3, 4), a.data_ptr()))
                b = torch.from_dlpack(x)
                self.assertEqual((b.dtype, b.data_ptr()), (a.dtype, a.data_ptr()))
                self.assertTrue(torch.equal(a.float(), b.float()))
                self.assertEqual(tn.asarray(a).float().tolist(), a.float().tolist())

    def test_layouts_and_lifetimes(self):
        a = torch.arange(24.0).reshape(2, 3, 4)
        for b in (a.permute(2, 0, 1), a[:, ::2], a[:, :, 1], a.expand(2, 2, 3, 4), a[:0], a[1, 2, 3]):
            x = tn.from_dlpack(b)
            self.assertEqual(x.tolist(), b.tolist())
            back = torch.from_dlpack(x)
            self.assertTrue(torch.equal(back, b) and (not b.numel() or back.data_ptr() == b.data_ptr()))
        del back, x
        x = tn.arange(6).reshape(2, 3)
        b = torch.from_dlpack(x.T)
        x += 1
        del x
        gc.collect()
        tn.zeros(6).tolist()
        self.assertEqual((b.tolist(), b.stride()), ([[0, 3], [1, 4], [2, 5]], (1, 3)))
        self.assertEqual(exported(), 1)
        del b
        self.assertEqual(exported(), 0)
        self.assertEqual(tn.from_dlpack(torch.ones(2, requires_grad=True)).tolist(), [1, 1])
        self.assertEqual(tn.from_dlpack(torch.tensor([1 - 2j, 3j]).conj()[:1].resolve_conj()).tolist(), [1 + 2j])

    def test_copies(self):
        a = torch.ones(3)
        x = tn.from_dlpack(a, copy=True)
        y = tn.from_dlpack(a)
        a[0] = 5
        self.assertEqual(x.tolist(), [1, 1, 1])
        self.assertEqual(y.tolist(), [5, 1, 1])  # not allowed, and what happens then
        b = torch.from_dlpack(x.__dlpack__(copy=True, max_version=(1, 0)))
        b[0] = 9
        self.assertEqual(x.tolist(), [1, 1, 1])
        out = torch.zeros(3, 64)
        tn.eval_into(out, tn.ones(3, 64) + 1)
        self.assertTrue(bool((out == 2).all()))

    def test_nothing_leaks(self):
        a = torch.ones(1000)

        def rounds(n):
            for _ in range(n):
                torch.from_dlpack(tn.from_dlpack(a) + 1).sum()
        check_memory(self, rounds, 1000, 10000)


@unittest.skipUnless(jax is not None and on_cpu, "JAX is not installed")
class WithJAX(unittest.TestCase):
    def test_both_ways(self):
        for name in ("float32", "int32", "bool", "uint8", "float16", "bfloat16"):
            a = jnp.ones((3, 4), name)
            x = tn.from_dlpack(a)
            self.assertEqual((x.dtype.name, x.tolist(), address(x)), (name, a.tolist(), a.unsafe_buffer_pointer()))
            b = jax.dlpack.from_dlpack(x)
            self.assertEqual((b.dtype, b.tolist()), (a.dtype, a.tolist()))
        x = tn.arange(1000, dtype="f32")
        b = jax.dlpack.from_dlpack(x)
        x += 1
        self.assertEqual(b[:3].tolist(), [0, 1, 2])
        del x, b, a
        gc.collect()
        tn.ones(1).item()
        self.assertEqual(exported(), 0)


if __name__ == "__main__":
    unittest.main()
