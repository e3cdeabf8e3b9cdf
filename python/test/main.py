"""Runs the tests of this folder, and prints a line for each file as the tests of C do."""
import sys
import time
import unittest
from pathlib import Path

# A test that waits for device memory or compiles in the background is not slow because of Python.
folder = Path(__file__).parent
sys.path.insert(0, str(folder))


def run(file, words):
    started = time.perf_counter()
    suite = unittest.defaultTestLoader.loadTestsFromName(file.stem)
    if words:
        suite = unittest.TestSuite(t for t in flatten(suite) if any(w in t.id() for w in words))
    result = unittest.TestResult()
    suite.run(result)
    for test, text in result.failures + result.errors:
        print(f"FAIL {test.id()}\n{text}")
    for test, why in result.skipped:
        print(f"skip {test.id()}: {why}")
    bad = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    good = result.testsRun - bad - len(result.skipped)
    if result.testsRun or bad:
        name = "python/" + file.stem.removeprefix("test_")
        print(f"{name:16s}{good:5d} passed {bad:3d} failed {len(result.skipped):3d} skipped {time.perf_counter() - started:7.2f} s")
    return good, bad, len(result.skipped)


def flatten(suite):
    for t in suite:
        yield from flatten(t) if isinstance(t, unittest.TestSuite) else [t]


def main():
    totals = [run(file, sys.argv[1:]) for file in sorted(folder.glob("test_*.py"))]
    good, bad, skipped = map(sum, zip(*totals))
    print(f"{good} passed, {bad} failed, {skipped} skipped")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
