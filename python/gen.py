#!/usr/bin/env python3
"""Writes the bindings of Tenon's C functions from its public headers: gen.py INCLUDE OUTPUT

OUTPUT/calls.c has a function for every function of C whose types are known here, and the table of them;
OUTPUT/_c.pyi has their types and the sentences of the headers. A function that Python cannot have as it is,
or that the package has in a shape of its own, is in LEFT_OUT with the reason; a function that is in neither
is an error, so that none is forgotten.

A function is made by the types of its parameters:

    TN_API tn_tensor *tn_conv2d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o);

becomes conv2d(x, w, b=None, *, stride=None, padding=None, dilation=None, groups=None, ...): a struct of
options is a keyword for each member, (int n, T *list) is one sequence, and the context is a keyword.
"""
import re
import sys
from pathlib import Path

HEADERS = ["tenon.h", "tenon/arrays.h", "tenon/layers.h", "tenon/onnx.h", "tenon/training.h", "tenon/dlpack.h", "tenon/dist.h", "tenon/pages.h", "tenon/report.h", "tenon/models.h"]

# Why a function of C is not here. Names may end in *.
LEFT_OUT = {
    "the life of contexts and tensors is that of their objects": """
        open open_with close ctx_leave ctx_enter ctx_take ctx_of ctx_device begin end keep want drop
        retain release""",
    "the package has a class for it": "plateau_step",
        "for programs that start ranks": "dist_launched dist_variable",
    "errors are exceptions": "error error_text error_clear error_set on_error on_warning stop_when escape status_name",
    "written by hand in core/": """
        grad_mode autocast random_get random_set
        to_dlpack to_dlpack_unversioned from_dlpack from_dlpack_unversioned ctx_stream ctx_wait_stream ctx_signal_stream ctx_use_stream
        eval_into from borrow read print ptr split meshgrid unique chunk grad minimize gradcheck gradgradcheck vmap hook_add hook_remove scan vjp jvp jacobian hvp hessian custom custom_n
        layer_new layer_new_n layer_each layer_summary layer_self layer_ctx layer_of nn_act nn_residual nn_residual_with
        nn_transformer_block nn_transformer_block_with forward_n dataset next tokenizer_encode
        tokenizer_encode_with tokenizer_decode tokenizer_stream tokenizer_token generate file_info
        file_meta_key file_write checkpoint_save checkpoint_load explain explain_with doctor device_info
        data_info cache_new image_print image_print_with onnx_run onnx_save report_confusion report_compare""",
    "a name of the dtype object": "dtype_name",
    "tenon show MODEL prints it": "onnx_nodes onnx_node_at onnx_node_value",
    "objects end with their last reference": "tensorboard_close report_close",
    "ports are lists": "onnx_inputs onnx_outputs onnx_input onnx_output",
    "an attribute of the tensor": """
        dtype_of rank size stride count item item_i64 needs_grad is_leaf has_grad grad_of""",
}

# Functions whose names are those of attributes of tensors.
ATTRIBUTES = {"requires_grad"}

# Names that `import tenon` does not have, because the package has the function in another form: as a method, a class, a keyword.
# Every other function of C is tenon.NAME.
NOT_EXPORTED = re.compile(r"""i?[rh]?fft[2n]?|i?fftshift|r?fftfreq|i?stft|hann_window|hamming_window|(nn|layer|optim|data|file|tokenizer|cache|ctx|profile|npy|init|device|dist|linalg|sparse|onnx|report|tensorboard)_.*
    |cholesky|solve|solve_triangular|lstsq|inv|qr|eigh|eigvalsh|svd|svdvals|pinv|matrix_rank|vector_norm|matrix_norm|cond|.*_ex
    |.*_(s|i64|i64_|keep|all|axes|with|hw|dhw|nd|n|of)|.*_|forward.*|is_.*|sgd|adam|adamw|rmsprop|next|step|digits|idx.*|images|image_.*|cifar10|csv
    |adagrad|adadelta|lbfgs|nadam|lamb|lion|muon
    |text|arrays|save|load|mlp|lenet|resnet|mobilenet_v2|vit|convnext|unet|gpt2|llama|pretrained|squeeze_all|permute|name|set_name|offset|version|scalar
    |random_shard|generate|sample|copy_to|requires_grad|zero_grad|backward|item_late|eval|sync|grad_mode|autocast|seed|ptr""", re.X)

