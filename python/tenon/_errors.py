"""Errors of Tenon as exceptions, which are also of Python's own kind where there is one."""
from __future__ import annotations

import linecache
import re
import warnings


__all__ = ["Error", "ArgumentError", "ShapeError", "DTypeError", "GradError", "GoneError", "OutOfMemoryError",
           "DeviceError", "DeviceLostError", "FileError", "FormatError", "ThreadError", "UserError", "TenonWarning"]


class Error(RuntimeError):
    """An error of Tenon. `file` and `line` are those of the call that recorded the op, `layer` the path of its layer."""

    file: str = ""
    line: int = 0
    layer: str = ""


class ArgumentError(Error, ValueError):
    """An argument is wrong."""


class ShapeError(Error, ValueError):
    """Shapes do not fit."""


class DTypeError(Error, TypeError):
    """Element types do not fit."""


class GradError(Error):
    """There is no gradient, or its history was freed."""


class GoneError(Error):
    """The value was not stored and cannot be computed again."""


class OutOfMemoryError(Error, MemoryError):
    """Out of memory, on the host or the device."""


class DeviceError(Error):
    """The device is missing or refused the work."""


class DeviceLostError(DeviceError):
    """The device is lost; its context can only be closed."""


class FileError(Error, OSError):
    """A file could not be opened, read or written."""


class FormatError(Error, ValueError):
    """The content of a file is malformed."""


class ThreadError(Error):
    """The context belongs to another thread."""


class UserError(Error):
    """A function of the program failed: of an op, a layer or a dataset. Its exception is the cause."""


class TenonWarning(UserWarning):
    """A call that works but is probably a mistake."""


_CLASSES = {
    "TN_EARG": ArgumentError, "TN_ESHAPE": ShapeError, "TN_EDTYPE": DTypeError, "TN_EGRAD": GradError,
    "TN_EGONE": GoneError, "TN_EMEM": OutOfMemoryError, "TN_EDEVICE": DeviceError, "TN_ELOST": DeviceLostError,
    "TN_EIO": FileError, "TN_EFORMAT": FormatError, "TN_ETHREAD": ThreadError, "TN_EUSER": UserError,
}


# What the core calls by its names in C. Where Python spells it otherwise, it is a method.
_SPELLED = {"copy_to": "x.to(device)", "detach": "x.detach()", "read": "x.numpy()", "reshape": "x.reshape()",
            "file_write": "tn.save", "custom_n": "outputs="}


def in_python(text: str) -> str:
    """A text of the core with Python's names: tn_grad becomes tn.grad."""
    return re.sub(r"\btn_([a-z_0-9]+)", lambda m: _SPELLED.get(m[1], "tn." + m[1]), text)


def make(code: str, text: str, file: str, line: int, layer: str, cause: BaseException | None) -> Error:
    """The exception of a fault, which names the line that recorded the op."""
    e = _CLASSES.get(code, Error)(in_python(text or code))
    e.file, e.line, e.layer = file, line, layer
    if line:
        source = linecache.getline(file, line).strip()
        e.add_note(f'recorded in "{file}", line {line}' + (f", layer {layer}" if layer else "") +
                   (f"\n    {source}" if source else ""))
    if cause is not None:
        e.__cause__ = cause
    return e


def warn(text: str, file: str, line: int) -> None:
    text = in_python(text)
    if line:
        warnings.warn_explicit(text, TenonWarning, file, line)
    else:
        warnings.warn(text, TenonWarning)
