"""Pages of training runs: curves, samples, a confusion matrix, settings and results in one file of HTML that needs no network.

    run = tn.report.Report("digits")
    run.setting("lr", 1e-3)
    for step in range(1000):
        ...
        run.scalar("loss", loss, step)
    run.figure("accuracy", accuracy)
    run.write("run.html")

`tenon compare a.html b.html`, or compare, sets two of them beside each other.
"""
from __future__ import annotations

import os
from typing import Any, Sequence

from . import _c
from . import inspect as _inspect

__all__ = ["Report"]


class Report:
    """A run of training, as its page shows it."""

    def __init__(self, title: str, *, context: _c.Context | None = None) -> None:
        self._handle: Any = _c.report_open(title, context=context)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, context: _c.Context | None = None) -> Report:
        """The run of a page that `write` or `tenon train --report` wrote, or of a log of `tenon train --log`: to go on with it, or to
        compare it."""
        made = cls.__new__(cls)
        made._handle = _c.report_read(os.fspath(path), context=context)
        return made

    def scalar(self, name: str, value: Any, step: int) -> None:
        """Adds a value to a curve, "loss" or "test_loss"; the steps of a curve rise. A tensor of one element is waited for."""
        _c.report_scalar(self._handle, name, step, float(value))

    def rewind(self, step: int) -> None:
        """Removes the values after a step, and samples, matrix and results, for a run that goes on from there."""
        _c.report_rewind(self._handle, step)

    def setting(self, name: str, value: Any) -> None:
        """Sets a setting of the run; a later one of the same name replaces it."""
        _c.report_setting(self._handle, name, str(value))

    def figure(self, name: str, value: Any) -> None:
        """Sets a result, a number; a later one of the same name replaces it."""
        _c.report_figure(self._handle, name, float(value))

    def sample(self, x: Any = None, *, text: str | None = None, truth: str | None = None, prediction: str | None = None,
               chance: float | None = None) -> None:
        """Adds a sample: an image x, grey or RGB, or a text, with what it is, what the network says, and how sure it is (0 to 1)."""
        _c.report_sample(self._handle, x, text=text, truth=None if truth is None else str(truth),
                         prediction=None if prediction is None else str(prediction), chance=float(chance) if chance else None)

    def confusion(self, counts: Any, names: Sequence[str] | None = None) -> None:
        """Sets the confusion matrix: counts[i][k] items of class i were taken for class k. names: of the classes, else they are
        numbers."""
        rows = [list(row) for row in (counts.tolist() if hasattr(counts, "tolist") else counts)]
        if any(len(row) != len(rows) for row in rows) or (names is not None and len(names) != len(rows)):
            raise ValueError("the confusion matrix has as many columns, and names, as rows")
        _c.report_confusion(self._handle, [int(n) for row in rows for n in row], None if names is None else [str(n) for n in names])

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the page. Until it is whole, the file is as it was."""
        _c.report_write(self._handle, os.fspath(path))

    def compare(self, other: Report, path: str | os.PathLike[str] | None = None) -> _inspect.Report:
        """Both runs beside each other, settings, results and curves, as text; with a path also as a page."""
        return _inspect.Report(_c.report_compare(self._handle, other._handle, None if path is None else os.fspath(path)))
