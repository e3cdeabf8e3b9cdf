"""Errors of Tenon as exceptions, which are also of Python's own kind where there is one."""
from __future__ import annotations

import linecache
import re
import warnings


__all__ = ["Error", "ArgumentError", "ShapeError", "DTypeError", "GradError", "GoneError", "OutOfMemoryError",
           "DeviceError", "DeviceLostError", "FileError", "FormatError", "MissingFileError", "OutOfRangeError",
           "ThreadError", "UserError", "TenonWarning"]


class Error(RuntimeError):
    """An error of Tenon. `file` and `line` are those of the call that recorded the op, `layer` the path of its layer."""

    file: str = ""
    line: int = 0
    layer: str = ""


class ArgumentError(Error, ValueError):
    """An argument is wrong."""


class OutOfRangeError(ArgumentError, IndexError):
    """An index or an axis is out of range."""


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


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file."""


class FormatError(Error, ValueError):
    """The content of a file is malformed."""


class ThreadError(Error):
    """The context belongs to another thread."""


class UserError(Error):
    """A function of the program failed: of an op or a layer. Its exception is the cause."""


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
    text = text.replace("tn_grad_mode(cx, false)", "tn.no_grad()")
    return re.sub(r"\btn_([a-z_0-9]+)", lambda m: _SPELLED.get(m[1], "tn." + m[1]), text)


def _class_of(code: str, text: str) -> type[Error]:
    """The class of a fault. Some of the core's codes are two kinds of Python, which the text tells apart."""
    if code == "TN_EARG" and re.search(r"\b(index|axis) -?\d+ (is|was) out of range", text):
        return OutOfRangeError
    if code == "TN_EIO" and ("No such file or directory" in text or "there is no such folder" in text):
        return MissingFileError
    return _CLASSES.get(code, Error)


def make(code: str, text: str, file: str, line: int, layer: str, cause: BaseException | None) -> Error:
    """The exception of a fault, which names the line that recorded the op."""
    why = "" if cause is None else f": {type(cause).__name__}: {cause}"
    e = _class_of(code, text)(in_python(text or code) + why)
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