# Functions whose first argument is a tensor and that are no methods of it: forms of C for what is one method in Python, and what
# the package has otherwise.
NOT_METHODS = re.compile(r"""(i?[rh]?fft[2n]?|i?fftshift|i?stft|sparse_.*|.*_(s|i64|i64_|keep|all|axes|with|ex|norm|triangular)|solve|lstsq|eigh|eigvalsh|svdvals|cond|real|imag|linalg_check|init_.*|image_.*|bit_.*|squeeze_all|copy_to|eval_of|op_of|npy_write|sample
    |offset|window|window_dilated|shl|shr)""", re.X)

# Parameters that may be None: those that the headers say may be NULL.
MAY_BE_NONE = {
    "linear": "b", "conv1d": "b", "conv2d": "b", "conv3d": "b", "conv_transpose1d": "b", "conv_transpose2d": "b",
    "conv_transpose3d": "b", "layer_norm": "w b", "rms_norm": "w", "group_norm": "w b",
    "batch_norm": "w b", "bincount": "weights", "ctc_loss": "input_lengths target_lengths", "rope": "positions", "backward": "gy", "profile_write": "path",
    "profile_compare": "path", "report_sample": "x",
}

# Calls that may take long: other threads of Python run meanwhile.
WAITS = set("""
    item_late eval eval_of sync step next save save_with load load_with file_open file_tensor npy_read npy_write
    profile_write ctx_peak optim_skipped pretrained pretrained_with tokenizer_open tokenizer_gpt2 csv text idx
    idx_files idx_read image_read image_read_with image_write image_write_with images cifar10 arrays data_shuffle data_drop_last data_split data_augment data_seek
    tensorboard_open tensorboard_histogram tensorboard_image report_read report_sample report_write profile_compare tune_export tune_import
    data_rewind data_shard dist_open dist_close dist_barrier optim_distribute onnx_open onnx_layer""".split())

# What a function does with two operands of which one may be a number of Python: number_use in core.h. COMPUTES if it is in none.
NUMBER_USES = {"COMPARES": "eq ne lt le gt ge", "BOUNDS": "maximum minimum", "WRITES": "add_ sub_ mul_ div_"}

# Functions that return their first argument.
RETURNS_FIRST = re.compile(r"(.*_$|assign$|requires_grad$|set_name$|init_.*|layer_param$|layer_buffer$)")
# The argument that a function returns, if it is not the first.
RETURNED = {"layer_param": 2, "layer_buffer": 2}
# Functions after which layers that were arguments belong to another: (which argument, to which; None: to the result).
GIVES = {"layer_child": (2, 0), "nn_seq_n": (0, None), "nn_standardize": (1, None), "nn_standardize_nd": (1, None)}
# Functions that return a layer which belongs to an argument.
LENDS = {"layer_child": 0, "layer_find_child": 0, "onnx_layer": 0}
HANDLES = {"tn_layer": "LAYER", "tn_optim": "OPTIM", "tn_data": "DATA", "tn_tokenizer": "TOKENIZER",
           "tn_file": "SAVED_FILE", "tn_cache": "CACHE", "tn_dist": "DIST", "tn_onnx": "ONNX", "tn_report": "REPORT",
           "tn_tensorboard": "TENSORBOARD"}
ENUMS = {"tn_fft_norm", "tn_rnn_kind", "tn_fold", "tn_matrix_norm_kind", "tn_interpolation", "tn_border", "tn_reduction", "tn_rope_scaling", "tn_lr_kind", "tn_missing", "tn_reduce_op"}
NUMBERS = {"int": "int", "int64_t": "int64", "uint64_t": "uint64", "double": "double", "float": "double", "bool": "bool",
           "tn_dtype": "dtype", "size_t": "uint64"}
PYTHON = {"int": "int", "int64": "int", "uint64": "int", "double": "float", "bool": "bool", "dtype": "DTypeLike"}
CLASS = {"LAYER": "Layer", "OPTIM": "Optim", "DATA": "Data", "TOKENIZER": "Tokenizer", "SAVED_FILE": "File",
         "CACHE": "Cache", "DIST": "Dist", "ONNX": "Onnx", "REPORT": "Report", "TENSORBOARD": "Tensorboard"}


