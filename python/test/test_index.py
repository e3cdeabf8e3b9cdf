"""Indexing and assignment: every form of a key against NumPy."""
import random
import unittest

import tenon as tn

try:
    import numpy as np
except ImportError:
    np = None


def lists(x):
    return x.tolist()


class Plain(unittest.TestCase):
    """What can be judged without NumPy."""

    def setUp(self):
        self.x = tn.arange(12).reshape(3, 4)

    def test_reads(self):
        x = self.x
        for key, wanted in [
            ((1,), [4, 5, 6, 7]), ((-1, -1), 11), ((slice(None), 1), [1, 5, 9]), ((slice(None, None, -2), 0), [8, 0]),
            (([2, 0],), [[8, 9, 10, 11], [0, 1, 2, 3]]), ((Ellipsis, [0, -1]), [[0, 3], [4, 7], [8, 11]]),
            (([0, 2], [1, -1]), [1, 11]), (([[0], [2]], [1, 2]), [[1, 2], [9, 10]]),
            ((tn.tensor([2, -3]),), [[8, 9, 10, 11], [0, 1, 2, 3]]), ((tn.tensor(1),), [4, 5, 6, 7]),
            (([True, False, True], 1), [1, 9]), ((x > 8,), [9, 10, 11]), (([],), []), ((True, 0, 0), [0]),
            ((False,), []),
        ]:
            with self.subTest(key=key):
                self.assertEqual(lists(x[key if len(key) > 1 else key[0]]), wanted)

    def test_writes_go_through_views(self):
        x = self.x
        row = x[1]
        row += 100
        x[0][1:3] = -1
        x[:, 3] += 1000
        self.assertEqual(lists(x), [[0, -1, -1, 1003], [104, 105, 106, 1107], [8, 9, 10, 1011]])
        x[[0, 2], [0, 0]] += 7
        self.assertEqual(lists(x[:, 0]), [7, 104, 15])
        x[x > 1000] = 0
        self.assertEqual(lists(x[:, 3]), [0, 0, 0])
        x[[0, 0, 0], 1] = [1, 2, 3]
        self.assertEqual(x[0, 1].item(), 3)
        x[tn.tensor([True, False, True])] = tn.tensor([[1.9], [2.9]])
        self.assertEqual(lists(x), [[1] * 4, [104, 105, 106, 0], [2] * 4])
        x[...] = 5
        self.assertEqual(lists(x), [[5] * 4] * 3)

    def test_errors(self):
        x = self.x
        for error, key in [
            (IndexError, 3), (IndexError, (0, 0, 0)), (IndexError, [3]), (IndexError, [-4]), (IndexError, 1.5),
            (IndexError, "a"), (IndexError, (Ellipsis, Ellipsis)), (IndexError, [0.5]), (IndexError, [True, False]),
            (IndexError, ([0, 1], [0, 1, 2])), (IndexError, (0, 0, [0])), (ValueError, slice(0, 1, 0)),
            (IndexError, ([0], Ellipsis, Ellipsis)),
        ]:
            with self.subTest(key=key), self.assertRaises(error):
                x[key]
            with self.subTest(key=key), self.assertRaises(error):
                x[key] = 1
        for key in [slice(None), [0, 1], x > 3]:
            with self.subTest(key=key), self.assertRaises(ValueError):
                x[key] = [1, 2, 3]
        with self.assertRaises(TypeError):
            del x[0]
        with self.assertRaises(tn.Error):
            x[tn.tensor([3]), tn.tensor([0])].tolist()  # not the first element of a row further on
        with self.assertRaises(tn.Error):
            x[tn.tensor([0]), tn.tensor([4])].tolist()

    def test_gradients(self):
        w = tn.arange(6, dtype="f32").reshape(2, 3)
        w.requires_grad = True
        (w[[0, 0, 1], [1, 1, 2]] * tn.tensor([1.0, 10, 100])).sum().backward()
        self.assertEqual(lists(w.grad), [[0, 11, 0], [0, 0, 100]])


