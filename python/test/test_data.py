"""Datasets and batches: those of C, those of Python on the loader's thread, and PyTorch's names for them."""
import array
import gc
import importlib.util
import io
import os
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import unittest
import zlib

import tenon as tn
from tenon.data import Batch, ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset, progress

try:
    import numpy
except ImportError:
    numpy = None


class Squares(Dataset):
    """Items (i, [i, i * i]), and what it was asked for."""

    def __init__(self, n=10, bad=None):
        self.n, self.bad, self.threads = n, bad, set()

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.threads.add(threading.get_ident())
        if i == self.bad:
            raise KeyError(f"no item {i}")
        return i, [float(i), i * i]


class WithTensors(Squares):
    """Items that tensors were used for."""

    def __getitem__(self, i):
        return i, (tn.tensor([float(i), i]) * tn.tensor([1.0, float(i)])).tolist()


class OfC(unittest.TestCase):
    def test_digits_have_fields_and_classes(self):
        d = tn.data.digits(100, seed=3)
        self.assertEqual(len(d), 100)
        self.assertEqual(d.fields, ((tn.float32, (1, 28, 28)), (tn.int64, ())))
        self.assertEqual((d.num_classes, d.classes), (10, [str(i) for i in range(10)]))
        batch = d.next(8)
        self.assertIsInstance(batch, Batch)
        x, y = batch
        self.assertEqual((x.shape, y.shape), ((8, 1, 28, 28), (8,)))
        self.assertTrue(0 <= x.min().item() <= x.max().item() <= 1)

    def test_an_epoch_has_every_item_once(self):
        d = tn.data.arrays(tn.arange(10), tn.arange(10) * 10)
        seen = []
        for epoch in range(2):
            batches = list(d.batches(4))
            self.assertEqual([b.count for b in batches], [4, 4, 2])
            self.assertEqual([b.start for b in batches], [0, 4, 8])
            self.assertEqual([b.last for b in batches], [False, False, True])
            self.assertEqual({b.epoch for b in batches}, {epoch})
            for x, y in batches:
                self.assertEqual((x * 10).tolist(), y.tolist())
            seen.append([v for b in batches for v in b.x.tolist()])
        self.assertEqual([sorted(s) for s in seen], [list(range(10))] * 2)
        self.assertNotEqual(seen[0], seen[1])

    def test_a_position_is_found_again(self):
        d = tn.data.arrays(tn.arange(20)).shuffle(True, 5)
        d.next(6)
        at, rest = d.cursor, d.next(6).x.tolist()
        self.assertEqual(at, {"seed": 5, "epoch": 0, "index": 6})
        d.next(6)
        self.assertEqual(d.seek(at).next(6).x.tolist(), rest)
        self.assertEqual(d.rewind().cursor["index"], 0)
        with self.assertRaisesRegex(tn.ArgumentError, "item 20 of 20"):
            d.seek({"seed": 0, "epoch": 0, "index": 20})

    def test_splits_share_no_item(self):
        d = tn.data.arrays(tn.arange(50))
        part = d.split(0.2, seed=1)
        self.assertEqual((len(d), len(part)), (40, 10))
        both = [v for part in (d, part) for b in part.batches(7) for v in b.x.tolist()]
        self.assertEqual(sorted(both), list(range(50)))

    def test_folders_of_pictures(self):
        def png(grey):
            def chunk(name, data):
                return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
            return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 6, 5, 8, 0, 0, 0, 0)) +
                    chunk(b"IDAT", zlib.compress((b"\0" + bytes([grey] * 6)) * 5)) + chunk(b"IEND", b""))
        with tempfile.TemporaryDirectory() as folder:
            for i, name in enumerate(("a", "b", "b")):
                os.makedirs(f"{folder}/{name}", exist_ok=True)
                with open(f"{folder}/{name}/{i}.png", "wb") as f:
                    f.write(png(51 * i) if i < 2 else b"no picture")
            data = tn.data.images(folder, 4).shuffle(False)
            try:
                image = tn.data.read_image(f"{folder}/b/1.png")
            except tn.Error as e:
                self.skipTest(str(e))
            self.assertEqual(image.shape, (1, 5, 6))
            tn.data.write_image(tn.stack([image, image]), f"{folder}/two.png", padding=0)
            self.assertTrue(tn.allclose(tn.data.read_image(f"{folder}/two.png"), tn.concat([image, image], -1)))
            x, y = data.next(2)
            self.assertEqual((x.shape, y.tolist()), ((2, 3, 4, 4), [0, 1]))
            self.assertAlmostEqual(x[1].max().item(), 0.2, places=5)
            x, y = data.augment(resized_crop=True, flip=True, mixup=0.5).next(3)
            self.assertEqual(y.shape[-1], 2)
            while not data.skipped_files:
                data.next(3)
            self.assertIn("2.png: it is no JPEG or PNG", data.skipped_files[0])
            self.assertEqual(data.skipped, 1)

    def test_a_table_has_a_schema(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.csv")
            with open(path, "w") as f:
                f.write("size,colour,kind\n" + "".join(f"{i},{'red' if i % 2 else 'blue'},{'ab'[i % 2]}\n" for i in range(20)))
            d = tn.data.csv(path, target="kind").shuffle(False)
            x, y = d.next(2)
            self.assertEqual(x.tolist(), [[0, 1, 0], [1, 0, 1]])
            self.assertEqual((y.tolist(), d.classes), ([0, 1], ["a", "b"]))
            self.assertEqual(tn.data.csv(path, schema=d.schema, no_target=True).fields, d.fields[:1])
            with self.assertRaisesRegex(tn.Error, "weight"):
                tn.data.csv(path, target="weight")
            with self.assertRaisesRegex(ValueError, "missing is one of"):
                tn.data.csv(path, missing="maybe")
        with self.assertRaises(OSError):
            tn.data.mnist("/nowhere")

    def test_a_text_is_windows_of_bytes(self):
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("abcdefgh" * 10)
            f.flush()
            x, y = tn.data.text(f.name, 4).shuffle(False).next(1)
            self.assertEqual((bytes(x.tolist()[0]), bytes(y.tolist()[0])), (b"abcd", b"bcde"))


class OfPython(unittest.TestCase):
    def test_items_are_made_on_the_loaders_thread(self):
        data = Squares()
        batches = list(DataLoader(data, 4))
        self.assertEqual([b[0].tolist() for b in batches], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
        self.assertEqual(batches[1][1].tolist(), [[i, i * i] for i in range(4, 8)])
        self.assertEqual((batches[0].x.dtype, batches[0].y.dtype), (tn.int64, tn.float32))
        self.assertEqual(len(data.threads), 2)  # the first item is made here, to know the fields

    def test_items_that_tensors_were_used_for(self):
        batches = list(DataLoader(WithTensors(), 4, num_workers=2, persistent_workers=True, prefetch_factor=2))
        for got, want in zip(batches, DataLoader(Squares(), 4), strict=True):
            self.assertEqual([f.tolist() for f in got], [f.tolist() for f in want])

    def test_kinds_of_items(self):
        for make, dtype, want in [
            (lambda i: i, tn.int64, [0, 1, 2]),
            (lambda i: i / 2, tn.float32, [0, 0.5, 1]),
            (lambda i: i > 1, tn.bool_, [False, False, True]),
            (lambda i: bytes([i, i + 1]), tn.uint8, [[0, 1], [1, 2], [2, 3]]),
            (lambda i: array.array("d", [i]), tn.float64, [[0], [1], [2]]),
            (lambda i: [[i, 0.5]], tn.float32, [[[0, 0.5]], [[1, 0.5]], [[2, 0.5]]]),
        ]:
            with self.subTest(want=want):
                (batch,) = DataLoader(Made(make), 3)
                self.assertEqual((batch.dtype, batch.tolist()), (dtype, want))

    @unittest.skipUnless(numpy, "NumPy is not installed")
    def test_arrays_and_scalars_of_numpy(self):
        for make in [lambda i: (numpy.full((2, 3), i, "float32"), numpy.int32(i)),
                     lambda i: (numpy.full((3, 2), i, "float32").T, numpy.array(i, "int32"))]:
            ((x, y),) = DataLoader(Made(make), 3)
            self.assertEqual((x.shape, x.dtype, y.dtype), ((3, 2, 3), tn.float32, tn.int32))
            self.assertEqual(x[2].tolist(), [[2] * 3] * 2)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_a_dataset_of_pytorch(self):
        import torch
        data = torch.utils.data.TensorDataset(torch.arange(6.0).reshape(3, 2), torch.arange(3))
        ((x, y),) = DataLoader(data, 3)
        self.assertEqual((x.tolist(), y.tolist(), y.dtype), ([[0, 1], [2, 3], [4, 5]], [0, 1, 2], tn.int64))

    def test_tensors_texts_and_dicts_are_collated_here(self):
        base = tn.arange(6).reshape(3, 2)
        data = Made(lambda i: {"row": base[i], "name": f"n{i}", "pair": (i, i / 2)})
        (batch,) = DataLoader(data, 3)
        self.assertEqual(batch["row"].tolist(), base.tolist())
        self.assertEqual((batch["name"], batch["pair"][1].tolist()), (["n0", "n1", "n2"], [0, 0.5, 1]))
        sums = DataLoader(Squares(4), 2, collate_fn=lambda items: sum(i for i, _ in items))
        self.assertEqual(list(sums), [1, 5])

    def test_an_exception_is_raised_at_its_batch(self):
        batches = iter(DataLoader(Squares(bad=5), 2))
        self.assertEqual([next(batches).x.tolist() for _ in range(2)], [[0, 1], [2, 3]])
        try:
            next(batches)
            self.fail("no exception")
        except KeyError as e:
            text = "".join(traceback.format_exception(e))
        for part in ("in __getitem__", "no item 5", "in item 5 of the dataset"):
            self.assertIn(part, text)
        self.assertEqual((tn.ones(2) + 1).tolist(), [2, 2])

    def test_tensors_cannot_be_used_on_the_loaders_thread(self):
        base = tn.arange(6)
        with self.assertRaisesRegex(tn.ThreadError, "pass collate_fn"):
            list(DataLoader(Made(lambda i: base[i].item() if i else 0), 3))  # the first item does not show it
        collate = lambda items: tn.tensor(items)
        self.assertEqual([b.tolist() for b in DataLoader(Made(lambda i: base[i].item()), 3, collate_fn=collate)], [[0, 1, 2]])

    def test_items_unlike_the_first_are_refused(self):
        for make, message in [
            (lambda i: [0] * (i + 1), r"field 0 .* i64 \(1,\)"),
            (lambda i: (i, i) if i < 2 else (i,), "2 fields"),
            (lambda i: 0 if i < 2 else 0.5, r"i64 \(\)"),
            (lambda i: b"a" * (1 + i), r"u8 \(1,\)"),
            (lambda i: 0.0 if i < 2 else "x", "a number"),
        ]:
            with self.subTest(message=message), self.assertRaisesRegex((ValueError, TypeError), message):
                list(DataLoader(Made(make), 3))
        with self.assertRaisesRegex(TypeError, "a number, a list or an array, not a object"):
            DataLoader(Made(lambda i: object()), 3)

    def test_a_loader_dies_while_it_loads(self):
        for _ in range(20):
            loader = DataLoader(Squares(1000), 16, shuffle=True)
            next(iter(loader))
            loader._data.seek({"seed": 1, "epoch": 0, "index": 7})  # waits for the thread, which wants the lock
            next(iter(loader))
            part = loader._data.split(0.5)
            del loader
            part.next(8)
            del part
        gc.collect()
        with tn.Context("cpu") as c:
            loader = DataLoader(Squares(1000), 16)
            next(iter(loader))
        c.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            loader._data.next(1)

    def test_batches_are_taken_inside_a_callback(self):
        data = DataLoader(Squares(50), 5)._data
        x = tn.ones(2, dtype="float64", requires_grad=True)
        self.assertTrue(tn.gradcheck(lambda x: (data.rewind().next(5).y.double() * x).sum(), [x]))

    def test_python_ends_while_it_loads(self):
        program = ("import tenon as tn\n"
                   "class D:\n"
                   "    def __len__(self): return 1000\n"
                   "    def __getitem__(self, i): return sum(range(200 + i))\n"
                   "loader = tn.data.DataLoader(D(), 50)\n"
                   "batches = iter(loader)\n"
                   "print(next(batches).shape)\n")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "(50,)\n"), done.stderr)


