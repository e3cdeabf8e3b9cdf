"""What a computation does and what a machine has: plans, times, memory, devices. Each answer prints as text, and as a table in a
notebook."""
from __future__ import annotations

import os
import re
import sys
import tempfile
import weakref
from html import escape
from typing import Any, Iterable, NamedTuple, Sequence

from . import _c

__all__ = ["compare_profiles", "explain", "profile", "doctor", "devices", "stats", "plan_memory", "Device", "Explanation", "Kernel", "Report", "Facts"]

# ---- HTML

_CELL = "padding:2px 10px;vertical-align:top;white-space:nowrap;text-align:"
_CAPTION = "caption-side:top;text-align:left;padding:4px 0;font-weight:600;white-space:nowrap"


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]], left: Sequence[int] = ()) -> str:
    """A table; the columns in `left` are aligned to the left. A cell that is a list has several lines."""
    def cell(tag: str, value: Any, column: int) -> str:
        text = "<br>".join(escape(str(v)) for v in (value if isinstance(value, list) else [value]))
        return f'<{tag} style="{_CELL}{"left" if column in left else "right"}">{text}</{tag}>'

    def row(tag: str, values: Sequence[Any]) -> str:
        return "<tr>" + "".join(cell(tag, v, i) for i, v in enumerate(values)) + "</tr>"

    top = f'<caption style="{_CAPTION}">{escape(caption)}</caption>' if caption else ""
    header = f"<thead>{row('th', head)}</thead>" if head else ""
    return f'<table style="border-collapse:collapse;font-size:90%">{top}{header}<tbody>' + "".join(
        row("td", r) for r in rows) + "</tbody></table>"


def _pre(text: str) -> str:
    return f'<pre style="line-height:1.3">{escape(text)}</pre>'


def _note(text: str) -> str:
    return f'<div style="font-size:90%;padding:2px 0">{escape(text)}</div>'


def _short(line: str) -> str:
    """A source line without its folder; of a notebook with the number of its cell."""
    m = re.match(r"(\S*/ipykernel_\d+/\d+\.py)(:\d+.*)", line)
    shell = sys.modules["IPython"].get_ipython() if m and "IPython" in sys.modules else None
    cell = getattr(getattr(shell, "compile", None), "_filename_map", {}).get(m[1]) if m else None
    if m and cell is not None:
        return f"In [{cell}]{m[2]}"
    return re.sub(r"^\S*/(?=[^/\s]+:\d+)", "", line)


