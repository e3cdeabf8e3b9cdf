#!/usr/bin/env python3
"""Checks what tn_onnx_save writes, with the onnx package and ONNX Runtime:

    check_export.py FOLDER

FOLDER/NAME has model.onnx, x.npy and y.npy, which `tenon-onnx --export FOLDER` wrote. A model has to pass onnx's checker with its inference
of shapes, and ONNX Runtime has to make y of x: within 1e-4 of the largest element, since it adds in another
order, and within 1e-2 in f16, in which it rounds more often. Prints the greatest
difference of each.
"""
import pathlib
import sys

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as e:
    sys.exit(f"tenon: make test-onnx needs a Python with {e.name}: pip install onnx onnxruntime, "
             "or TN_PYTHON=PYTHON names one that has them")

PART = {"float32": 1e-4, "float16": 1e-2}


def check(folder):
    """The greatest difference of a model's result, the largest element, its dtype, and the model."""
    path = str(folder / "model.onnx")
    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path, load_external_data=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 2  # warnings too: a weight that nothing reads is one
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    x, y = numpy.load(folder / "x.npy"), numpy.load(folder / "y.npy")
    names = [i.name for i in model.graph.input]
    z = session.run(None, {names[0]: x})[0]
    if z.shape != y.shape or z.dtype != y.dtype:
        raise ValueError(f"y is {z.dtype} {z.shape}, and was {y.dtype} {y.shape}")
    return float(abs(z - y).max()), float(abs(y).max()), str(y.dtype), model


def main(folder):
    bad = 0
    folders = sorted(p.parent for p in pathlib.Path(folder).glob("*/model.onnx"))
    if not folders:
        sys.exit(f"check_export.py: there are no models in {folder}")
    for f in folders:
        try:
            difference, most, kind, model = check(f)
            ok = difference <= PART[kind] * most and most > 0
            place = "beside" if (f / "model.onnx.data").exists() else "inside"
            print(f"{f.name:14} opset {model.opset_import[0].version}, {len(model.graph.node):4} nodes, weights {place}: "
                  f"greatest difference {difference:.2g} of {most:.3g}{'' if ok else '  FAIL'}")
        except Exception as e:  # whatever either of them raises is about this model
            ok = False
            print(f"{f.name:14} FAIL {type(e).__name__}: {e}")
        bad += not ok
    print(f"{len(folders) - bad} of {len(folders)} exported networks agree with ONNX Runtime {onnxruntime.__version__}")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
