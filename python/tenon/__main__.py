"""python -m tenon: the tool of C, with its exit codes and what it does on signals."""
import signal
import sys

from . import _c


def main() -> int:
    """Runs the tool with the words of the command line."""
    # Python's own handlers would run only after the tool.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    return _c.tool(["tenon", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
