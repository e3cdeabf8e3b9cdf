"""explain, profile, doctor, devices, counters, their tables in notebooks, and the tool."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from html.parser import HTMLParser

import tenon as tn


class Cells(HTMLParser):
    """The rows of the tables of a page; refuses tags that do not close in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.rows = [], []
        self.feed(page)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        if tag == "br":
            self.rows[-1][-1] += "\n"
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


class Plans(unittest.TestCase):
    def test_the_plan_of_pending_work(self):
        a = tn.randn(8, 16)
        tn._c.eval()
        y = tn.softmax(tn.relu(a), -1)
        line = f"test_inspect.py:{sys._getframe().f_lineno - 1}"
        plan = tn.explain()
        self.assertRegex(str(plan), r"^1 kernel, 1024 bytes moved, 1024 at least\n")
        (kernel,) = plan.kernels
        self.assertEqual((kernel.name, kernel.bytes), ("ROW (8 | 16)", 1024))
        self.assertEqual([x.rpartition("/")[2] for x in kernel.lines], [f"{line} relu", f"{line} softmax"])
        self.assertEqual(repr(plan), str(plan))
        rows = Cells(plan._repr_html_()).rows
        self.assertEqual(rows[1], ["1", "ROW (8 | 16)", "1,024", f"{line} relu\n{line} softmax"])
        self.assertIn("stored (8, 16): wanted", str(tn.explain(stored=True)))
        self.assertIn("<pre", tn.explain(source=True)._repr_html_())
        self.assertEqual(tn.plan_memory().peak, tn._c.ctx_plan_memory()["peak"])
        self.assertGreaterEqual(tn.plan_memory().activations, 512)
        del y
        self.assertEqual(tn.explain().kernels, [])

    def test_what_variables_name_is_stored_by_a_step(self):
        x = tn.tensor([[1.0, 2.0]] * 4)
        w = tn.ones(2, 2, requires_grad=True)
        for _ in range(2):
            y = x @ w
            loss = (y * y).mean()
            loss.backward()
            tn._c.grad_mode(False)
            w -= w.grad * 0.01
            tn._c.grad_mode(True)
            tn._c.zero_grad(w)
            tn._c.eval()
            self.assertAlmostEqual(float((y * y).mean()), loss.item(), places=5)
            self.assertEqual(x.tolist()[0], [1, 2])


class Times(unittest.TestCase):
    def test_kernels_of_a_block_are_timed(self):
        a = tn.randn(32, 64)
        with tn.profile() as p:
            for _ in range(3):
                a.exp().sum().item()
        self.assertRegex(str(p), r"^profile on \S+: \d+ kernels? in \d+ evaluations?\n")
        self.assertEqual(sum(k["count"] for k in p.kernels), 3)
        self.assertTrue(all(k["ms"] >= 0 and k["mean_us"] > 0 for k in p.kernels))
        self.assertIn("test_inspect.py", " ".join(x for k in p.kernels for x in k["lines"]))
        rows = Cells(p._repr_html_()).rows
        self.assertEqual(len(rows), 1 + len(p.kernels))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            p.save(path)
            with open(path) as f:
                self.assertGreaterEqual(len(json.load(f)["traceEvents"]), 3)
            text = str(p)
            with tn.profile() as later:
                pass
            self.assertEqual(str(p), text)
            with self.assertRaisesRegex(RuntimeError, "a later one has replaced it"):
                p.save(path)
            self.assertEqual(later.kernels, [])
            self.assertIn("<pre", later._repr_html_())


class Machines(unittest.TestCase):
    def test_devices(self):
        found = {d.name: d for d in tn.devices()}
        self.assertTrue(found["cpu"].available and found["ref"].available)
        self.assertRegex(repr(tn.devices()), r"(?m)^cpu +ready ")
        self.assertEqual(len(Cells(tn.devices()._repr_html_()).rows), len(found) + 1)

    def test_doctor(self):
        self.assertTrue(str(tn.doctor()).startswith(f"tenon {tn.__version__}\ndevices\n"))
        heads = [row[0] for row in Cells(tn.doctor()._repr_html_()).rows]
        self.assertIn("threads", heads)

    def test_counters(self):
        before = tn.stats()
        tn.zeros(4).sum().item()
        after = tn.stats()
        self.assertGreater(after.launches + after.hits, before.launches + before.hits - 1)
        self.assertEqual(after["nodes"], after.nodes)
        self.assertRegex(repr(after), r"(?m)^plans +[\d,]+$")
        self.assertEqual({row[0] for row in Cells(after._repr_html_()).rows}, set(after))
        with self.assertRaises(AttributeError):
            after.nothing


class Tensors(unittest.TestCase):
    def test_a_matrix_is_a_table_of_its_corners(self):
        x = tn.arange(20 * 30).reshape(20, 30)
        rows = Cells(x._repr_html_()).rows
        self.assertEqual(rows[0], ["", *map(str, range(5)), "…", *map(str, range(25, 30))])
        self.assertEqual([r[0] for r in rows[1:]], [*map(str, range(5)), "…", *map(str, range(15, 20))])
        self.assertEqual((rows[1][1], rows[1][-1], rows[-1][1], rows[-1][-1]), ("0", "29", "570", "599"))
        self.assertIn("int64 (20, 30) on", x._repr_html_())
        self.assertEqual(Cells(tn.tensor([[0.5]])._repr_html_()).rows, [["", "0"], ["0", "0.5"]])
        for x in (tn.zeros(3), tn.zeros(2, 2, 2), tn.zeros(()), tn.zeros(0, 3)):
            self.assertIn("<pre", x._repr_html_())
            self.assertIn(str(x.shape), x._repr_html_())


class Tool(unittest.TestCase):
    def run_tool(self, *words, **options):
        environment = os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(tn.__file__))}
        return subprocess.Popen([sys.executable, "-m", "tenon", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment, **options)

    def test_it_has_the_exit_codes_of_the_tool(self):
        for words, code, text in [(["version"], 0, f"tenon {tn.__version__}\n"), ([], 2, "usage: tenon COMMAND"),
                                  (["walk"], 2, 'there is no command "walk"'), (["info", "/nowhere"], 1, "/nowhere"),
                                  (["help", "train"], 0, "--epochs")]:
            with self.subTest(words=words):
                p = self.run_tool(*words)
                out, err = p.communicate(timeout=60)
                self.assertEqual(p.returncode, code, err)
                self.assertIn(text, out + err)

    def test_a_signal_ends_a_run_after_its_step(self):
        with tempfile.TemporaryDirectory() as folder:
            p = self.run_tool("train", "--model", "mlp", "--data", "digits:count=640", "--epochs", "1000000", "--save",
                              "a.safetensors", "--log", "a.csv", cwd=folder)
            log = os.path.join(folder, "a.csv")
            while not os.path.exists(log) or not os.path.getsize(log):  # the handler is there before the first line
                self.assertIsNone(p.poll())
                time.sleep(0.01)
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=60)
            self.assertEqual(p.returncode, 130, out + err)
            self.assertIn("stopping after this step", err)
            self.assertTrue(os.path.exists(os.path.join(folder, "a.safetensors")))
            self.assertRegex(out + err, re.escape("resume with: tenon train --resume"))


if __name__ == "__main__":
    unittest.main()