# ---- the headers

class Function:
    """A declaration: its name without tn_, its result type, [(type, name)], and the sentence above it."""

    def __init__(self, text, doc, plain):
        text = " ".join(text.split())
        m = re.match(r"(.*?)(tn_\w+) ?\((.*)\)$", text)
        self.result, self.name, self.doc, self.plain = m[1].strip(), m[2][3:], doc, plain
        self.params = [split_param(p) for p in split_commas(m[3])] if m[3] != "void" else []


def split_commas(text):
    parts, depth, start = [], 0, 0
    for i, ch in enumerate(text):
        depth += (ch == "(") - (ch == ")")
        if ch == "," and not depth:
            parts.append(text[start:i])
            start = i + 1
    return [p.strip() for p in parts + [text[start:]] if p.strip()]


def split_param(text):
    m = re.search(r"\(\*(\w+)\)\(", text)
    if m:
        return "function", m[1]
    m = re.match(r"(.*?)(\w+)((?:\[\w+\])?)$", text)
    return m[1].strip() + m[3], m[2]


def sentence(comments):
    """A comment of the header as a doc string: C's names as Python's."""
    text = " ".join(c.strip() for c in comments)
    text = re.sub(r"\btn_(\w+)", r"\1", text)
    return re.sub(r"\s+", " ", text).strip()


def read_headers(folder):
    functions, structs = [], {}
    for header in HEADERS:
        lines = (Path(folder) / header).read_text().split("\n")
        read_lines(lines, functions, structs)
    return functions, structs


def read_lines(lines, functions, structs):
    comment, family, shared, i = [], [], [], 0
    while i < len(lines):
        line = lines[i]
        if line.startswith("//"):
            # A comment is about every declaration up to the next one.
            if i == 0 or not lines[i - 1].startswith("//"):
                comment = []
            comment.append(line[2:].strip())
        elif line.startswith("typedef struct {"):
            members = []
            i += 1
            while not lines[i].startswith("}"):
                members += shared if lines[i].strip() == "TN_OPTIM_OPTIONS;" else [lines[i]]
                i += 1
            name = re.match(r"} (\w+);", lines[i])[1]
            structs[name] = read_members(members)
        elif line.startswith("#define TN_OPTIM_OPTIONS"):
            shared = []
            while lines[i].endswith("\\"):
                i += 1
                shared.append(re.sub(r"/\*.*?\*/", "", lines[i].rstrip("\\")))
            shared[-1] += ";"
        elif line.startswith("#define TN_REDUCTION"):
            family = []
            while lines[i].endswith("\\"):
                i += 1
                m = re.search(r"TN_API (.*);", lines[i])
                if m:
                    family.append(m[1])
        elif m := re.match(r"TN_REDUCTION\((\w+)\)\s*(?://\s*(.*))?", line):
            for text in family:
                functions.append(Function(re.sub(r"##name(##)?", m[1], text), m[2] or "", False))
        elif m := re.match(r"(TN_API|TN_API_PLAIN) (.*)", line):
            text, trailing = m[2], ""
            while True:
                if c := re.match(r"(.*?)\s*//\s*(.*)", text):
                    text, trailing = c[1], c[2]
                if text.rstrip().endswith(";"):
                    break
                i += 1
                more = lines[i]
                if c := re.match(r"(.*?)\s*//\s*(.*)", more):
                    more, trailing = c[1], c[2]
                text += " " + more.strip()
            doc = trailing[:1].upper() + trailing[1:] if trailing else sentence(comment)
            functions.append(Function(text.strip().rstrip(";"), sentence([doc]), m[1] == "TN_API_PLAIN"))
        elif not line.strip():
            comment = []
        if m := re.match(r"typedef (tn_\w+) (tn_\w+);", line):
            if m[1] in structs:
                structs[m[2]] = structs[m[1]]
        i += 1