class Made(Dataset):
    """Three items, each made by a function."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return self.make(i)


class Loaders(unittest.TestCase):
    def test_each_iteration_is_an_epoch(self):
        loader = DataLoader(TensorDataset(tn.arange(10), tn.arange(10)), 4, shuffle=True, seed=7, drop_last=True)
        self.assertEqual(len(loader), 2)
        first = [b.x.tolist() for b in loader]
        self.assertEqual([len(b) for b in first], [4, 4])
        next(iter(loader))  # left at once: the next iteration is another epoch
        self.assertEqual([b.epoch for b in loader], [2, 2])
        again = DataLoader(TensorDataset(tn.arange(10), tn.arange(10)), 4, shuffle=True, seed=7, drop_last=True)
        self.assertEqual([b.x.tolist() for b in again], first)

    def test_iterators_are_independent(self):
        for data in (Squares(12), tn.data.TensorDataset(tn.arange(12)), tn.data.digits(12)):
            for shuffle in (False, True):
                loader = DataLoader(data, 5, shuffle=shuffle, seed=3)
                seen = []
                for a in loader:
                    inner = [b[0].shape[0] for b in loader]
                    self.assertEqual(inner, [5, 5, 2])
                    seen.append(a[0].shape[0])
                self.assertEqual(seen, [5, 5, 2])
        pairs = list(zip(DataLoader(Squares(9), 2), DataLoader(Squares(9), 2)))
        loader = DataLoader(Squares(9), 2)
        for (a, b), (c, d) in zip(zip(loader, loader), pairs):
            self.assertEqual(a[0].tolist(), b[0].tolist())
            self.assertEqual(a[0].tolist(), c[0].tolist())
        # Every iteration is an epoch of its own, also those inside another.
        loader = DataLoader(Squares(16), 16, shuffle=True, seed=1)
        orders = [tuple(b[0].flatten().tolist()) for _ in range(4) for b in loader]
        loader = DataLoader(Squares(16), 16, shuffle=True, seed=1)
        nested = []
        for a in loader:
            nested += [tuple(b[0].flatten().tolist()) for b in [a, *loader, *loader]]
        nested += [tuple(b[0].flatten().tolist()) for b in loader]
        self.assertEqual(nested, orders)

    def test_a_loader_is_resumed(self):
        for data in (Squares(), TensorDataset(tn.arange(10), tn.arange(10)), Made(lambda i: tn.zeros(2) + i)):
            one, other = (DataLoader(data, 2, shuffle=True, seed=3) for _ in range(2))
            batches = iter(one)
            next(batches)
            other.load_state_dict(one.state_dict())
            for got, want in zip(other, batches, strict=True):
                got, want = (b if isinstance(b, tn.Tensor) else b[0] for b in (got, want))
                self.assertEqual(got.tolist(), want.tolist())

    def test_subsets_sums_and_streams(self):
        data = Squares(6)
        self.assertEqual([b.x.tolist() for b in DataLoader(Subset(data, [4, 1]), 1)], [[4], [1]])
        self.assertEqual([ConcatDataset([data, data])[i][0] for i in (0, 5, 6, 11, -1)], [0, 5, 0, 5, 5])
        parts = tn.data.random_split(data, [0.5, 0.5], seed=1)
        self.assertEqual(sorted(i for p in parts for i in p.indices), list(range(6)))
        with self.assertRaisesRegex(ValueError, "do not add up to 6"):
            tn.data.random_split(data, [3, 4])

        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(5))

        self.assertEqual([b.tolist() for b in DataLoader(Stream(), 2)], [[0, 1], [2, 3], [4]])
        self.assertEqual([b.tolist() for b in DataLoader(Stream(), 2, drop_last=True)], [[0, 1], [2, 3]])

    def test_wrong_arguments(self):
        for make, message in [(lambda: DataLoader(Squares(), 0), "a batch of 0"), (lambda: DataLoader([], 1), "no items"),
                              (lambda: TensorDataset(tn.zeros(2), tn.zeros(3)), "lengths differ: 2, 3")]:
            with self.assertRaisesRegex(ValueError, message):
                make()

    def test_progress_writes_a_line(self):
        out = io.StringIO()
        bar = progress(range(4), "train", file=out)
        for i in bar:
            bar.note(loss=tn.full((), i / 2))
        self.assertRegex(out.getvalue(), r"^train: 100% \[={24}\] 4/4 0:00<0:00 [\d.]+/s loss=1.5\n$")
        out.isatty = lambda: True
        self.assertEqual(list(progress(iter("abc"), file=out, interval=0)), list("abc"))
        self.assertRegex(out.getvalue(), r"\r0 0:00 0.0/s\r1 0:00 .*\r3 0:00 [\d.]+/s\n$")


if __name__ == "__main__":
    unittest.main()
