#!/usr/bin/env python3
"""Writes the cases of `make test-onnx`:

    cases.py FOLDER

FOLDER/node has those of the onnx package for each operator, FOLDER/export those it has of PyTorch's exporter and of
small graphs, FOLDER/older and FOLDER/newer some of both in other opsets, FOLDER/theirs, FOLDER/learned and FOLDER/traps
those of judged.py. A case is a folder: model.onnx, and test_data_set_N with input_I.pb and output_I.pb, a TensorProto
each. A model that takes or gives a sequence or an optional is written as one that takes and gives its tensors, with
nodes before and behind that make and take apart the sequence. Nothing is written if the cases are there and were
written by this program and these versions.
"""
import hashlib
import os
import pathlib
import shutil
import sys
import warnings

try:
    import numpy
    import onnx
    import onnxruntime
    import onnx.version_converter
    from onnx import helper, numpy_helper
    from onnx.backend.test.case.node import collect_testcases
except ImportError as e:
    sys.exit(f"tenon: make test-onnx needs a Python with {e.name}: pip install onnx onnxruntime, "
             "or TN_PYTHON=PYTHON names one that has them")

import judged

HERE = pathlib.Path(__file__).parent
# Of these the numbers are drawn: a file `random` beside the model says that shapes and dtypes alone are compared.
RANDOM = ("Bernoulli", "Dropout")