def read_members(lines):
    """[(type, name, array size or 0)] of a struct."""
    text = "\n".join(re.sub(r"//.*", "", line) for line in lines)
    members = []
    for declaration in text.split(";"):
        declaration = " ".join(declaration.split())
        if not declaration:
            continue
        m = re.search(r"\(\*(\w+)\)\(", declaration)
        if m:
            members.append(("function", m[1], 0))
            continue
        m = re.match(r"((?:const )?\w+) (.*)", declaration)
        for name in split_commas(m[2]):
            stars = name.count("*")
            array = re.search(r"\[([^\]]+)\]", name)
            bare = re.search(r"(\w+)(?:\[[^\]]+\])?$", name.replace("*", " ").replace("const ", ""))[1]
            size = array[1] if array else 0
            members.append((m[1] + (" " + "*" * stars if stars else ""), bare,
                            int(size) if str(size).isdigit() else (99 if size else 0)))
    return members


# ---- one function of C as one of Python

class Unknown(Exception):
    pass


class Arguments:
    """What Python passes for the parameters of one function: names, conversions, declarations."""

    def __init__(self, f, structs):
        self.f, self.structs = f, structs
        self.names, self.types, self.required = [], [], 0
        self.declare, self.convert, self.after, self.call = [], [], [], []
        self.context = False
        self.outputs = []  # tensors that the function writes: its result in Python
        self.options = []  # (names, types) of keyword-only arguments
        self.prefix = "options"  # of options whose name is taken: the member that is a struct of them
        none = MAY_BE_NONE.get(f.name, "").split()
        i, params = 0, f.params
        while i < len(params):
            kind, name = params[i]
            following = params[i + 1] if i + 1 < len(params) else ("", "")
            if kind == "tn_ctx *":
                self.context = True
                self.call.append("k.c->cx")
            elif kind == "const tn_ctx *":
                self.context = True
                self.call.append("k.c->cx")
            elif kind == "int" and following[0] in ("const int64_t *", "const int *", "tn_tensor *const *",
                                                    "tn_layer *const *", "const char *const *"):
                self.sequence(following[0], following[1])
                i += 1
            elif kind in ("tn_tensor *", "const tn_tensor *"):
                self.add(name, "TensorLike", f"tn_tensor *p_{name};", f"to_tensor(&k, %s, \"{f.name}: {name}\", "
                         f"{'true' if name in none else 'false'}, &p_{name})", "p_" + name, name in none)
            elif kind == "tn_tensor **":
                self.declare.append(f"tn_tensor *p_{name} = NULL;")
                self.call.append("&p_" + name)
                self.outputs.append("p_" + name)
            elif kind == "tn_sparse *":
                self.declare.append(f"tn_sparse p_{name} = {{ 0 }};")
                self.call.append("&p_" + name)
                self.outputs += [f"p_{name}.values", f"p_{name}.pattern"]
            elif self.handle(kind):
                self.add_handle(kind, name)
            elif kind in NUMBERS:
                self.number(kind, name)
            elif kind in ENUMS:
                self.declare.append(f"int p_{name};")
                self.add(name, "int", None, f"to_int(%s, \"{f.name}: {name}\", &p_{name})", f"({kind})p_{name}", False)
            elif kind == "const char *":
                self.add(name, "str", f"const char *p_{name};", f"to_text(&k, %s, \"{f.name}: {name}\", "
                         f"{'true' if name in none else 'false'}, &p_{name})", "p_" + name, name in none)
            elif kind in structs:
                self.struct(kind, name)
            elif kind == "const int *":
                self.add(name, "Sequence[int]", f"int n_{name}; const int *p_{name};",
                         f"to_ints(&k, %s, \"{f.name}: {name}\", &n_{name}, &p_{name})", "p_" + name, False)
            elif kind == "const int64_t *":
                self.add(name, "Sequence[int]", f"int n_{name}; const int64_t *p_{name};",
                         f"to_int64s(&k, %s, \"{f.name}: {name}\", &n_{name}, &p_{name})", "p_" + name, False)
            else:
                raise Unknown(kind)
            i += 1

    def handle(self, kind):
        m = re.match(r"(?:const )?(tn_\w+) \*$", kind)
        return m and HANDLES.get(m[1])

    def add(self, name, python, declare, convert, passed, optional):
        name_in_python = {"in": "in_features", "out": "out_features"}.get(name, name)
        self.names.append(name_in_python)
        self.types.append(python + (" | None = None" if optional else ""))
        if declare:
            self.declare.append(declare)
        self.convert.append((len(self.names) - 1, convert, optional))
        if not optional:
            self.required = len(self.names)
        self.call.append(passed)

    def add_handle(self, kind, name):
        which, base = self.handle(kind), re.match(r"(?:const )?(tn_\w+)", kind)[1]
        self.add(name, CLASS[which], f"void *p_{name};",
                 f"to_handle(&k, %s, {which}, \"{self.f.name}: {name}\", false, &p_{name})", f"({base} *)p_{name}", False)

    def number(self, kind, name):
        how = NUMBERS[kind]
        base = {"float": "double", "size_t": "uint64_t"}.get(kind, kind)
        if any("= None" in t for t in self.types):  # what follows an argument that may be left out may be left out: 0
            self.add(name, PYTHON[how], f"{base} p_{name} = 0;", f"to_{how}(%s, \"{self.f.name}: {name}\", &p_{name})",
                     "p_" + name, True)
            return
        self.add(name, PYTHON[how], f"{base} p_{name};", f"to_{how}(%s, \"{self.f.name}: {name}\", &p_{name})", "p_" + name, False)

    def sequence(self, kind, name):
        how, python = {"const int64_t *": ("int64s", "Sequence[int] | int"), "const int *": ("ints", "Sequence[int] | int"),
                       "tn_tensor *const *": ("tensors", "Sequence[TensorLike]"),
                       "tn_layer *const *": ("layers", "Sequence[Layer]"),
                       "const char *const *": ("texts", "Sequence[str]")}[kind]
        self.add(name, python, f"int n_{name}; {kind}{'' if kind.endswith('*') else ' '}p_{name};",
                 f"to_{how}(&k, %s, \"{self.f.name}: {name}\", &n_{name}, &p_{name})", f"n_{name}, p_{name}", False)

    def struct(self, kind, name):
        self.declare.append(f"{kind} p_{name} = {{ 0 }};")
        self.call.append("p_" + name)
        self.members(self.structs[kind], "p_" + name)

    def members(self, members, path):
        skip = {"user"}
        for place, (kind, member, size) in enumerate(members):
            where, what = f"{path}.{member}", f"{self.f.name}: {member}"
            if kind == "function" or member in skip:
                continue
            if size:
                if kind == "double":
                    self.option(member, "Sequence[float]", f"to_doubles(%s, \"{what}\", {size}, {where})")
                if kind != "int64_t":
                    continue
                zero = "TN_NO_PADDING" if member.endswith("padding") else "0"
                self.option(member, "Sequence[int] | int", f"to_places(%s, \"{what}\", {size}, {zero}, {where})")
            elif kind in ("tn_tensor *",):
                self.option(member, "TensorLike", f"to_tensor(&k, %s, \"{what}\", true, &{where})")
            elif self.handle(kind):
                self.option(member, CLASS[self.handle(kind)],
                            f"to_handle(&k, %s, {self.handle(kind)}, \"{what}\", true, (void **)&{where})")
            elif kind == "double":
                self.option(member, "float", f"to_option(%s, \"{what}\", &{where})")
            elif kind in NUMBERS:
                self.option(member, PYTHON[NUMBERS[kind]], f"to_{NUMBERS[kind]}(%s, \"{what}\", &{where})")
            elif kind in ENUMS:
                self.option(member, "int", f"to_int(%s, \"{what}\", (int *)&{where})")
            elif kind == "const char *":
                self.option(member, "str", f"to_text(&k, %s, \"{what}\", true, &{where})")
            elif kind == "char":
                continue
            elif kind in self.structs:
                outer, self.prefix = self.prefix, member
                self.members(self.structs[kind], where)
                self.prefix = outer
            elif kind == "const char **":
                continue
            else:
                continue

    def option(self, name, python, convert):
        if name == "context":
            name = "context_length"  # context is where the object is made
        elif any(n == name for n, _, _ in self.options) or name in self.names:
            name = f"{self.prefix}_{name}"
        self.options.append((name, python, convert))