def _bytes(n: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024 or unit == "GiB":
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return ""


class Report:
    """A text of C's, as it is."""

    def __init__(self, text: str) -> None:
        self.text = text.rstrip("\n")

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return _pre(self.text)


# ---- plans


class Kernel(NamedTuple):
    """One kernel or call of a plan."""

    name: str  # its kind and sizes: "matmul (64, 10)"
    bytes: int  # that it moves
    lines: list[str]  # of the program, that it computes


class Explanation(Report):
    """The plan of the pending work: its kernels, and the bytes that they move."""

    def __init__(self, text: str, more: bool = False) -> None:
        super().__init__(text)
        self._more = more  # whether it has texts that a table of kernels has no place for

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels and calls in their order."""
        found: list[Kernel] = []
        for line in self.text.split("\n"):
            if m := re.match(r"\s*\d+  (\S.*?)  (\d+) bytes", line):
                found.append(Kernel(re.sub(r"\s+\(", " (", m[1]), int(m[2]), []))
            elif found and (m := re.match(r"         (\S+:\d+.*)", line)):
                found[-1].lines.append(m[1])
        return found

    def _repr_html_(self) -> str:
        kernels = self.kernels
        if not kernels or self._more:
            return _pre(self.text)
        rows = [(i + 1, k.name, f"{k.bytes:,}", [_short(line) for line in k.lines]) for i, k in enumerate(kernels)]
        last = self.text.split("\n")[-1].strip()
        return _table(self.text.split("\n")[0], ["", "kernel", "bytes", "lines"], rows, left=(1, 3)) + (
            _note(last) if last.startswith("memory") else "")


def explain(*, source: bool = False, stored: bool = False, html: str | os.PathLike[str] | None = None,
            context: _c.Context | None = None) -> Explanation:
    """Plans all pending work and shows the plan; nothing runs. source: with the kernels' texts; stored: with what is stored, and
    why. html: a file, to which a page is written as well: the kernels as a graph, with all of this."""
    if html is not None:
        page = _c.explain(html=True, context=context)
        with open(html, "w", encoding="utf-8") as f:
            f.write(page)
    return Explanation(_c.explain(source=source, stored=stored, context=context), source or stored)


# ---- times


class profile:
    """Times every kernel that runs in a `with` block:

        with tn.profile() as p:
            train()
        print(p)
        p.save("trace.json")

    Kernels run one by one meanwhile, so the block takes longer.
    """

    _of: dict[int, weakref.ref[profile]] = {}  # the profile that a context has, by its id

    def __init__(self, context: _c.Context | None = None) -> None:
        self._context = context
        self._text: str | None = None

    def __enter__(self) -> profile:
        if self._context is None:
            self._context = _c.current_context()
        before = self._of.get(id(self._context), lambda: None)()
        if before is not None and before is not self and not self._context.closed:
            before._read()  # C has one profile at a time
        _c.eval(context=self._context)  # what was recorded before the block is not of it
        _c.profile_begin(context=self._context)
        self._text = None
        self._of[id(self._context)] = weakref.ref(self)
        return self

    def __exit__(self, kind: Any, *unused: Any) -> None:
        if self._context is None or self._context.closed:
            return
        if kind is None:
            _c.eval(context=self._context)
        _c.profile_end(context=self._context)

    def _is_latest(self) -> bool:
        return self._context is not None and self._of.get(id(self._context), lambda: None)() is self

    def _read(self) -> str:
        if self._text is None:
            if self._context is None:
                return "a profile that was not begun"
            if not self._is_latest():
                return "a profile that a later one has replaced"
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "profile")
                _c.profile_write(path, context=self._context)
                with open(path, encoding="utf-8", errors="replace") as f:
                    self._text = f.read().rstrip("\n")
        return self._text

    def save(self, path: str) -> None:
        """Writes every run of a kernel as a trace for Perfetto or chrome://tracing, if the path ends in .json, a page if it ends in .html, else the table."""
        if not self._is_latest():
            raise RuntimeError("profile.save: there is no profile, or a later one has replaced it")
        _c.profile_write(os.fspath(path), context=self._context)

    @property
    def kernels(self) -> list[dict[str, Any]]:
        """The rows of the table: ms, share, count, kernel, lines and so on, the slowest first."""
        keys = "ms share count mean_us best_us gb_s gflop_s ceiling".split()
        rows = []
        for line in self._read().split("\n"):
            m = re.match(r"\s*([\d.]+)\s+([\d.]+) %\s+(\d+)((?:\s+\S+){5})  (\S.*?)(?:\s{2,}(.*))?$", line)
            if m:
                numbers = [m[1], m[2], m[3], *m[4].split()]
                rows.append({k: _number(v) for k, v in zip(keys, numbers)} | {"kernel": m[5], "lines": (m[6] or "").split(", ")})
        return rows

    def __str__(self) -> str:
        return self._read()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        text, rows = self._read(), self.kernels
        if not rows:
            return _pre(text)
        head = ["ms", "share", "count", "mean µs", "best µs", "GB/s", "GFLOP/s", "% of ceiling", "kernel", "lines"]
        cells = [[f"{r['ms']:.3f}", f"{r['share']:.1f} %", r["count"], *("" if r[k] is None else r[k] for k in (
            "mean_us", "best_us", "gb_s", "gflop_s", "ceiling")), r["kernel"], [_short(x) for x in r["lines"]]] for r in rows]
        notes = text.split("\n\n")[0].split("\n")
        return _table(notes[0], head, cells, left=(8, 9)) + "".join(_note(n) for n in notes[1:])


def compare_profiles(a: str | os.PathLike[str], b: str | os.PathLike[str], path: str | os.PathLike[str] | None = None, *,
                     context: _c.Context | None = None) -> Report:
    """Two traces that profile.save wrote to files whose names end in .json, kernel by kernel, as text; with a path that ends in .html
    also as a page."""
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "table")
        _c.profile_compare(os.fspath(a), os.fspath(b), text, context=context)
        if path is not None:
            _c.profile_compare(os.fspath(a), os.fspath(b), os.fspath(path), context=context)
        with open(text, encoding="utf-8", errors="replace") as f:
            return Report(f.read())


