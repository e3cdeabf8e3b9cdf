"""Cases that the onnx package has none of, judged by ONNX Runtime: com.microsoft's operators, and what operators meant in
older opsets. Each is one node, or a small graph; results that ONNX Runtime cannot give are written down."""
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

F, I = np.float32, np.int64
BIG = np.iinfo(np.int64).max


def session(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def agrees(model, folder):
    """Whether ONNX Runtime gives the outputs that a case wants."""
    def read(kind):
        files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
        return [numpy_helper.to_array(onnx.TensorProto.FromString(p.read_bytes())) for p in files]

    run = session(model)
    have = run.run(None, dict(zip([i.name for i in run.get_inputs()], read("input"))))
    return all(np.shape(h) == w.shape and np.allclose(h, w, 1e-3, 1e-5, equal_nan=True) for h, w in zip(have, read("output")))


class Cases:
    """write(operator, name, model, inputs, outputs) is called for each case."""

    def __init__(self, write):
        self.write, self.rng, self.count = write, np.random.default_rng(7), 0

    def real(self, *shape):
        return self.rng.standard_normal(shape).astype(F)

    def whole(self, dtype, *shape, low=None, high=None):
        info = np.iinfo(dtype)
        low, high = (info.min if low is None else low), (info.max if high is None else high)
        return self.rng.integers(low, high, shape, endpoint=True).astype(dtype)

    def node(self, op, inputs, opset=17, domain="", outputs=1, fixed=(), want=None, name=None, also=None, **attributes):
        """One node of inputs, arrays or None; those in `fixed` are weights. outputs: how many, or a list of 0 for those left out.
        also: attributes that are named as an argument here."""
        names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
        outs = [f"y{i}" if keep else "" for i, keep in enumerate([1] * outputs if isinstance(outputs, int) else outputs)]
        node = helper.make_node(op, names, outs, domain=domain, **attributes, **(also or {}))
        weights = [numpy_helper.from_array(inputs[i], names[i]) for i in fixed]
        feeds = {n: x for i, (n, x) in enumerate(zip(names, inputs)) if n and i not in fixed}
        self.graph(op, [node], feeds, [o for o in outs if o], opset, weights, want, name)

    def graph(self, op, nodes, feeds, outs, opset=17, weights=(), want=None, name=None, sparse=()):
        ports = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()]
        ends = [onnx.ValueInfoProto(name=o) for o in outs]
        imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)]
        graph = helper.make_graph(nodes, "case", ports, ends, initializer=list(weights), sparse_initializer=list(sparse))
        model = helper.make_model(graph, opset_imports=imports, ir_version=8 if opset < 21 else 10)
        if want is None:
            want = session(model).run(outs, feeds)
        self.count += 1
        self.write(op, name or f"{op.lower()}_{opset}_{self.count}", model, list(feeds.values()), want)