RESULTS = {
    "tn_status": ("tn_status", "context_status(k.c, %s)", "None"),
    "double": ("double", "PyFloat_FromDouble(%s)", "float"),
    "int64_t": ("int64_t", "PyLong_FromLongLong(%s)", "int"),
    "int": ("int", "PyLong_FromLong(%s)", "int"),
    "bool": ("bool", "PyBool_FromLong(%s)", "bool"),
    "tn_dtype": ("tn_dtype", "from_dtype(%s)", "DType"),
    "const char *": ("const char *", "from_text(%s)", "str"),
}


def result_of(f, structs):
    """(C type, expression, Python type) of a result."""
    if f.result == "tn_tensor *":
        return "tn_tensor *", "tensor_wrap(k.c, %s)", "T"
    if f.result in RESULTS:
        return RESULTS[f.result]
    m = re.match(r"(tn_\w+) \*$", f.result)
    if m and m[1] in HANDLES:
        return f.result, f"handle_wrap(k.c, {HANDLES[m[1]]}, %s)", CLASS[HANDLES[m[1]]]
    if f.result in structs:
        return f.result, f"from_{f.result}(k.c, %s)", "tuple[T, T]" if f.result == "tn_pair" else "dict[str, Any]"
    raise Unknown(f.result)


def struct_result(name, members):
    """A function that makes a tuple or dict of a struct that a call returns."""
    lines = [f"static PyObject *from_{name}(Context *c, {name} r)", "{"]
    if name == "tn_pair":
        return "\n".join(lines + ["    if (!r.values) return context_raise(c);",
                                  "    PyObject *v = tensor_wrap(c, r.values), *i = v ? tensor_wrap(c, r.indices) : NULL;",
                                  "    PyObject *t = i ? PyTuple_Pack(2, v, i) : NULL;",
                                  "    Py_XDECREF(v);", "    Py_XDECREF(i);", "    return t;", "}", ""])
    if any(kind == "tn_tensor *" for kind, _, _ in members):
        lines += ["    if (!r.x) return context_raise(c);", "    PyObject *d = PyDict_New(), *v;"]
    else:
        lines += ["    (void)c;", "    PyObject *d = PyDict_New(), *v;"]
    for kind, member, size in members:
        if kind == "tn_tensor *" and size:
            lines += [f"    for (int i = 0; i < (int)(sizeof r.{member} / sizeof *r.{member}) && r.{member}[i] && d; i++) {{",
                      f"        char key[16];",
                      f"        snprintf(key, sizeof key, \"{member}%d\", i);",
                      f"        v = tensor_wrap(c, r.{member}[i]);",
                      "        if (!v || PyDict_SetItemString(d, key, v) < 0) Py_CLEAR(d);",
                      "        Py_XDECREF(v);", "    }"]
            continue
        make = {"tn_tensor *": f"r.{member} ? tensor_wrap(c, r.{member}) : Py_NewRef(Py_None)",
                "int64_t": f"PyLong_FromLongLong(r.{member})",
                "uint64_t": f"PyLong_FromUnsignedLongLong(r.{member})", "int": f"PyLong_FromLong(r.{member})",
                "bool": f"PyBool_FromLong(r.{member})"}.get(kind)
        if not make or size:
            raise Unknown(f"{kind} {member} of {name}")
        lines += ["    v = d ? %s : NULL;" % (make if "?" not in make else f"({make})"),
                  f"    if (d && (!v || PyDict_SetItemString(d, \"{member}\", v) < 0)) Py_CLEAR(d);", "    Py_XDECREF(v);"]
    return "\n".join(lines + ["    return d;", "}", ""])


