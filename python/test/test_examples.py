"""The examples run, and so does what docs/python.md shows; in a folder of their own."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import tenon as tn

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(arguments, folder):
    environment = os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(tn.__file__))}
    done = subprocess.run([sys.executable, "-W", "error", *arguments], cwd=folder, env=environment, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Examples(unittest.TestCase):
    # A line that each must print, and the words after its name.
    CASES = {
        "01_tensor.py": ([], r"ShapeError matmul: \(2, 3\) @ \(2, 3\): inner sizes differ"),
        "02_autograd.py": ([], r"w = (2.9|3.0)\d, b = -(0.9|1.0)\d\n.*: (1.690\d+), by hand \3"),
        "03_mlp.py": (["1"], r"test accuracy [5-9]\d"),
        "04_conv.py": (["30"], r"step  30  lr 0.000  loss [01]\."),
        "05_gpt.py": (["10"], r"\nThis is the "),
        "06_custom_op.py": ([], r"gradients agree with finite differences[^$]*\[1.0, 3.0, 3.0, 5.0, 5.0\] \[1.0, 2.0, 0.0, 2.0, 0.0\]"),
        "07_save_and_resume.py": ([], r"weights after 60 steps: equal"),
    }

    def test_each_runs(self):
        found = sorted(p.name for p in (ROOT / "examples" / "python").glob("*.py"))
        self.assertEqual(found, sorted(self.CASES))
        for name, (words, want) in self.CASES.items():
            with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
                self.assertRegex(run([ROOT / "examples" / "python" / name, *words], folder), want)

    def test_the_notebook_runs(self):
        """Its code in one program; its outputs are those of the last run in a notebook."""
        with open(ROOT / "examples" / "python" / "first_steps.ipynb", encoding="utf-8") as f:
            cells = [c for c in json.load(f)["cells"] if c["cell_type"] == "code"]
        self.assertTrue(all(c["outputs"] and c["execution_count"] for c in cells))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "notebook.py"
            path.write_text("\n".join("".join(c["source"]) for c in cells))
            self.assertRegex(run([path], folder), r"test accuracy [7-9]\d")

    def test_the_programs_of_the_guide_run(self):
        text = (ROOT / "docs" / "python.md").read_text()
        programs = re.findall(r"```python\n(.*?)```", text, re.S)
        self.assertGreater(len(programs), 3)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "guide.py"
            path.write_text("\n".join(programs))  # each goes on where the one before it ended
            run([path], folder)

    # Names of a table's cells that stand for something that is not here: files, networks, options of a call.
    NOT_RUN = re.compile(r"folder|net\.generate|\.bfloat16$|strict=|^\w+=|encoder|state\.items|^fc$|path|recompute|tn\.models|checkpoint|^axis$|^keepdims$|__")

    def test_the_python_of_from_pytorch_runs(self):
        rows = re.findall(r"(?m)^\| (.*?) \| (.*?) \| .*tn_.* \|$", (ROOT / "docs" / "from-pytorch.md").read_text())
        spans = [code for pytorch, python in rows
                 for code in re.findall("`(.*?)`", (pytorch + python) if python.startswith("the same") else python)]
        self.assertGreater(len(spans), 60)
        x, y, b = tn.ones(2, 4), tn.ones(2, 4), tn.ones(4)
        layers = {"first": tn.nn.Linear(4, 4), "second": tn.nn.Linear(4, 2), "net": tn.nn.Linear(4, 4)}
        names = vars(tn.data) | vars(tn.optim.lr_scheduler) | layers | {
            "tn": tn, "nn": tn.nn, "x": x, "y": y, "b": b, "w": tn.ones(4, 4), "a": x, "m": x > 0, "v": 2.0, "seed": 1,
            "values": [1, 2], "opt": tn.optim.SGD(layers["net"], loss_scale=2.0), "data": tn.data.digits(100)}
        with tempfile.TemporaryDirectory() as folder:
            before = os.getcwd()
            os.chdir(folder)
            try:
                for code in spans:
                    if self.NOT_RUN.search(code):
                        continue
                    program = code + " pass" if code.startswith("with") else code
                    with self.subTest(code=code):
                        shape = (1, 1, 2, 2) if "channels_last" in code else (1,) if "item" in code else x.shape
                        exec(program, dict(names, x=tn.ones(shape), net=tn.nn.Linear(4, 4)))
            finally:
                os.chdir(before)


if __name__ == "__main__":
    unittest.main()