def write_case(folder, model, sets):
    """sets: pairs of inputs and outputs, each a TensorProto."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for i, pair in enumerate(sets):
        to = folder / f"test_data_set_{i}"
        to.mkdir(exist_ok=True)
        for kind, tensors in zip(("input", "output"), pair):
            for k, t in enumerate(tensors):
                (to / f"{kind}_{k}.pb").write_bytes(t.SerializeToString())


def tensor(v):
    return v if isinstance(v, onnx.TensorProto) else numpy_helper.from_array(numpy.asarray(v))


def element_type(info):
    """The type of a sequence's or an optional's element."""
    return info.type.sequence_type.elem_type if info.type.HasField("sequence_type") else info.type.optional_type.elem_type


def port(name, type_proto):
    info = onnx.ValueInfoProto(name=name)
    info.type.CopyFrom(type_proto)
    return info


def take_apart_input(info, v, before):
    """The inputs that stand for one, with their tensors; nodes that make it of them go to `before`."""
    if info.type.HasField("tensor_type") or not info.type.WhichOneof("value"):
        return [(info, tensor(v))]
    kind = element_type(info)
    if info.type.HasField("optional_type"):
        if v is None:
            before.append(helper.make_node("Optional", [], [info.name], type=kind))
            return []
        inner = port(info.name + "_element", kind)
        before.append(helper.make_node("Optional", [inner.name], [info.name]))
        nodes = []
        parts = take_apart_input(inner, v, nodes)
        before[-1:-1] = nodes
        return parts
    parts = [(port(f"{info.name}_{i}", kind), tensor(x)) for i, x in enumerate(v)]
    op = "SequenceConstruct" if parts else "SequenceEmpty"
    before.append(helper.make_node(op, [p.name for p, _ in parts], [info.name]))
    return parts


def take_apart_output(info, v, behind):
    if info.type.HasField("tensor_type") or not info.type.WhichOneof("value"):
        return [(info, tensor(v))]
    kind = element_type(info)
    if info.type.HasField("optional_type"):
        has = helper.make_tensor_value_info(info.name + "_has", onnx.TensorProto.BOOL, [])
        behind.append(helper.make_node("OptionalHasElement", [info.name], [has.name]))
        parts = [(has, tensor(numpy.array(v is not None)))]
        if v is None:
            return parts
        inner = port(info.name + "_element", kind)
        behind.append(helper.make_node("OptionalGetElement", [info.name], [inner.name]))
        return parts + take_apart_output(inner, v, behind)
    length = helper.make_tensor_value_info(info.name + "_length", onnx.TensorProto.INT64, [])
    behind.append(helper.make_node("SequenceLength", [info.name], [length.name]))
    parts = [(length, tensor(numpy.array(len(v), numpy.int64)))]
    for i, x in enumerate(v):
        at = f"{info.name}_at_{i}"
        one = port(f"{info.name}_{i}", kind)
        number = numpy_helper.from_array(numpy.array(i, numpy.int64))
        behind.append(helper.make_node("Constant", [], [at], value=number))
        behind.append(helper.make_node("SequenceAt", [info.name, at], [one.name]))
        parts.append((one, tensor(x)))
    return parts


def of_tensors(model, inputs, outputs):
    """The model, inputs and outputs with tensors alone."""
    before, behind, ins, outs = [], [], [], []
    for info, v in zip(model.graph.input, inputs):
        ins += take_apart_input(info, v, before)
    for info, v in zip(model.graph.output, outputs):
        outs += take_apart_output(info, v, behind)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for field, parts in ((made.graph.input, ins), (made.graph.output, outs)):
        del field[:]
        field.extend(info for info, _ in parts)
    nodes = before + list(made.graph.node) + behind
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made, [v for _, v in ins], [v for _, v in outs]


def write_node_cases(folder):
    """The folder of a case is named after its operator, also where functions are written out."""
    cases = collect_testcases(None)
    operator = {c.name: c.model.graph.node[0].op_type for c in cases if "_expanded" not in c.name}
    for c in cases:
        op = operator.get(c.name.split("_expanded")[0], "functions")
        for inputs, outputs in c.data_sets[:1]:
            model, xs, ys = of_tensors(c.model, inputs, outputs)
            write_case(folder / op / c.name, model, [(xs, ys)])
            if op in RANDOM and not c.name.startswith("test_dropout"):
                (folder / op / c.name / "random").touch()


def write_export_cases(folder):
    data = pathlib.Path(onnx.__file__).parent / "backend/test/data"
    for kind in ("pytorch-converted", "pytorch-operator", "simple"):
        for case in sorted((data / kind).iterdir()):
            model = onnx.load(case / "model.onnx")
            if all(i.type.HasField("tensor_type") for i in [*model.graph.input, *model.graph.output]):
                shutil.copytree(case, folder / kind / case.name)


def write_converted_cases(folder, root, versions):
    """Cases of one domain again, in other opsets where onnx's converter knows how, and ONNX Runtime says that it was right:
    it keeps the axis of a softmax, for one, which means something else before opset 13."""
    for case in sorted(p.parent for p in root.glob("*/*/model.onnx")):
        model = onnx.load(case / "model.onnx")
        opset = {o.domain: o.version for o in model.opset_import}
        for to in versions:
            if set(opset) != {""} or opset[""] == to or (len(model.graph.node) > 1 and to < opset[""]):
                continue
            try:
                made = onnx.version_converter.convert_version(model, to)
                onnx.checker.check_model(made)
                agrees = judged.agrees(made, case / "test_data_set_0")
            except Exception:  # the converter has no rule for the operator, or ONNX Runtime has no kernel
                continue
            if not agrees:
                continue
            at = folder / case.parent.name / f"{case.name}_{to}"
            shutil.copytree(case, at)
            (at / "model.onnx").write_bytes(made.SerializeToString())


def write_judged_cases(folder, make):
    def write(op, name, model, inputs, outputs):
        write_case(folder / op / name, model, [([tensor(x) for x in inputs], [tensor(y) for y in outputs])])

    make(judged.Cases(write))


def main():
    folder = pathlib.Path(sys.argv[1])
    sources = b"".join(p.read_bytes() for p in sorted(HERE.glob("*.py")))
    stamp = f"{onnx.__version__} {onnxruntime.__version__} {hashlib.sha256(sources).hexdigest()}"
    if (folder / "stamp").exists() and (folder / "stamp").read_text() == stamp:
        return
    warnings.simplefilter("ignore")
    shutil.rmtree(folder, ignore_errors=True)
    write_node_cases(folder / "node")
    write_export_cases(folder / "export")
    write_converted_cases(folder / "older", folder / "node", (9, 12))
    write_converted_cases(folder / "newer", folder / "export", (13, 21))
    write_judged_cases(folder / "theirs", judged.theirs)
    write_judged_cases(folder / "learned", judged.learned)
    write_judged_cases(folder / "traps", judged.traps)
    (folder / "stamp").write_text(stamp)


main()