def number_test(f, a):
    """The call that fits numbers of Python to the operand beside them, for functions of the operands a and b or x and v."""
    use = next((use for use, names in NUMBER_USES.items() if f.name in names.split()), "COMPUTES")
    first, second = ("x", "v") if use == "WRITES" else ("a", "b")
    places = [i for i, n in enumerate(a.names) if n in (first, second) and a.types[i] == "TensorLike"]
    if [a.names[i] for i in places] != [first, second]:
        return []
    return [f"fit_numbers(&k, {use}, a + {places[0]}, (tn_tensor **[]){{ &p_{first}, &p_{second} }})"]


# A function that makes a tuple of the tensors that a call wrote.
OUTPUTS = """static PyObject *from_outputs(Context *c, tn_status s, int n, tn_tensor **y)
{
    PyObject *t = s == TN_OK ? PyTuple_New(n) : context_raise(c);
    for (int i = 0; t && i < n; i++) {
        PyObject *v = tensor_wrap(c, y[i]);
        if (!v || PyTuple_SetItem(t, i, v) < 0) Py_CLEAR(t);
    }
    return t;
}

"""


def write_function(f, structs):
    """(text of the C function, its Python signature, its Python result)"""
    a = Arguments(f, structs)
    ctype, wrap, python = result_of(f, structs) if f.result != "void" else ("void", "", "None")
    if a.outputs:
        wrap = f"from_outputs(k.c, %s, {len(a.outputs)}, (tn_tensor *[]){{ {', '.join(a.outputs)} }})"
        python = f"tuple[{', '.join('T' for _ in a.outputs)}]"
    names = a.names + [n for n, _, _ in a.options] + (["context"] if a.context else [])
    count = max(len(names), 1)
    out = [f"static PyObject *c_{f.name}(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)", "{"]
    out += ["    static const char *const params[] = { %s };" % (", ".join(f'"{n}"' for n in names) or "NULL"),
            f"    static const signature s = {{ \"{f.name}\", {len(names)}, {len(a.names)}, {a.required}, params }};",
            f"    PyObject *a[{count}], *r = NULL;", "    call k;"]
    out += ["    " + d for d in a.declare]
    context = f"a[{len(names) - 1}]" if a.context else "NULL"
    out += [f"    if (!take_arguments(&s, self, args, n, names, a) || !call_begin(&k, \"{f.name}\", a, {len(a.names)}, {context}))"
            " return NULL;"]
    tests = []
    for i, convert, optional in a.convert:
        test = convert.replace("%s", f"a[{i}]", 1)
        tests.append(f"(!a[{i}] || {test})" if optional and "true" not in convert else test)
    for place, (name, _, convert) in enumerate(a.options):
        i = len(a.names) + place
        tests.append(f"(!a[{i}] || a[{i}] == Py_None || " + convert.replace("%s", f"a[{i}]", 1) + ")")
    tests += number_test(f, a)
    passed = ", ".join(([] if f.plain else ["k.at.file", "k.at.line"]) + a.call)
    function = f"tn_{f.name}" + ("" if f.plain else "_at")
    invoke = f"{function}({passed})"
    body = []
    if f.name in WAITS:
        body += ["PyThreadState *state = context_let_go(k.c);"]
    body += [f"{ctype}{'' if ctype.endswith('*') else ' '}v = {invoke};" if ctype != "void" else f"{invoke};"]
    if f.name in WAITS:
        body += ["context_take_back(k.c, state);"]
    if ctype == "void":
        body += ["r = k.c->failed.code ? context_raise(k.c) : Py_NewRef(Py_None);"]
        python = "None"
    elif RETURNS_FIRST.match(f.name) and ctype == "tn_tensor *":
        body += [f"r = v ? Py_NewRef(a[{RETURNED.get(f.name, 0)}]) : context_raise(k.c);"]
    elif ctype in ("double", "int64_t", "int", "bool"):
        body += ["r = k.c->failed.code ? context_raise(k.c) : %s;" % (wrap % "v")]
    else:
        body += ["r = %s;" % (wrap % "v")]
    if f.name in LENDS:
        body += [f"if (r && !handle_give(r, a[{LENDS[f.name]}])) Py_CLEAR(r);"]
    if f.name in GIVES:
        given, to = GIVES[f.name]
        body += [f"if (r && !handle_give(a[{given}], {'r' if to is None else f'a[{to}]'})) Py_CLEAR(r);"]
    # What an object of C was made of lives as long as it does.
    elif ctype.startswith("tn_") and ctype.endswith("*") and ctype != "tn_tensor *":
        for i, t in enumerate(a.types):
            if t in CLASS.values() or t == "Sequence[Layer]":
                body += [f"if (r && !handle_use(r, a[{i}])) Py_CLEAR(r);"]
    # An argument may run Python when it is read, and another thread then take the context.
    tests = " &&\n        ".join(tests + ["context_claim(k.c)"])
    out += [f"    if ({tests}) {{"] + ["        " + b for b in body] + ["    }", "    call_end(&k);", "    return r;", "}", ""]
    arguments = [f"{n}: {t}" for n, t in zip(a.names, a.types)]
    if a.options or a.context:
        arguments.append("*")
        arguments += [f"{n}: {t} | None = None" for n, t, _ in a.options]
        arguments += ["context: Context | None = None"] if a.context else []
    return "\n".join(out), arguments, python


