"""Pages of runs, plans and profiles, event files for TensorBoard, and tuning."""
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import tenon as tn

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    EventAccumulator = None


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def data(self, name):
        """What a page shows, of which nothing comes from the network."""
        with open(self.path(name), encoding="utf-8") as f:
            page = f.read()
        self.assertTrue(page.startswith("<!doctype html>"))
        self.assertNotRegex(page, r"(src|href)=.?https?:")
        return json.loads(re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page, re.S)[1])


class Reports(InFolder):
    def make(self, lr):
        run = tn.report.Report("digits")
        run.setting("lr", lr)
        for step in range(20):
            run.scalar("loss", tn.tensor(lr * step), step)
        run.figure("accuracy", tn.tensor(0.75))
        run.sample(tn.rand(1, 8, 8), truth="3", prediction=8, chance=0.5)
        run.sample(text="a line", prediction="b")
        run.confusion([[3, 1], [0, 4]], ["cat", "dog"])
        return run

    def test_the_page_of_a_run_has_all_that_was_added(self):
        self.make(0.5).write(self.path("run.html"))
        data = self.data("run.html")
        self.assertEqual(data["kind"], "report")
        text = json.dumps(data)
        for word in ('"digits"', '"lr"', '"loss"', '"accuracy"', "0.75", '"cat"', '"a line"', "data:image/png"):
            self.assertIn(word, text)

    def test_a_run_is_read_rewound_and_compared(self):
        self.make(0.5).write(self.path("a.html"))
        a, b = tn.report.Report.read(self.path("a.html")), self.make(0.25)
        text = str(a.compare(b, self.path("both.html")))
        self.assertRegex(text, r"lr\s+0\.5\s+0\.25")
        self.assertIn("loss", text)
        self.data("both.html")
        a.rewind(9)
        a.scalar("loss", 1, 10)
        with self.assertRaises(tn.Error):
            a.scalar("loss", 1, 10)  # steps rise

    def test_wrong_arguments_are_refused(self):
        run = tn.report.Report("x")
        for counts, names in (([[1, 2], [3]], None), ([[1]], ["a", "b"])):
            with self.assertRaises(ValueError):
                run.confusion(counts, names)
        with self.assertRaises(OSError):
            run.write(self.path("no/where.html"))
        with self.assertRaises(OSError):
            tn.report.Report.read(self.path("absent.html"))
        with self.assertRaises(TypeError):
            tn._c.report_scalar(tn.nn.Linear(1, 1), "loss", 1, 1.0)


def records(path):
    """The records of an event file."""
    with open(path, "rb") as f:
        while head := f.read(12):
            n = struct.unpack("<Q", head[:8])[0]
            body = f.read(n)
            assert len(body) == n and len(f.read(4)) == 4
            yield body


