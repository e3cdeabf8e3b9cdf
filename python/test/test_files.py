"""Files of tensors and tokenizers."""
import json
import os
import pathlib
import struct
import tempfile
import unittest

import tenon as tn

try:
    import numpy
except ImportError:
    numpy = None

RECORDED = pathlib.Path(__file__).resolve().parents[2] / "test" / "recordings"


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_tensors_of_every_dtype_come_back(self):
        path = self.folder / "a.safetensors"
        tensors = {d.name: tn.arange(6).reshape(2, 3).astype(d) for d in tn._dtypes.DTYPES if d.name not in ("bool", "complex128")}
        tensors["mask"] = tn.tensor([True, False])
        tn.files.save_file(tensors, path, {"made": "by hand", "ünï": "code"})
        file = tn.files.safe_open(path)
        self.assertEqual(set(file), set(tensors))
        self.assertEqual(file.metadata(), {"made": "by hand", "ünï": "code"})
        for name, x in tensors.items():
            self.assertEqual((file[name].dtype, file[name].tolist()), (x.dtype, x.tolist()), name)
        self.assertEqual(file.info("float32"), ("F32", (2, 3), 24))
        self.assertNotIn("none", file)
        with self.assertRaises(KeyError):
            file["none"]

    def test_the_format_is_that_of_safetensors(self):
        path = self.folder / "b.safetensors"
        tn.save({"w": tn.tensor([1.0, 2.0])}, path)
        data = path.read_bytes()
        (n,) = struct.unpack("<Q", data[:8])
        head = json.loads(data[8:8 + n])
        self.assertEqual(head["w"]["shape"], [2])
        self.assertEqual(struct.unpack("<2f", data[8 + n:]), (1, 2))
        loaded = tn.load(path)
        path.unlink()
        self.assertEqual(loaded["w"].tolist(), [1, 2])

    def test_npy(self):
        path = self.folder / "x.npy"
        tn.save(tn.arange(6).reshape(2, 3), path)
        self.assertEqual(tn.load(path).tolist(), [[0, 1, 2], [3, 4, 5]])
        self.assertEqual(list(tn.files.open(path)), [""])
        if numpy:
            self.assertEqual(numpy.load(path).tolist(), [[0, 1, 2], [3, 4, 5]])
            numpy.save(path, numpy.float16([1.5]))
            self.assertEqual((tn.load(path).tolist(), tn.load(path).dtype), ([1.5], tn.float16))

    def test_errors(self):
        bad = self.folder / "bad.safetensors"
        bad.write_bytes(b"\xff" * 64)
        with self.assertRaises(tn.FormatError):
            tn.load(bad)
        with self.assertRaises(OSError):
            tn.load(self.folder / "none.safetensors")
        with self.assertRaisesRegex(ValueError, "ends in .npy"):
            tn.save(tn.zeros(2), bad)
        with self.assertRaisesRegex(TypeError, "a dict of tensors"):
            tn.save(3, bad)
        with self.assertRaises(TypeError):
            tn.files.save_file({3: tn.zeros(2)}, bad)
        with self.assertRaises(OSError):
            tn.files.save_file({"x": tn.zeros(2)}, self.folder / "no" / "folder.safetensors")

    def test_a_checkpoint_resumes_a_run(self):
        def start():
            tn.manual_seed(3)
            net = tn.nn.Sequential(tn.nn.Linear(4, 8), tn.nn.BatchNorm1d(8), tn.nn.Dropout(0.5), tn.nn.Linear(8, 1))
            net[0].bias.requires_grad = False
            opt = tn.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.1)
            x = tn.arange(80).reshape(20, 4) / 80
            return net, opt, tn.data.DataLoader(tn.data.TensorDataset(x, x.sum(1, keepdims=True)), 5, shuffle=True, seed=1)

        def train(net, opt, loader, steps):
            losses = []
            while len(losses) < steps:
                for x, y in loader:
                    loss = ((net(x) - y) ** 2).mean()
                    opt.step(loss)
                    losses.append(loss.item())
                    if len(losses) == steps:
                        break
            return losses

        whole, first, second = start(), start(), start()
        path = self.folder / "a.checkpoint"
        tn.manual_seed(4)
        want = train(*whole, 7)
        tn.manual_seed(4)
        self.assertEqual(train(*first, 3), want[:3])
        net, opt, loader = first
        tn.checkpoint.save(path, net, opt, loader, step=3, user={"best": [0.5, None]})
        tn.rand(5).tolist()  # the random counter is in the checkpoint
        net, opt, loader = second
        self.assertEqual(tn.checkpoint.load(path, net, opt, loader), (3, {"best": [0.5, None]}))
        self.assertEqual(train(net, opt, loader, 4), want[3:])


class Tokenizers(unittest.TestCase):
    def test_recorded_texts(self):
        for path in sorted((RECORDED / "tokenizers").glob("*.ids.json")):
            t = tn.Tokenizer.open(str(path).replace(".ids", ""))
            for text, ids, special in json.loads(path.read_text()):
                self.assertEqual(t.encode(text), ids, (path.name, text))
                self.assertEqual(t.encode(text, add_special=True), special, (path.name, text))
                stream = t.stream()
                self.assertEqual("".join(stream.texts(ids)), t.decode(ids))

    def test_tokens_and_their_numbers(self):
        t = tn.Tokenizer.open(RECORDED / "tokenizers" / "llama3.json")
        self.assertTrue(t.special_tokens)
        for token, i in t.special_tokens.items():
            self.assertEqual((t.id(token), t.token(i), t.is_special(i)), (i, token, True))
            self.assertEqual(t.encode(token), [i])
            self.assertNotEqual(t.encode(token, plain=True), [i])
        self.assertIsNone(t.id("no such token at all"))
        self.assertIsNone(t.token(len(t)))
        ids = tn.tensor(t.encode("one two"))
        self.assertEqual(t.decode(ids), "one two")
        self.assertEqual(t.decode_bytes([]), b"")
        with self.assertRaises(tn.Error):
            t.decode([len(t) + 5])
        with self.assertRaises(FileNotFoundError):
            tn.Tokenizer.open("/nowhere")

    def test_characters_of_several_tokens_come_whole(self):
        t = tn.Tokenizer.open(RECORDED / "tokenizers" / "gpt2.json")
        text = "a \N{SNOWMAN}\N{GRINNING FACE} b"
        stream = t.stream()
        parts = [stream.push(i) for i in t.encode(text)]
        self.assertEqual("".join(parts) + stream.end(), text)
        self.assertNotIn("\N{REPLACEMENT CHARACTER}", "".join(parts))

    def test_a_text_of_tokens_is_a_dataset(self):
        t = tn.Tokenizer.open(RECORDED / "tokenizers" / "gpt2.json")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.txt")
            text = "the cat sat on the mat. " * 20
            pathlib.Path(path).write_text(text)
            data = tn.data.text(path, 8, tokenizer=t).shuffle(False)
            self.assertEqual(data.next(1).x.tolist()[0], t.encode(text)[:8])


if __name__ == "__main__":
    unittest.main()