def text_signature(arguments):
    plain = [re.sub(r":[^=]*?( = None)?$", lambda m: "=None" if m[1] else "", x) for x in arguments]
    return "(" + ", ".join(plain) + ")"


def c_text(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def main(include, output):
    functions, structs = read_headers(include)
    left_out = {name: why for why, names in LEFT_OUT.items() for name in names.split()}
    exported = []
    # Methods that the class of the package has in a form of its own.
    package = Path(__file__).parent / "tenon"
    overridden = set(re.findall(r"^    (?:def )?(\w+)(?:\(| = [FG]\.)", (package / "_tensor.py").read_text(), re.M))
    texts, table, methods, stubs, method_stubs, problems, seen = [], [], [], [], [], [], set()
    wanted = set()
    for f in functions:
        seen.add(f.name)
        if f.name in left_out:
            continue
        try:
            text, arguments, python = write_function(f, structs)
        except Unknown as e:
            problems.append(f"{f.name}: the type {e} is not known, and it is not in LEFT_OUT")
            continue
        if f.result in structs:
            wanted.add(f.result)
        texts.append(text)
        doc = c_text(f"{f.name}{text_signature(arguments)}\n--\n\n{f.doc}")
        row = f'    {{ "{f.name}", (PyCFunction)(void (*)(void))c_{f.name}, METH_FASTCALL | METH_KEYWORDS, {doc} }},'
        table.append(row)
        if not NOT_EXPORTED.fullmatch(f.name):
            exported.append(f.name)
        if f.name != "version":  # the module has it as a text
            stubs.append(f'def {f.name}({", ".join(arguments)}) -> {python}: ...\n')
        if arguments and arguments[0].endswith(": TensorLike") and f.name not in ATTRIBUTES and not NOT_METHODS.fullmatch(f.name):
            methods.append(row)
            rest = ", ".join(["self"] + arguments[1:])
            if f.name not in overridden:
                method_stubs.append(f"    def {f.name}({rest}) -> {python}: ...\n")
    for name in left_out:
        if name not in seen:
            problems.append(f"{name} is in LEFT_OUT, and there is no such function")
    if problems:
        sys.exit("gen.py: " + "\n        ".join(problems))
    out = Path(output)
    out.mkdir(parents=True, exist_ok=True)
    (out / "calls.c").write_text(
        "// Generated by gen.py from the public headers. Do not edit.\n#include \"core.h\"\n\n#include <stdio.h>\n\n" +
        "\n".join(struct_result(n, structs[n]) for n in sorted(wanted)) + "\n" + OUTPUTS + "\n".join(texts) +
        "\nPyMethodDef generated_methods[] = {\n" + "\n".join(table) + "\n    { 0 },\n};\n" +
        "\nconst char *const exported_names[] = { " + ", ".join(f'"{n}"' for n in exported) + ", NULL };\n" +
        "\nPyMethodDef generated_tensor_methods[] = {\n" + "\n".join(methods) + "\n    { 0 },\n};\n")
    stub = (package / "_c.pyi.in").read_text()
    both = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
    names = [f"__{p}{n}__" for n in both for p in ("", "r")] + [f"__{n}__" for n in "lt le gt ge".split()]
    names += [f"__i{n}__" for n in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split()]
    operators = "".join(f"    def {n}(self, other: Any) -> T: ...\n" for n in names)
    operators += "".join(f"    def __{n}__(self) -> T: ...\n" for n in "neg pos abs invert".split())
    stub = stub.replace("# OPERATORS\n", operators)
    stub += "\n__all__ = " + repr(exported) + "\n"
    (out / "_c.pyi").write_text(stub.replace("# METHODS\n", "".join(method_stubs)).replace("# FUNCTIONS\n", "".join(stubs)))


if __name__ == "__main__":
    main(*sys.argv[1:3])