def _number(text: str) -> float | int | None:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return None


# ---- numbers


class Facts(dict):
    """Numbers by their names, also as attributes. Those in `sizes` are bytes."""

    _title = ""
    _sizes: frozenset[str] = frozenset()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def _rows(self) -> list[tuple[str, str]]:
        return [(k, _bytes(v) if k in self._sizes else f"{v:,}") for k, v in self.items()]

    def __repr__(self) -> str:
        return "\n".join(f"{k:<12} {v:>14}" for k, v in self._rows())

    def _repr_html_(self) -> str:
        return _table(self._title, [], self._rows(), left=(0,))


class _Stats(Facts):
    _title = "counters of the context"
    _sizes = frozenset(["bytes", "peak", "planned", "kept", "returned"])


class _PlanMemory(Facts):
    _title = "memory of the pending step"
    _sizes = frozenset(["parameters", "gradients", "optimizer", "activations", "workspace", "peak"])


def stats(context: _c.Context | None = None) -> Facts:
    """The counters of a context: memory in use, plans built, kernels launched, waits and so on."""
    return _Stats(_c.ctx_stats(context=context))


def plan_memory(context: _c.Context | None = None) -> Facts:
    """The memory that the pending work needs; nothing runs."""
    return _PlanMemory(_c.ctx_plan_memory(context=context))


# ---- devices


class Device(NamedTuple):
    """A device of this build: its name for Context, whether it can be opened, and the chip and libraries or what is missing."""

    name: str
    available: bool
    detail: str


class _Devices(list):
    def _rows(self) -> list[tuple[str, str, str]]:
        return [(d.name, "ready" if d.available else "missing", d.detail) for d in self]

    def __repr__(self) -> str:
        return "\n".join(f"{name:<8} {state:<9} {detail}" for name, state, detail in self._rows())

    def _repr_html_(self) -> str:
        return _table("", ["device", "", ""], self._rows(), left=(0, 1, 2))


def devices() -> list[Device]:
    """The devices of this build, ready or not."""
    found, i = _Devices(), 0
    while (row := _c.device_info(i)) is not None:
        found.append(Device(*row))
        i += 1
    return found


class _Doctor(Report):
    def _repr_html_(self) -> str:
        lines = self.text.split("\n")
        rows: list[tuple[str, list[str]]] = []
        for line in lines[1:]:
            if line.startswith(" ") and rows:
                rows[-1][1].append(line.strip())
            else:
                rows.append((line, []))
        return _table(lines[0], [], rows, left=(0, 1))


def doctor() -> Report:
    """What Tenon found on this machine, where, and what is missing."""
    return _Doctor(_c.doctor())


# ---- tensors


def tensor_html(x: Any, most: int = 10) -> str:
    """A matrix as a table of its corners; other tensors as their text."""
    about = f"{x.dtype.name} {x.shape} on {x.device}" + (", requires_grad" if x.requires_grad else "")
    if x.ndim != 2 or 0 in x.shape:
        return _pre(str(x)) + _note(about)
    rows, cols = (_ends(n, most) for n in x.shape)
    for axis, places in ((0, rows), (1, cols)):
        if None in places:
            half, n = most // 2, x.shape[axis]
            x = _c.concat([_c.slice(x, axis, 0, half, 1), _c.slice(x, axis, n - half, n, 1)], axis)
    values = iter(x.tolist())
    cells = [[r, *_fill(cols, next(values))] if r is not None else ["\N{HORIZONTAL ELLIPSIS}"] * (len(cols) + 1) for r in rows]
    head = ["", *("\N{HORIZONTAL ELLIPSIS}" if c is None else str(c) for c in cols)]
    return _table("", head, cells) + _note(about)


def _ends(n: int, most: int) -> list[int | None]:
    """The places of an axis that are shown; None stands for those between."""
    if n <= most:
        return list(range(n))
    return [*range(most // 2), None, *range(n - most // 2, n)]


def _fill(places: list[int | None], values: Sequence[Any]) -> list[str]:
    v = iter(values)
    return ["\N{HORIZONTAL ELLIPSIS}" if p is None else _cell(next(v)) for p in places]


def _cell(v: Any) -> str:
    return f"{v:.4g}" if isinstance(v, float) else str(v)