class EventFiles(InFolder):
    def write(self):
        with tn.tensorboard.SummaryWriter(self.path("runs")) as writer:
            for step in range(3):
                writer.add_scalar("train/loss", tn.tensor(1 / (step + 1)), step)
            writer.add_scalars("rates", {"lr": 0.125, "wd": 0.5}, 3)
            writer.add_histogram("weights", tn.arange(100).float(), 4)
            writer.add_image("digit", tn.rand(3, 8, 6), 5)
            writer.add_image("last", tn.rand(8, 6, 3), 5, dataformats="HWC")
            writer.add_images("digits", tn.rand(4, 1, 8, 8), 6)
            writer.flush()
        return writer

    def test_values_are_in_the_file_at_once(self):
        writer = self.write()
        (name,) = os.listdir(writer.get_logdir())
        found = list(records(os.path.join(writer.log_dir, name)))
        self.assertEqual(len(found), 1 + 3 + 2 + 1 + 3)
        self.assertIn(b"train/loss", found[1])
        self.assertIn(struct.pack("<f", 1 / 3), found[3])
        self.assertIn(b"rates/wd", found[5])
        self.assertIn(b"\x89PNG", found[7])
        with self.assertRaisesRegex(ValueError, "was closed"):
            writer.add_scalar("x", 1, 1)
        with self.assertRaisesRegex(ValueError, "dataformats"):
            tn.tensorboard.SummaryWriter(self.path("more")).add_image("x", tn.rand(8, 8), dataformats="WHX")
        with self.assertRaisesRegex(ValueError, "3 axes, the image 2"):
            tn.tensorboard.SummaryWriter(self.path("more")).add_image("x", tn.rand(8, 8))

    @unittest.skipUnless(EventAccumulator, "tensorboard is not installed")
    def test_tensorboard_reads_it(self):
        self.write()
        a = EventAccumulator(self.path("runs"), size_guidance={"scalars": 0, "histograms": 0, "images": 0})
        a.Reload()
        self.assertEqual([e.step for e in a.Scalars("train/loss")], [0, 1, 2])
        self.assertEqual(a.Scalars("rates/lr")[0].value, 0.125)
        self.assertEqual(a.Histograms("weights")[0].histogram_value.num, 100)
        self.assertEqual((a.Images("digit")[0].width, a.Images("digit")[0].height), (6, 8))
        self.assertEqual((a.Images("last")[0].width, a.Images("last")[0].height), (6, 8))
        with tn.tensorboard.SummaryWriter(self.path("runs"), purge_step=2) as again:
            again.add_scalar("train/loss", 0.25, 2)
        a.Reload()
        self.assertEqual([(e.step, e.value) for e in a.Scalars("train/loss")], [(0, 1.0), (1, 0.5), (2, 0.25)])


class Pages(InFolder):
    def test_a_plan_as_a_page(self):
        x = tn.rand(8, 16)
        tn._c.eval()
        y = tn.softmax(x, -1)
        plan = tn.explain(html=self.path("plan.html"))
        steps = self.data("plan.html")["plans"][0]["steps"]
        self.assertEqual([s["bytes"] for s in steps], [k.bytes for k in plan.kernels])
        self.assertIn("text", steps[0])
        self.assertTrue(math.isfinite(float(y.sum())))

    def test_profiles_as_pages(self):
        for name in "ab":
            with tn.profile() as p:
                for _ in range(3 if name == "a" else 5):
                    float(tn.rand(64, 64).matmul(tn.rand(64, 64)).sum())
            p.save(self.path(name + ".json"))
        p.save(self.path("b.html"))
        rows = self.data("b.html")["rows"]
        self.assertEqual([r["count"] for r in rows], [k["count"] for k in p.kernels])
        text = str(tn.inspect.compare_profiles(self.path("a.json"), self.path("b.json"), self.path("both.html")))
        self.assertIn(" of the time of a", text)
        self.assertEqual(len(self.data("both.html")["rows"]), text.split("kernel\n")[1].count("\n") + 1)


class Tuning(InFolder):
    def test_winners_go_to_a_file_and_back(self):
        """In a process of its own, with a cache folder of its own."""
        program = """if True:
            import sys, tenon as tn
            x = tn.rand(512, 512)
            before = tn.softmax(x, -1).sum().item()
            tn.tune(0.5)
            for _ in range(8):
                y = tn.softmax(x, -1)
                tn._c.eval()
            tn.tune(0)
            assert abs(y.sum().item() - before) < 1e-3 * before
            n = tn.tune_export(sys.argv[1])
            assert n > 0 and tn.tune_import(sys.argv[1]) == n, n
            print(n)
            try:
                tn.tune_import(sys.argv[1] + ".absent")
            except OSError:
                pass
            else:
                raise AssertionError("a file that is not there was imported")
            try:
                tn.tune(-1)
            except ValueError:
                pass
            else:
                raise AssertionError("negative seconds")"""
        home = os.path.dirname(os.path.dirname(tn.__file__))
        env = {**os.environ, "PYTHONPATH": home, "TN_CACHE_DIR": self.path("cache"), "TN_DEVICE": "cpu"}
        env.pop("TN_TUNE", None)
        r = subprocess.run([sys.executable, "-c", program, self.path("won.txt")], env=env, capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)
        with open(self.path("won.txt")) as f:
            self.assertEqual(sum(line.startswith("winner ") for line in f), int(r.stdout))


if __name__ == "__main__":
    unittest.main()