@unittest.skipUnless(np is not None, "NumPy is not installed")
class AgainstNumPy(unittest.TestCase):
    """Random keys for random tensors: the same values and shapes, or errors where NumPy has them."""

    def key(self, r, shape):
        """A key for NumPy and the same for a tensor."""
        ours, theirs, axis = [], [], 0
        batch = r.choice([(), (2,), (3,), (2, 3), (1,), (0,), (2, 1)])
        while axis < len(shape) and r.random() < 0.85:
            n, kind = shape[axis], r.randrange(10)
            if kind <= 1:
                v = r.randrange(-n, n) if n else 0
                ours.append(r.choice([v, np.int32(v), np.array(v)]))
                theirs.append(v)
            elif kind <= 3:
                ends = (r.choice([None, r.randrange(-n - 1, n + 2)]) for _ in range(2))
                s = slice(*ends, r.choice([None, 1, 2, -1, -2]))
                ours.append(s)
                theirs.append(s)
            elif kind <= 6:
                size = r.choice([batch, batch, (), (1,) * len(batch)])
                v = np.array([r.randrange(-n, n) if n else 0 for _ in range(int(np.prod(size)))],
                             dtype=r.choice(["int64", "int32"])).reshape(size)
                same = tn.tensor(v.tolist(), dtype="int64").reshape(size)
                ours.append(r.choice([v, v.tolist(), same]) if size else v.item())
                theirs.append(v if size else v.item())
            elif kind == 7:
                m = r.randrange(1, len(shape) - axis + 1)
                v = np.array([r.random() < 0.5 for _ in range(int(np.prod(shape[axis:axis + m])))],
                             dtype=bool).reshape(shape[axis:axis + m])
                ours.append(r.choice([v, tn.tensor(v)]))
                theirs.append(v)
                axis += m - 1
            elif kind == 8:
                ours.append(None)
                theirs.append(None)
                axis -= 1
            else:
                ours.append(v := r.choice([True, False, True, np.True_]) if r.random() < 0.3 else 0)
                theirs.append(v)
                axis -= not isinstance(v, int) or isinstance(v, bool)
            axis += 1
        if r.random() < 0.3:
            at = r.randrange(len(ours) + 1)
            ours.insert(at, Ellipsis)
            theirs.insert(at, Ellipsis)
        if len(ours) == 1 and r.random() < 0.7:
            return ours[0], theirs[0]
        return tuple(ours), tuple(theirs)

    def test_random_keys(self):
        r = random.Random(7)
        dtypes = ["int64", "float32", "int32", "bool", "float64", "uint8"]
        same = 0
        for trial in range(3000):
            shape = tuple(r.choice([1, 2, 3, 4, 0] if r.random() < 0.1 else [1, 2, 3, 4])
                          for _ in range(r.randrange(1, 5)))
            a = np.arange(int(np.prod(shape))).reshape(shape).astype(r.choice(dtypes))
            x = tn.tensor(a)
            ours, theirs = self.key(r, shape)
            try:
                wanted = a[theirs]
            except IndexError:
                # The numbers of a tensor are checked when they are known.
                late = any(isinstance(k, tn.Tensor) for k in (ours if isinstance(ours, tuple) else (ours,)))
                if late and 0 in shape:
                    continue  # an index that no element of the result asks for is never looked at
                kinds = (IndexError, tn.Error) if late else IndexError
                with self.assertRaises(kinds, msg=f"{trial}: {shape} {theirs}"):
                    x[ours].tolist()
                continue
            if wanted.ndim > 6:
                continue
            try:
                got = x[ours]
            except IndexError:
                self.assertEqual(wanted.size, 0, f"{trial}: {shape} {theirs}")
                continue  # NumPy does not check the numbers of an index that broadcasts to no element
            same += 1
            self.assertEqual(got.shape, wanted.shape, f"{trial}: {shape} {theirs}")
            self.assertEqual(got.tolist(), wanted.tolist(), f"{trial}: {shape} {theirs}")
            # A value of the result's shape, or one that broadcasts to it.
            part = tuple(1 if r.random() < 0.3 else n for n in wanted.shape)
            part = part[r.randrange(wanted.ndim + 1) if r.random() < 0.4 else 0:]
            value = np.array([r.randrange(-50, 50) for _ in range(int(np.prod(part)))]).reshape(part)
            value = np.abs(value) if a.dtype == np.uint8 else value
            if r.random() < 0.3:
                value = value.astype("float32")
            if 0 < wanted.ndim < 6:  # NumPy takes no array for one element
                value = r.choice([value, value, value[None], value[None, None]])
            try:
                a[theirs] = value
            except TypeError:
                continue  # NumPy takes an array of one axis at most for a mask alone
            except ValueError:
                with self.assertRaises(ValueError, msg=f"{trial}: {shape} {theirs}"):
                    x[ours] = value
                continue
            x[ours] = r.choice([value, value.tolist(), tn.tensor(value)]) if value.size else value
            self.assertEqual(x.tolist(), a.tolist(), f"{trial}: {shape} {theirs} = {value.shape}")
        self.assertGreater(same, 2000)


if __name__ == "__main__":
    unittest.main()