def theirs(c):
    """com.microsoft's operators."""
    def ms(op, inputs, **more):
        c.node(op, inputs, domain="com.microsoft", **more)

    x, skip, scale, b, bias = c.real(2, 3, 8), c.real(2, 3, 8), c.real(8), c.real(8), c.real(8)
    ms("SkipLayerNormalization", [x, skip, scale, b, bias], outputs=[1, 0, 0, 1], epsilon=1e-5)
    ms("SkipLayerNormalization", [x, skip, scale, b])
    ms("SkipSimplifiedLayerNormalization", [x, skip, scale, bias], outputs=[1, 0, 0, 1], epsilon=1e-6)
    ms("SkipSimplifiedLayerNormalization", [x, skip, scale])
    c.node("SimplifiedLayerNormalization", [x, scale], epsilon=1e-6, axis=-1)
    for op in ("BiasGelu", "FastGelu"):
        ms(op, [x, bias])
    ms("FastGelu", [x])
    ms("QuickGelu", [x], alpha=1.5)
    ms("Gelu", [x])
    a, w = c.real(2, 3, 4, 5), c.real(2, 3, 6, 5)
    ms("FusedMatMul", [a, w], transB=1, alpha=0.5)
    ms("FusedMatMul", [c.real(4, 2, 3, 5), c.real(2, 3, 5, 6)], transBatchA=1)
    ms("FusedGemm", [c.real(4, 5), c.real(6, 5), c.real(6)], transB=1, alpha=0.5, beta=2.0, activation="LeakyRelu", activation_alpha=0.2)
    ms("FusedConv", [c.real(1, 3, 5, 5), c.real(4, 3, 3, 3), c.real(4)], kernel_shape=[3, 3], pads=[1, 1, 1, 1], activation="Relu")
    ms("FusedConv", [c.real(1, 3, 5, 5), c.real(4, 3, 3, 3), c.real(4)], kernel_shape=[3, 3], activation="Clip", activation_params=[-0.5, 0.5])
    angle = np.outer(np.arange(16), 1 / 10 ** np.arange(4)).astype(F)
    for pairs in (0, 1):
        ms("RotaryEmbedding", [c.real(2, 3, 16), np.array([[3, 4, 5], [0, 1, 2]], I), np.cos(angle), np.sin(angle)], interleaved=pairs)
        ms("RotaryEmbedding", [c.real(2, 2, 3, 8), np.array([4], I), np.cos(angle), np.sin(angle)], interleaved=pairs)
    attention(c, ms)
    grouped(c, ms, angle)
    for bits, K, block in ((4, 40, 16), (4, 64, 32), (8, 64, 32)):
        N, blocks = 6, -(-K // block)
        w = c.whole(np.uint8, N, blocks, block * bits // 8)
        s = np.abs(c.real(N * blocks)) * F(0.1)
        z = c.whole(np.uint8, N * (-(-blocks * bits // 8)))
        for more in ([], [z], [None, None, c.real(N)]):
            ms("MatMulNBits", [c.real(2, 3, K), w, s, *more], fixed=[i for i in range(1, 3 + len(more)) if i < 3 or more[i - 3] is not None],
               K=K, N=N, bits=bits, block_size=block)
    ids = c.whole(np.int32, 2, 5, low=0, high=9)
    ms("EmbedLayerNormalization", [ids, c.whole(np.int32, 2, 5, low=0, high=1), c.real(10, 8), c.real(7, 8), c.real(2, 8), scale, b,
                                   np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)], outputs=2)
    ms("NhwcMaxPool", [c.whole(np.uint8, 1, 5, 6, 3)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    quantized(c, ms)


def attention(c, ms):
    H, D = 2, 4
    q, k, v = c.real(2, 3, H * D), c.real(2, 5, H * D), c.real(2, 5, H * D)
    ms("MultiHeadAttention", [q, k, v], num_heads=H)
    ms("MultiHeadAttention", [q, k, v, c.real(3 * H * D)], num_heads=H, scale=0.3)
    ms("MultiHeadAttention", [q, k, v, None, np.array([5, 3], np.int32)], num_heads=H)
    ms("MultiHeadAttention", [q, k, v, None, np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], np.int32), c.real(2, H, 3, 5)], num_heads=H)
    ms("MultiHeadAttention", [q, q, q, None, None, None, c.real(2, H, 4, D), c.real(2, H, 4, D)], num_heads=H, outputs=3, unidirectional=1)
    x, w, b = c.real(2, 3, 8), c.real(8, 24), c.real(24)
    ms("Attention", [x, w, b], num_heads=H, fixed=[1, 2])
    ms("Attention", [x, w, b], num_heads=H, unidirectional=1)
    ms("Attention", [x, w, b, np.array([[1, 1, 0], [1, 1, 1]], np.int32)], num_heads=H)
    ms("Attention", [x, w, b, None, c.real(2, 2, H, 4, D)], num_heads=H, unidirectional=1, outputs=2)


def grouped(c, ms, angle):
    H, KV, D = 4, 2, 16
    cache = [np.tile(f(angle), (1, 2)) for f in (np.cos, np.sin)]

    def gqa(T, past, total, rows, packed=False, **more):
        B = len(rows)
        qkv = [c.real(B, T, (H + 2 * KV) * D), None, None] if packed else [c.real(B, T, H * D), c.real(B, T, KV * D), c.real(B, T, KV * D)]
        rotary = cache if more.get("do_rotary") else [None, None]
        ms("GroupQueryAttention", [*qkv, c.real(B, KV, past, D), c.real(B, KV, past, D), np.array(rows, np.int32) - 1,
                                   np.array(total, np.int32), *rotary], num_heads=H, kv_num_heads=KV, outputs=3, **more)

    gqa(3, 0, 3, [3, 3])
    gqa(3, 0, 3, [3, 3], packed=True, do_rotary=1)
    gqa(1, 4, 5, [5, 5], do_rotary=1, rotary_interleaved=1)
    gqa(1, 4, 5, [5, 5], softcap=2.0, scale=0.3)
    gqa(1, 6, 7, [7, 7], local_window_size=3)


def quantized(c, ms):
    s, u8, i8 = np.array(0.05, F), np.uint8, np.int8
    z = np.array(120, u8)
    x, y = c.whole(u8, 2, 3, 4), c.whole(u8, 2, 3, 4)
    big, mid = np.array(0.11, F), np.array(100, u8)
    ms("QLinearAdd", [x, s, z, y, big, mid, big, z])
    ms("QLinearMul", [x, s, z, y[:1, :1], big, mid, big, z])
    ms("QLinearAdd", [c.whole(i8, 4), s, np.array(-3, i8), c.whole(i8, 4), big, np.array(5, i8), big, np.array(0, i8)])
    ms("QLinearSigmoid", [x, s, z, np.array(1 / 256, F), np.array(0, u8)])
    ms("QLinearLeakyRelu", [x, s, z, big, mid], alpha=0.3)
    ms("QLinearSoftmax", [x, s, z, np.array(1 / 256, F), np.array(0, u8)], axis=-1, also={"opset": 13})
    ms("QLinearConcat", [big, mid, x, s, z, y, big, mid], axis=1)
    image = c.whole(u8, 1, 3, 6, 6)
    ms("QLinearAveragePool", [image, s, z, s, z], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    ms("QLinearGlobalAveragePool", [image, s, z, np.array(0.01, F), z])
    ms("QLinearGlobalAveragePool", [c.whole(u8, 1, 6, 6, 3), s, z, np.array(0.01, F), z], channels_last=1)
    a, w = c.whole(u8, 4, 6), c.whole(i8, 6, 5)
    ws = np.abs(c.real(5)) * F(0.1)
    ms("QGemm", [a, s, z, w, np.array(0.02, F), np.array(0, i8), c.whole(np.int32, 5, low=-99, high=99)], fixed=[3, 4, 5, 6])
    ms("QGemm", [a, s, z, w.T.copy(), np.array(0.02, F), np.array(0, i8), None, big, mid], transB=1)
    ms("DynamicQuantizeMatMul", [c.real(4, 6), w, np.array(0.02, F), np.array(3, i8), c.real(5)], fixed=[1, 2, 3, 4])
    ms("MatMulIntegerToFloat", [a, w, s, ws, z, np.zeros(5, i8), c.real(5)], fixed=[1, 3, 5, 6])
    ms("MatMulIntegerToFloat", [a, w, s, np.array(0.02, F), z])


def trees(kind, count, targets, rng, ids=None):
    """Attributes of `count` trees of three nodes and four leaves each."""
    nodes = {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "missing_value_tracks_true")}
    votes = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"]
    for t in range(count):
        for i in range(7):
            inner = i < 3
            row = (t, i, int(rng.integers(4)) if inner else 0, float(rng.standard_normal()) if inner else 0.0,
                   modes[(t + i) % 4] if inner else "LEAF", 2 * i + 1 if inner else 0, 2 * i + 2 if inner else 0, i % 2)
            for key, v in zip(nodes, row):
                nodes[key].append(v)
            if not inner:
                row = (t, i, int(rng.integers(targets)) if ids is None else ids, float(rng.random()))
                for key, v in zip(votes, row):
                    votes[key].append(v)
    return {f"nodes_{k}": v for k, v in nodes.items()} | {f"{kind}_{k}": v for k, v in votes.items()}


def learned(c):
    """ai.onnx.ml."""
    def ml(op, inputs, **more):
        c.node(op, inputs, domain="ai.onnx.ml", **more)

    x = c.real(5, 4)
    gaps = x.copy()
    gaps[1, 2] = np.nan
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        ml("TreeEnsembleRegressor", [gaps], n_targets=2, aggregate_function=how, base_values=[0.5, -1.0], **trees("target", 6, 2, c.rng))
    for how in ("NONE", "SOFTMAX", "LOGISTIC"):
        ml("TreeEnsembleClassifier", [x], outputs=2, post_transform=how, classlabels_int64s=[7, 3, 5], **trees("class", 6, 3, c.rng))
        for one in (0, 1):
            ml("TreeEnsembleClassifier", [x], outputs=2, post_transform=how, classlabels_int64s=[4, 9], **trees("class", 1, 2, c.rng, ids=one))
        weights = [float(v) for v in c.real(12)]
        ml("LinearClassifier", [x], outputs=2, post_transform=how, classlabels_ints=[1, 4, 6], coefficients=weights, intercepts=[0.1, 0.2, -0.3])
        ml("LinearRegressor", [x], post_transform=how, coefficients=weights, intercepts=[0.1, 0.2, -0.3], targets=3)
    ml("Scaler", [x], offset=[0.1, 0.2, 0.3, 0.4], scale=[2.0, 1.0, 0.5, 3.0])
    for how in ("MAX", "L1", "L2"):
        ml("Normalizer", [np.abs(x)], norm=how)
    ml("Binarizer", [x], threshold=0.3)
    ml("Imputer", [gaps], imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=float("nan"))
    ml("OneHotEncoder", [np.array([3, 1, 8], I)], cats_int64s=[1, 3, 5], zeros=1)
    ml("ArrayFeatureExtractor", [x, np.array([2, 0], I)])
    ml("LabelEncoder", [np.array([3, 1, 8], I)], keys_int64s=[1, 3], values_floats=[0.5, 2.5], default_float=9.0)
    ml("LabelEncoder", [np.array([3, 1, 8], F)], keys_floats=[1.0, 3.0], values_int64s=[5, 2])


def traps(c):
    """What changed between opsets, and what importers get wrong."""
    x = c.real(2, 3, 4)
    # Before opset 7 the second operand broadcasts from an axis.
    c.node("Add", [x, np.arange(3, dtype=F)], opset=6, broadcast=1, axis=1, want=[x + np.arange(3, dtype=F)[:, None]])
    c.node("Mul", [x, np.arange(4, dtype=F)], opset=6, broadcast=1, want=[x * np.arange(4, dtype=F)])
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        c.node(op, [x], opset=11)
        c.node(op, [x], opset=11, axis=2)
        c.node(op, [x], opset=13)
    c.node("Slice", [x], opset=9, starts=[0, 1], ends=[BIG, 3], axes=[0, 2])
    c.node("Slice", [x, np.array([3, BIG], I), np.array([-BIG - 1, -BIG], I), np.array([2, 1], I), np.array([-2, -1], I)], opset=13)
    c.node("Slice", [x, np.array([-1], I), np.array([-3], I), np.array([-1], I), np.array([-1], I)], opset=13)
    c.node("Squeeze", [c.real(1, 3, 1)], opset=11, axes=[0])
    c.node("Squeeze", [c.real(1, 3, 1)], opset=13)
    c.node("Unsqueeze", [x], opset=11, axes=[0, 4])
    c.node("Split", [x], opset=11, axis=1, split=[1, 2], outputs=2)
    c.node("Split", [c.real(7)], opset=18, num_outputs=4, outputs=4)
    for op in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2", "ReduceLogSumExp"):
        c.node(op, [x], opset=11, axes=[-1, 0], keepdims=0)
        c.node(op, [x, np.array([1], I)], opset=18)
        c.node(op, [x, np.array([], I)], opset=18, noop_with_empty_axes=1)
    c.node("Clip", [x], opset=6, min=-0.5, max=0.25)
    c.node("Clip", [x, np.array(0.5, F), np.array(-0.5, F)], opset=13)
    c.node("Clip", [x, None, np.array(-0.5, F)], opset=13)
    c.node("Pad", [x], opset=2, pads=[0, 1, 0, 1, 0, 2], value=2.0)
    for mode in ("reflect", "edge"):
        c.node("Pad", [x, np.array([0, 1, 2, 1, 1, 1], I)], opset=11, mode=mode) if mode == "edge" else \
            c.node("Pad", [x, np.array([0, 1, 2, 0, 1, 1], I)], opset=11, mode=mode)
    c.node("Pad", [x, np.array([-1, 1], I), np.array(3, F), np.array([1], I)], opset=18)
    c.node("Pad", [x, np.array([5, 3], I), None, np.array([2], I)], opset=19, mode="wrap", want=[np.pad(x, ((0, 0), (0, 0), (5, 3)), "wrap")])
    c.node("TopK", [x], opset=9, k=2, outputs=2)
    c.node("TopK", [np.array([1, 3, 3, 2, 3], F), np.array([2], I)], opset=11, outputs=2)
    c.node("Dropout", [x], opset=7)
    c.node("Upsample", [c.real(1, 1, 2, 3)], opset=7, scales=[1.0, 1.0, 2.0, 2.0], mode="nearest")
    c.node("Upsample", [c.real(1, 1, 2, 3), np.array([1, 1, 2, 2], F)], opset=9, mode="linear")
    c.node("Resize", [c.real(1, 1, 3, 4), np.array([1, 1, 1.5, 0.6], F)], opset=10, mode="linear")
    for mode in ("nearest", "linear", "cubic"):
        # The given scale counts, though the size is rounded down; ONNX Runtime has another rule for align_corners.
        for how in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
            c.node("Resize", [c.real(1, 1, 5, 4), None, np.array([1, 1, 0.6, 1.5 if how == "align_corners" else 1.7], F)],
                   opset=13, mode=mode, coordinate_transformation_mode=how)
    c.node("BatchNormalization", [c.real(2, 3, 4), c.real(3), c.real(3), c.real(3), np.abs(c.real(3))], opset=7)
    c.node("BatchNormalization", [c.real(2, 3, 4), c.real(3), c.real(3), c.real(3), np.abs(c.real(3))], opset=14)
    c.node("GridSample", [c.real(1, 2, 4, 5), c.real(1, 3, 2, 2) * F(0.6)], opset=16, mode="bilinear", padding_mode="reflection")
    c.node("GridSample", [c.real(1, 2, 4, 5), c.real(1, 3, 2, 2) * F(0.6)], opset=16, mode="bicubic", align_corners=1)
    c.node("GroupNormalization", [c.real(2, 4, 3), c.real(4), c.real(4)], opset=21, num_groups=2)
    windows(c)
    shapes(c)
    integers(c)
    recurrences(c)


def windows(c):
    x, w = c.real(1, 2, 6, 7), c.real(3, 2, 3, 2)
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        c.node("Conv", [x, w], opset=11, auto_pad=pad, strides=[2, 2])
        c.node("MaxPool", [x], opset=12, auto_pad=pad, kernel_shape=[3, 2], strides=[2, 2])
        c.node("ConvTranspose", [x, c.real(2, 3, 3, 3)], opset=11, auto_pad=pad, strides=[2, 2])
    c.node("MaxPool", [x], opset=8, kernel_shape=[2, 2], outputs=2)
    c.node("MaxPool", [x], opset=12, kernel_shape=[2, 2], outputs=2, storage_order=1)
    for op, more in (("MaxPool", {}), ("AveragePool", {"count_include_pad": 1}), ("AveragePool", {})):
        c.node(op, [c.real(1, 1, 4, 4)], opset=12 if op == "MaxPool" else 11, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, **more)
    c.node("MaxPool", [c.whole(np.int8, 1, 1, 5, 5)], opset=12, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    c.node("ConvTranspose", [x, c.real(2, 3, 3, 3)], opset=11, output_shape=[13, 16], strides=[2, 2])
    c.node("ConvTranspose", [x, c.real(2, 3, 3, 3)], opset=11, output_padding=[1, 1], strides=[2, 2], pads=[1, 0, 1, 0])


def shapes(c):
    x = c.real(2, 3, 4)
    c.node("Reshape", [x, np.array([0, -1], I)], opset=13)
    c.node("Reshape", [np.zeros((0, 3), F), np.array([3, 0], I)], opset=14, allowzero=1)
    c.node("Expand", [c.real(3, 1), np.array([2, 1, 4], I)], opset=13)
    c.node("OneHot", [np.array([0, -1, 5, -6], I), np.array(4, I), np.array([2, 5], F)], opset=11)
    c.node("OneHot", [np.array([1.0, 2.0], F), np.array(3, I), np.array([0, 1], I)], opset=11, axis=0)
    c.node("Gather", [x, np.array([[-1, 0]], I)], opset=13, axis=1)
    c.node("GatherND", [x, np.array([[2], [-1]], I)], opset=12, batch_dims=1)
    c.node("ScatterND", [x, np.array([[0, 1], [0, 1]], I), c.real(2, 4)], opset=16, reduction="add")
    c.node("ScatterElements", [x, np.array([[[0, -1]]], I), c.real(1, 1, 2)], opset=11, axis=2)
    c.node("NonMaxSuppression", [c.real(1, 4, 4), c.real(1, 2, 4)], opset=11)
    c.node("NonMaxSuppression", [np.abs(c.real(1, 6, 4)), c.real(1, 2, 6), np.array([3], I), np.array([0.3], F), np.array([0.1], F)], opset=11)
    c.node("RoiAlign", [c.real(2, 3, 8, 8), np.array([[1, 1, 5, 6], [0, 0, 3, 2]], F), np.array([0, 1], I)], opset=10, output_height=2, output_width=3, sampling_ratio=2)
    c.node("RoiAlign", [c.real(2, 3, 8, 8), np.array([[1, 1, 5, 6], [0, 0, 3, 2]], F), np.array([1, 0], I)], opset=16, output_height=2, output_width=3, spatial_scale=0.5)
    c.node("CumSum", [x, np.array(1, I)], opset=14, exclusive=1, reverse=1)
    c.node("ArgMax", [np.array([[1, 3, 3]], F)], opset=13, axis=1, select_last_index=1)
    c.node("Range", [np.array(5, I), np.array(0, I), np.array(-2, I)], opset=11)
    c.node("Trilu", [x, np.array(-1, I)], opset=14, upper=0)
    loop = helper.make_graph([helper.make_node("Identity", ["k"], ["k2"]), helper.make_node("Add", ["s", "s"], ["s2"]),
                              helper.make_node("Identity", ["s2"], ["scan"])], "body",
                             [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("k", TensorProto.BOOL, []),
                              helper.make_tensor_value_info("s", TensorProto.FLOAT, [2])],
                             [helper.make_tensor_value_info("k2", TensorProto.BOOL, []), helper.make_tensor_value_info("s2", TensorProto.FLOAT, [2]),
                              helper.make_tensor_value_info("scan", TensorProto.FLOAT, [2])])
    for rounds in (0, 3):
        c.node("Loop", [np.array(rounds, I), np.array(True), c.real(2)], opset=13, outputs=2, body=loop)
    dims = helper.make_sparse_tensor(helper.make_tensor("w", TensorProto.FLOAT, [2], [3.0, 5.0]),
                                     helper.make_tensor("", TensorProto.INT64, [2], [1, 5]), [2, 3])
    c.graph("Sparse", [helper.make_node("Add", ["x", "w"], ["y"])], {"x": c.real(2, 3)}, ["y"], sparse=[dims])


def integers(c):
    c.node("Div", [np.array([-7, 7, -8], np.int32), np.array([2, -2, 3], np.int32)], opset=13)
    c.node("Pow", [np.array([2, 3, -2], np.int32), np.array([2.5, 2, 3], F)], opset=13)
    c.node("Mod", [np.array([-7, 7, -8], I), np.array([3, -3, 5], I)], opset=13)
    c.node("Mod", [np.array([-7.5, 7, -8], F), np.array([3, -3, 5], F)], opset=13, fmod=1)
    s, z = np.array(0.5, F), np.array(3, np.uint8)
    c.node("QuantizeLinear", [np.array([-3, 0.25, 0.75, 1.25, 900], F), s, z], opset=13)
    c.node("QuantizeLinear", [c.real(2, 3, 2) * F(9), np.array([0.1, 0.2, 0.3], F), np.array([1, -2, 3], np.int8)], opset=13, axis=1)
    c.node("DequantizeLinear", [c.whole(np.int8, 2, 3), np.array([0.1, 0.2, 0.3], F), np.array([1, -2, 3], np.int8)], opset=13, axis=1)
    c.node("DequantizeLinear", [c.whole(np.int32, 4, low=-99, high=99), s], opset=10)
    c.node("DynamicQuantizeLinear", [np.zeros(4, F)], opset=11, outputs=3)
    c.node("DynamicQuantizeLinear", [c.real(3, 4)], opset=11, outputs=3)
    a, w = c.whole(np.uint8, 3, 40), c.whole(np.int8, 40, 5)
    az, wz = np.array(130, np.uint8), np.array(-3, np.int8)
    c.node("MatMulInteger", [a, w, az, wz], opset=10)
    c.node("MatMulInteger", [a, w, az], opset=10, fixed=[1, 2])
    c.node("QLinearMatMul", [a, s, az, w, np.abs(c.real(5)), np.zeros(5, np.int8), np.array(300, F), z], opset=10, fixed=[1, 2, 3, 4, 5, 6, 7])
    x, k = c.whole(np.uint8, 1, 4, 6, 5), c.whole(np.int8, 6, 2, 3, 3)
    for pads in ([1, 1, 1, 1], [0, 1, 2, 0]):
        c.node("ConvInteger", [x, k, az], opset=10, pads=pads, group=2, fixed=[1])
        c.node("QLinearConv", [x, s, az, k, np.abs(c.real(6)), np.zeros(6, np.int8), np.array(150, F), z, c.whole(np.int32, 6, low=-999, high=999)],
               opset=10, pads=pads, group=2, strides=[2, 1], fixed=[1, 2, 3, 4, 5, 6, 7, 8])
    c.node("QLinearConv", [x, s, az, c.whole(np.uint8, 6, 4, 3, 3), s, np.array(128, np.uint8), np.array(150, F), z], opset=10)


def recurrences(c):
    T, B, X, H = 4, 3, 5, 2
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for direction, D in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            base = [c.real(T, B, X), c.real(D, gates * H, X), c.real(D, gates * H, H), c.real(D, 2 * gates * H)]
            lengths, h = np.array([4, 2, 3], np.int32), c.real(D, B, H)
            state = [h, c.real(D, B, H)] if op == "LSTM" else [h]
            outs = 3 if op == "LSTM" else 2
            c.node(op, [*base, lengths, *state], opset=14, hidden_size=H, direction=direction, outputs=outs)
            names = {"LSTM": ["HardSigmoid", "Softsign", "Tanh"], "GRU": ["Sigmoid", "ScaledTanh"], "RNN": ["Affine"]}[op]
            more = {"LSTM": dict(activation_alpha=[0.3] * D, activation_beta=[0.4] * D), "GRU": dict(activation_alpha=[0.9] * D, activation_beta=[0.7] * D),
                    "RNN": dict(activation_alpha=[0.5] * D, activation_beta=[0.1] * D)}[op]
            c.node(op, [*base, None, *state], opset=14, hidden_size=H, direction=direction, outputs=outs, activations=names * D, clip=0.7, **more)
        if op == "GRU":
            c.node(op, base, opset=14, hidden_size=H, direction="bidirectional", outputs=2, linear_before_reset=1)
        if op == "LSTM":
            c.node(op, [*base, None, None, None, c.real(2, 3 * H)], opset=14, hidden_size=H, direction="bidirectional", outputs=3)
