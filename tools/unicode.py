#!/usr/bin/env python3
"""Writes src/data/unicode.def and src/data/canonical.def: what tokenizers ask about characters.

Needs the version of Unicode that PyPI's `tokenizers` has, so that both see the same letters. Its canonical
forms are of an older version: newer characters are left out there, as it leaves them as they are.
    pip install tokenizers unicodedata2==16.0.0 && tools/unicode.py
"""
import os

import unicodedata2 as unicode
from tokenizers import normalizers

LAST = 0x110000
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "data")


def wrap(rows):
    """Rows side by side, in lines of up to 100 columns."""
    lines, line = [], ""
    for row in rows:
        if line and len(line) + 1 + len(row) > 100:
            lines.append(line)
            line = ""
        line += (" " if line else "") + row
    return "\n".join(lines + [line]) + "\n"


def category(c):
    return unicode.category(chr(c))


def runs():
    """(first, category) of every run; runs of Lu, Ll, Lu, Ll ... as one of LULL, or LLLU."""
    found, c = [], 0
    while c < LAST:
        end, pair = c + 1, {"Lu", "Ll"}
        while end < LAST and {category(end), category(end - 1)} == pair:
            end += 1
        if end - c > 3:
            found.append((c, "LULL" if category(c) == "Lu" else "LLLU"))
            c = end
            continue
        end = c + 1
        while end < LAST and category(end) == category(c):
            end += 1
        if not found or found[-1][1] != category(c).upper():
            found.append((c, category(c).upper()))
        c = end
    return found


def write(name, about, rows):
    with open(os.path.join(HERE, name), "w") as f:
        f.write(f"// {name}: " + about.replace("VERSION", unicode.unidata_version))
        f.write(wrap(rows))


def is_new(c):
    """Whether PyPI's `tokenizers` does not know a character's canonical form or class."""
    texts = [chr(c), "a" + chr(c) + "\u0316", "a\u0301" + chr(c)]
    return any(normalizers.NFD().normalize_str(s) != unicode.normalize("NFD", s) for s in texts)


def canonical():
    """The decompositions that the standard calls canonical; X where they are not composed again."""
    rows = []
    for c in range(LAST):
        parts = unicode.decomposition(chr(c)).split()
        if not parts or parts[0].startswith("<") or is_new(c):
            continue
        again = unicode.normalize("NFC", chr(c)) == chr(c)
        rows.append(f"{'C' if again else 'X'}({c:#x}, {', '.join('0x' + p.lower().lstrip('0') for p in parts)}"
                    + (", 0)" if len(parts) == 1 else ")"))
    return rows


def seconds():
    """The characters that can be the second of a composed one, beside Hangul's."""
    parts = [unicode.decomposition(chr(c)).split() for c in range(LAST)
             if unicode.normalize("NFC", chr(c)) == chr(c) and unicode.decomposition(chr(c)) and not is_new(c)]
    return [f"B({c:#x})" for c in sorted({int(p[1], 16) for p in parts
                                         if len(p) == 2 and not p[0].startswith("<")})]


def class_of(c):
    k = unicode.combining(chr(c))
    return 0 if k and is_new(c) else k


def classes():
    rows, c = [], 0
    while c < LAST:
        k, end = class_of(c), c + 1
        while end < LAST and class_of(end) == k:
            end += 1
        if k:
            rows.append(f"K({c:#x}, {end - 1:#x}, {k})")
        c = end
    return rows


def main():
    write("unicode.def",
          "the general category of every code point, of Unicode VERSION (tools/unicode.py writes it).\n"
          "// A row is where a run begins; it ends before the next row's. LULL is Lu, Ll, Lu, Ll and so on, LLLU\n"
          "// the same from Ll. Include it with R defined.\n",
          [f"R({c:#x}, {k})" for c, k in runs()])
    write("canonical.def",
          "canonical decompositions of Unicode (tools/unicode.py writes it): a code point, and\n"
          "// the one or two (else 0) that it stands for; C where they are composed to it again, X where not. Then\n"
          "// those that can come second, B, and the combining classes that are not 0, K: first, last, class.\n",
          canonical() + seconds() + classes())


if __name__ == "__main__":
    main()
