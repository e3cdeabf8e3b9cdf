"""Modules, layers, losses and functions, judged against PyTorch where it is there and against numbers otherwise."""
import copy
import math
import pickle
import unittest

import tenon as tn
from tenon import nn

try:
    import numpy as np
    import torch
except ImportError:
    torch = None

needs_torch = unittest.skipUnless(torch, "PyTorch is not installed")


def flat(x):
    x = x.tolist()
    while isinstance(x, list) and x and isinstance(x[0], list):
        x = [v for row in x for v in row]
    return x if isinstance(x, list) else [x]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 2)
        self.scale = nn.Parameter(tn.ones(2))
        self.register_buffer("steps", tn.zeros(1))
        self.register_buffer("scratch", tn.zeros(1), persistent=False)

    def forward(self, x):
        return self.head(self.body(x)) * self.scale


class Modules(unittest.TestCase):
    def test_names_come_in_the_order_of_attributes(self):
        net = Net()
        self.assertEqual([n for n, _ in net.named_parameters()],
                         ["scale", "body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias", "head.weight",
                          "head.bias"])
        self.assertEqual([n for n, _ in net.named_modules()], ["", "body", "body.0", "body.1", "body.2", "head"])
        self.assertEqual([n for n, _ in net.named_children()], ["body", "head"])
        self.assertIn("body.1.running_mean", dict(net.named_buffers()))
        self.assertIn("steps", net.state_dict())
        self.assertNotIn("scratch", net.state_dict())
        self.assertIs(net.get_parameter("head.weight"), net.head.weight)
        self.assertIs(net.get_submodule("body.0"), net.body[0])

    def test_wrong_values_of_attributes_are_refused(self):
        net = Net()
        with self.assertRaisesRegex(TypeError, "parameter 'scale'"):
            net.scale = tn.ones(2)
        with self.assertRaisesRegex(TypeError, "module 'head'"):
            net.head = 3
        with self.assertRaisesRegex(TypeError, "buffer 'steps'"):
            net.steps = 3
        with self.assertRaises(KeyError):
            net.register_parameter("a.b", nn.Parameter(tn.ones(1)))
        with self.assertRaises(KeyError):
            net.register_buffer("forward", tn.ones(1))
        net.scale = None
        self.assertNotIn("scale", dict(net.named_parameters()))
        del net.head
        self.assertEqual([n for n, _ in net.named_children()], ["body"])

    def test_a_tied_parameter_counts_once(self):
        a = nn.Module()
        a.embed, a.out = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        a.out.weight = a.embed.weight
        self.assertEqual([n for n, _ in a.named_parameters()], ["embed.weight"])
        self.assertEqual(list(a.state_dict()), ["embed.weight", "out.weight"])
        b = copy.deepcopy(a)
        self.assertIs(b.out.weight, b.embed.weight)
        self.assertIsNot(b.out.weight, a.out.weight)
        b.load_state_dict({"embed.weight": tn.ones(10, 4)})
        self.assertEqual(b.out.weight.sum().item(), 40)
        b.half()
        self.assertIs(b.out.weight, b.embed.weight)
        self.assertEqual(b.out.weight.dtype, tn.float16)

    def test_state_is_loaded_whole_or_not_at_all(self):
        net, other = Net(), Net()
        before = net.head.weight.tolist()
        state = other.state_dict()
        state["head.bias"] = tn.zeros(3)
        with self.assertRaisesRegex(RuntimeError, r"head.bias is \(3,\) there, and \(2,\) here"):
            net.load_state_dict(state)
        self.assertEqual(net.head.weight.tolist(), before)
        state = other.state_dict()
        del state["scale"]
        state["more"] = tn.zeros(1)
        with self.assertRaisesRegex(RuntimeError, "unexpected names: more; missing names: scale"):
            net.load_state_dict(state)
        result = net.load_state_dict(state, strict=False)
        self.assertEqual((result.missing_keys, result.unexpected_keys), (["scale"], ["more"]))
        self.assertEqual(net.head.weight.tolist(), other.head.weight.tolist())
        self.assertIsInstance(net.head.weight, nn.Parameter)

    def test_modes_hooks_and_freezing(self):
        net, seen = Net(), []
        net.eval()
        self.assertFalse(net.body[1].training)
        net.train()
        self.assertTrue(net.body[1].training)
        after = net.head.register_forward_hook(lambda m, args, y: seen.append(y.shape))
        before = net.head.register_forward_pre_hook(lambda m, args: (args[0] * 0,))
        y = net(tn.ones(3, 4))
        self.assertEqual(seen, [(3, 2)])
        self.assertEqual(y[0].tolist(), net.head.bias.tolist())
        after.remove()
        before.remove()
        net(tn.ones(3, 4))
        self.assertEqual(len(seen), 1)
        net.body.requires_grad_(False)
        net(tn.randn(3, 4)).sum().backward()
        self.assertIsNone(net.body[0].weight.grad)
        self.assertIsNotNone(net.head.weight.grad)
        net.zero_grad()
        self.assertIsNone(net.head.weight.grad)
        names = []
        net.apply(lambda m: names.append(type(m).__name__))
        self.assertEqual(names[-1], "Net")

    def test_pickle_and_deepcopy_keep_values_and_classes(self):
        net = Net()
        net(tn.randn(5, 4))
        for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            self.assertEqual(list(twin.state_dict()), list(net.state_dict()))
            self.assertIsInstance(twin.head.weight, nn.Parameter)
            self.assertTrue(twin.head.weight.requires_grad)
            self.assertEqual(twin.eval()(tn.ones(1, 4)).tolist(), net.eval()(tn.ones(1, 4)).tolist())
            twin.head.weight.data = tn.zeros(2, 8)
            self.assertNotEqual(net.head.weight.abs().sum().item(), 0)

    def test_an_error_names_the_module(self):
        with self.assertRaises(tn.ShapeError) as caught:
            Net()(tn.ones(3, 5))
        self.assertEqual(caught.exception.layer, "body.0")
        self.assertTrue(any("Net.body.0: Linear(in_features=4" in n for n in caught.exception.__notes__))

    def test_texts(self):
        self.assertEqual(repr(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU())),
                         "Sequential(\n  (0): Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))\n"
                         "  (1): ReLU()\n)")
        net = Net()
        text = str(net.summary(tn.zeros(3, 4)))
        self.assertIn("body.0  Linear       (3, 8)          40", text)
        self.assertIn("76 parameters", text)
        self.assertTrue(net.training)
        self.assertIn("<td>body.0</td>", net._repr_html_())

    def test_lists_and_dicts_of_modules(self):
        layers = nn.ModuleList([nn.Linear(2, 2)])
        layers.append(nn.ReLU()).extend([nn.Tanh(), nn.Tanh()])
        layers.insert(0, nn.Identity())
        self.assertEqual([n for n, _ in layers.named_children()], ["0", "1", "2", "3", "4"])
        del layers[0]
        self.assertIsInstance(layers[0], nn.Linear)
        self.assertIsInstance(layers[-1], nn.Tanh)
        self.assertEqual(len(layers[1:3]), 2)
        with self.assertRaises(IndexError):
            layers[4]
        with self.assertRaises(TypeError):
            layers.append(3)
        d = nn.ModuleDict({"keys": nn.Linear(1, 1)})
        d["b"] = nn.Linear(1, 2)
        self.assertEqual(list(d.state_dict()), ["keys.weight", "keys.bias", "b.weight", "b.bias"])
        self.assertIs(d.b, d["b"])
        self.assertEqual([p.shape for p in nn.ParameterList([tn.ones(2), tn.ones(3)]).parameters()], [(2,), (3,)])
        self.assertEqual(list(nn.ParameterDict({"a": tn.ones(2)}).state_dict()), ["a"])
        named = nn.Sequential({"a": nn.Linear(2, 3), "b": nn.Linear(3, 1)})
        self.assertEqual(named(tn.ones(1, 2)).shape, (1, 1))
        self.assertEqual(len(copy.deepcopy(d)), 2)

    def test_switches_of_autograd(self):
        w = nn.Parameter(tn.ones(2))

        @tn.no_grad()
        def frozen():
            return (w * 2).requires_grad

        @tn.no_grad
        def frozen_too():
            with tn.enable_grad():
                inner = (w * 2).requires_grad
            return inner, (w * 2).requires_grad

        self.assertFalse(frozen())
        self.assertEqual(frozen_too(), (True, False))
        with self.assertRaises(ZeroDivisionError), tn.no_grad():
            1 / 0
        self.assertTrue(tn.is_grad_enabled())
        with tn.set_grad_enabled(False):
            self.assertFalse(tn.is_grad_enabled())
        self.assertTrue(tn.is_grad_enabled())
        with tn.autocast(tn.bfloat16):
            self.assertEqual(tn.matmul(tn.ones(2, 2), tn.ones(2, 2)).dtype, tn.bfloat16)
        self.assertEqual(tn.matmul(tn.ones(2, 2), tn.ones(2, 2)).dtype, tn.float32)

    def test_batch_norm_by_hand(self):
        bn = nn.BatchNorm1d(1, momentum=0.5)
        y = bn(tn.tensor([[1.0], [3.0]]))
        for got, want in zip(flat(y), [-1, 1]):
            self.assertAlmostEqual(got, want, places=4)
        self.assertAlmostEqual(bn.running_mean.item(), 1.0)
        self.assertAlmostEqual(bn.running_var.item(), 0.5 + 0.5 * 2)
        self.assertEqual(bn.num_batches_tracked.item(), 1)
        self.assertAlmostEqual(bn.eval()(tn.tensor([[1.0]])).item(), 0, places=4)

    def test_initializers_have_their_distributions(self):
        w = nn.Parameter(tn.zeros(200, 300))
        for make, std, bound in [(lambda: nn.init.uniform_(w, -1, 3), 4 / math.sqrt(12), 3),
                                 (lambda: nn.init.normal_(w, 0, 2), 2, 99),
                                 (lambda: nn.init.xavier_uniform_(w), math.sqrt(2 / 500), math.sqrt(6 / 500)),
                                 (lambda: nn.init.xavier_normal_(w, 2), 2 * math.sqrt(2 / 500), 99),
                                 (lambda: nn.init.kaiming_uniform_(w, a=math.sqrt(5)), math.sqrt(1 / 900),
                                 1 / math.sqrt(300)), (lambda: nn.init.kaiming_normal_(w, mode="fan_out",
                                 nonlinearity="relu"), math.sqrt(2 / 200), 99), (lambda: nn.init.trunc_normal_(w, 0, 1,
                                 -2, 2), 0.8796, 2), (lambda: nn.init.trunc_normal_(w, 0, 1, -1, 1), 0.5396, 1)]:
            self.assertIs(make(), w)
            self.assertTrue(w.requires_grad)
            self.assertAlmostEqual(w.std().item() / std, 1, delta=0.02)
            self.assertLessEqual(w.abs().max().item(), bound * (1 + 1e-6))
        for shape in ((40, 40), (7, 3, 5), (30, 4), (1, 1)):
            w = nn.init.orthogonal_(nn.Parameter(tn.zeros(*shape)), gain=2.0).detach().reshape(shape[0], -1)
            square = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
            self.assertTrue(tn.allclose(square, 4 * tn.eye(square.shape[0]), atol=1e-4))
        self.assertEqual(nn.init.eye_(nn.Parameter(tn.zeros(2, 2))).tolist(), [[1, 0], [0, 1]])
        with self.assertRaises(ValueError):
            nn.init.xavier_uniform_(tn.zeros(3))

    def test_clipping_of_gradients(self):
        p = nn.Parameter(tn.tensor([3.0, 4.0]))
        (p * p).sum().backward()
        self.assertAlmostEqual(nn.utils.clip_grad_norm_([p], 5).item(), 10, places=5)
        self.assertAlmostEqual(p.grad.norm().item(), 5, places=4)
        nn.utils.clip_grad_value_([p], 1)
        self.assertEqual(p.grad.tolist(), [1, 1])

    def test_positions_and_gates(self):
        layer = nn.PositionalEncoding(4)
        y = layer(tn.zeros(2, 3, 4))
        for row in y.tolist():
            for t, values in enumerate(row):
                for have, want in zip(values, [math.sin(t), math.cos(t), math.sin(t / 100), math.cos(t / 100)]):
                    self.assertAlmostEqual(have, want, places=5)
        learned = nn.PositionalEncoding(4, length=3)
        self.assertEqual(learned(tn.zeros(2, 4)).tolist(), learned.weight[:2].tolist())
        with self.assertRaisesRegex(ValueError, "4 tokens, but there are 3 positions"):
            learned(tn.zeros(4, 4))
        mlp = nn.SwiGLU(4, 8)
        self.assertEqual(list(mlp.state_dict()), ["gate_proj.weight", "up_proj.weight", "down_proj.weight"])
        x = tn.ones(2, 4)
        want = mlp.down_proj(nn.functional.silu(mlp.gate_proj(x)) * mlp.up_proj(x))
        self.assertTrue(tn.allclose(mlp(x), want))
        with self.assertRaisesRegex(RuntimeError, "'weight' is normalized already"):
            nn.utils.weight_norm(nn.utils.weight_norm(nn.Linear(4, 3)))
        with self.assertRaisesRegex(ValueError, "is not normalized"):
            nn.utils.remove_weight_norm(nn.Linear(4, 3))
        pruned = nn.Linear(8, 4)
        mask = tn.prune_2_4(pruned.weight, True)
        nn.utils.prune.custom_from_mask(pruned, "weight", mask)
        self.assertEqual(sorted(pruned.state_dict()), ["bias", "weight_mask", "weight_orig"])
        opt = tn.optim.AdamW(pruned.parameters(), lr=0.1, weight_decay=0.1)
        for _ in range(3):
            opt.step((pruned(tn.ones(2, 8)) ** 2).sum())
        nn.utils.prune.remove(pruned, "weight")
        self.assertEqual((pruned.weight != 0).tolist(), mask.tolist())
        with self.assertRaisesRegex(ValueError, "is not one of"):
            nn.utils.prune.custom_from_mask(nn.Linear(4, 4), "weight", mask)
        one = nn.utils.spectral_norm(nn.Linear(4, 3), n_power_iterations=50)
        one(x)
        nn.utils.remove_spectral_norm(one)
        self.assertEqual(sorted(one.state_dict()), ["bias", "weight"])
        self.assertAlmostEqual(tn.linalg.svdvals(one.weight.detach()).max().item(), 1, places=3)


# ---- beside PyTorch: a layer's constructor, the shapes of its inputs, and options: ints (inputs are integers below
# it).

LAYERS = [
    ("Linear(5, 3)", [(2, 4, 5)]),
    ("Linear(5, 3, bias=False)", [(5,)]),
    ("Bilinear(4, 3, 5)", [(2, 4), (2, 3)]),
    ("Conv1d(3, 4, 3, stride=2, padding=1)", [(2, 3, 9)]),
    ("Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(1, 0), dilation=(2, 1), groups=2)", [(2, 4, 8, 7)]),
    ("Conv2d(3, 4, 3, padding='same', padding_mode='reflect')", [(2, 3, 6, 5)]),
    ("Conv2d(3, 4, 2, padding='same')", [(3, 6, 5)]),
    ("Conv2d(3, 4, 3, padding=(1, 2), padding_mode='circular')", [(2, 3, 6, 5)]),
    ("Conv2d(3, 4, 3, padding=(0, 2), padding_mode='replicate', bias=False)", [(2, 3, 6, 5)]),
    ("Conv3d(2, 3, (2, 3, 3), padding=(0, 1, 1))", [(2, 2, 4, 5, 5)]),
    ("ConvTranspose1d(3, 4, 3, stride=2, output_padding=1)", [(2, 3, 5)]),
    ("ConvTranspose2d(4, 6, 3, stride=(2, 1), padding=(1, 0), output_padding=(1, 0), groups=2)", [(2, 4, 5, 4)]),
    ("ConvTranspose3d(2, 3, 2, stride=2)", [(2, 2, 3, 3, 3)]),
    ("BatchNorm1d(4)", [(5, 4)]),
    ("BatchNorm1d(4, affine=False)", [(5, 4, 3)]),
    ("BatchNorm2d(3, momentum=None)", [(4, 3, 5, 5)]),
    ("BatchNorm3d(3, track_running_stats=False)", [(2, 3, 2, 3, 3)]),
    ("LayerNorm((3, 4), eps=1e-3)", [(2, 3, 4)]),
    ("LayerNorm(4, bias=False)", [(2, 3, 4)]),
    ("LayerNorm(4, elementwise_affine=False)", [(2, 3, 4)]),
    ("RMSNorm(4)", [(2, 3, 4)]),
    ("RMSNorm((3, 4), eps=1e-2)", [(2, 3, 4)]),
    ("GroupNorm(2, 4)", [(2, 4, 5)]),
    ("InstanceNorm2d(3, affine=True)", [(2, 3, 4, 5)]),
    ("Embedding(7, 4)", [(3, 5)], {"ints": 7}),
    ("Embedding(7, 4, padding_idx=2)", [(3, 5)], {"ints": 7}),
    ("MaxPool1d(3, 2)", [(2, 3, 9)]),
    ("MaxPool2d(3, stride=2, padding=1)", [(2, 3, 8, 7)]),
    ("MaxPool2d(2, ceil_mode=True)", [(2, 3, 7, 5)]),
    ("MaxPool2d(3, stride=3, padding=1, ceil_mode=True)", [(2, 3, 7, 5)]),
    ("AvgPool2d(3, stride=2, padding=1, ceil_mode=True)", [(2, 3, 8, 7)]),
    ("AvgPool3d(2, stride=3, ceil_mode=True, count_include_pad=False)", [(2, 2, 4, 4, 5)]),
    ("MaxPool3d(2)", [(2, 2, 4, 4, 5)]),
    ("AvgPool1d(3, stride=2, padding=1)", [(2, 3, 9)]),
    ("AvgPool2d((3, 2), stride=2, padding=1, count_include_pad=False)", [(2, 3, 8, 7)]),
    ("AvgPool2d(2, divisor_override=3)", [(3, 8, 7)]),
    ("AvgPool3d(2)", [(2, 2, 4, 4, 5)]),
    ("AdaptiveAvgPool2d((2, None))", [(2, 3, 5, 7)]),
    ("AdaptiveAvgPool1d(3)", [(2, 3, 7)]),
    ("AdaptiveMaxPool2d(2)", [(2, 3, 5, 7)]),
    ("Flatten(0, 1)", [(2, 3, 4)]),
    ("Unflatten(1, (2, 3))", [(2, 6, 4)]),
    ("Upsample(scale_factor=2)", [(2, 3, 4, 5)]),
    ("Upsample(size=(7, 3), mode='bilinear')", [(2, 3, 4, 5)]),
    ("Upsample(scale_factor=1.5, mode='bilinear', align_corners=True)", [(2, 3, 4, 6)]),
    ("PixelShuffle(2)", [(2, 8, 3, 4)]),
    ("ZeroPad2d((1, 0, 2, 1))", [(2, 3, 4, 4)]),
    ("CosineSimilarity()", [(3, 4), (3, 4)]),
    ("PairwiseDistance()", [(3, 4), (3, 4)]),
    ("PixelUnshuffle(2)", [(2, 3, 4, 6)]), ("ChannelShuffle(2)", [(2, 6, 3)]), ("LocalResponseNorm(3, alpha=0.5)", [(2,
    5, 3, 3)]), ("Unfold((2, 3), dilation=(2, 1), padding=1, stride=2)", [(2, 3, 7, 6)]),
    ("UpsamplingBilinear2d(scale_factor=2)", [(2, 3, 4, 5)]),
    ("ConstantPad1d(2, 1.5)", [(2, 3, 4)]), ("ReflectionPad2d((1, 2, 3, 0))", [(2, 3, 4, 5)]),
    ("ReplicationPad3d(1)", [(2, 2, 2, 3, 3)]), ("CircularPad1d((1, 3))", [(2, 3, 4)]),
    ("ReLU()", [(40,)]), ("ReLU6()", [(40,)]), ("LeakyReLU(0.2)", [(40,)]), ("ELU(0.5)", [(40,)]), ("SELU()", [(40,)]),
    ("CELU(0.7)", [(40,)]), ("GELU()", [(40,)]), ("GELU(approximate='tanh')", [(40,)]), ("SiLU()", [(40,)]),
    ("Mish()", [(40,)]), ("Sigmoid()", [(40,)]), ("Tanh()", [(40,)]), ("Softplus(beta=2)", [(40,)]),
    ("LogSigmoid()", [(40,)]), ("Softsign()", [(40,)]), ("Tanhshrink()", [(40,)]), ("Softshrink()", [(40,)]),
    ("Hardshrink()", [(40,)]), ("Hardtanh(-0.5, 0.7)", [(40,)]), ("Hardsigmoid()", [(40,)]), ("Hardswish()", [(40,)]),
    ("Threshold(0.1, 2.0)", [(40,)]), ("GLU()", [(4, 6)]), ("PReLU(4)", [(3, 4, 2)]), ("Softmax(dim=1)", [(3, 4, 2)]),
    ("Softmax()", [(3, 4)]), ("LogSoftmax(dim=-1)", [(3, 4)]), ("Softmin(dim=0)", [(3, 4)]), ("Softmax2d()", [(2, 3, 4,
    2)]), ("Sequential(nn.Linear(4, 3), nn.Tanh())", [(2, 4)]),
    ("RNN(3, 4, num_layers=2)", [(5, 2, 3)]),
    ("RNN(3, 4, nonlinearity='relu', bias=False)", [(5, 2, 3), (1, 2, 4)]),
    ("LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)", [(2, 5, 3)]),
    ("LSTM(3, 4)", [(5, 3)]),
    ("GRU(3, 4, num_layers=2, bidirectional=True)", [(5, 2, 3), (4, 2, 4)]),
    ("RNNCell(3, 4)", [(2, 3), (2, 4)]), ("GRUCell(3, 4, bias=False)", [(2, 3), (2, 4)]), ("LSTMCell(3, 4)", [(2, 3)]),
    ("MultiheadAttention(8, 2, batch_first=True)", [(2, 5, 8), (2, 3, 8), (2, 3, 8)]),
    ("MultiheadAttention(8, 2, kdim=4, vdim=6, bias=False)", [(5, 2, 8), (3, 2, 4), (3, 2, 6)]),
    ("TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)", [(2, 5, 8)]),
    ("TransformerEncoderLayer(8, 2, 16, dropout=0.0, norm_first=True, activation='gelu')", [(5, 2, 8)]),
    ("Transformer(8, 2, 1, 1, 16, dropout=0.0)", [(4, 2, 8), (5, 2, 8)]),
    ("TransformerDecoderLayer(8, 2, 16, dropout=0.0)", [(5, 2, 8), (3, 2, 8)]),
    ("TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2, nn.LayerNorm(8))",
     [(2, 5, 8)]),
    ("InstanceNorm1d(3, track_running_stats=True)", [(2, 3, 4)]),
    ("InstanceNorm3d(3, track_running_stats=True).eval()", [(2, 3, 4, 1, 2)]),
    ("utils.weight_norm(nn.Linear(4, 3))", [(2, 4)]),
    ("utils.weight_norm(nn.Conv1d(4, 3, 2), dim=2)", [(2, 4, 5)]),
    ("utils.spectral_norm(nn.Linear(4, 3), n_power_iterations=2)", [(2, 4)]),
    ("utils.spectral_norm(nn.ConvTranspose2d(4, 3, 2)).eval()", [(2, 4, 5, 2)]),
    ("utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(4, 3), dim=1))", [(2, 4)]),
]

# A loss's constructor, how its two or three tensors are made, from a generator of NumPy.
LOSSES = [
    ("CrossEntropyLoss()", lambda r: (r.normal(size=(6, 5)), r.integers(0, 5, 6))),
    ("CrossEntropyLoss()", lambda r: (r.normal(size=5), r.integers(0, 5))),
    ("CrossEntropyLoss(label_smoothing=0.2, reduction='sum')", lambda r: (r.normal(size=(6, 5, 2)), r.integers(0, 5,
    (6, 2)))), ("CrossEntropyLoss(ignore_index=2, reduction='mean')", lambda r: (r.normal(size=(6, 5)), np.array([0, 2,
    2, 1, 4, 3]))), ("CrossEntropyLoss(torch.tensor([1., 2., 3., 4., 5.]))", lambda r: (r.normal(size=(6, 5)),
    r.integers(0, 5, 6))), ("CrossEntropyLoss()", lambda r: (r.normal(size=(6, 5)), r.dirichlet(np.ones(5), 6))),
    ("NLLLoss(reduction='none')", lambda r: (r.normal(size=(6, 5)), r.integers(0, 5, 6))),
    ("MSELoss()", lambda r: (r.normal(size=(3, 4)), r.normal(size=(3, 4)))),
    ("L1Loss(reduction='sum')", lambda r: (r.normal(size=(3, 4)), r.normal(size=(3, 4)))),
    ("HuberLoss(delta=0.5)", lambda r: (r.normal(size=(3, 4)), r.normal(size=(3, 4)))),
    ("SmoothL1Loss(beta=0.3)", lambda r: (r.normal(size=(3, 4)), r.normal(size=(3, 4)))),
    ("BCELoss()", lambda r: (r.uniform(0.1, 0.9, (3, 4)), r.uniform(size=(3, 4)))),
    ("BCEWithLogitsLoss(pos_weight=torch.tensor([1., 2., 3., 4.]))", lambda r: (r.normal(size=(3, 4)),
    r.uniform(size=(3, 4)))), ("KLDivLoss(reduction='batchmean')", lambda r: (np.log(r.dirichlet(np.ones(4), 3)),
    r.dirichlet(np.ones(4), 3))), ("MarginRankingLoss(margin=0.2)", lambda r: (r.normal(size=5), r.normal(size=5),
    np.array([1., -1, 1, 1, -1]))), ("HingeEmbeddingLoss()", lambda r: (r.normal(size=5), np.array([1., -1, 1, 1,
    -1]))), ("SoftMarginLoss()", lambda r: (r.normal(size=5), np.array([1., -1, 1, 1, -1]))),
    ("MultiLabelSoftMarginLoss()", lambda r: (r.normal(size=(3, 4)), r.integers(0, 2, (3, 4)).astype("f8"))),
    ("CosineEmbeddingLoss(margin=0.1)", lambda r: (r.normal(size=(3, 4)), r.normal(size=(3, 4)), np.array([1., -1,
    1]))), ("TripletMarginLoss()", lambda r: tuple(r.normal(size=(3, 4)) for _ in range(3))),
    ("PoissonNLLLoss()", lambda r: (r.normal(size=5), r.integers(0, 5, 5).astype("f8"))),
    ("GaussianNLLLoss(full=True)", lambda r: (r.normal(size=5), r.normal(size=5), r.uniform(0.1, 1, 5))),
]


@needs_torch
class BesideTorch(unittest.TestCase):
    def close(self, ours, theirs, what):
        theirs = theirs.detach().numpy()
        self.assertEqual(tuple(ours.shape), tuple(theirs.shape), what)
        np.testing.assert_allclose(np.array(ours.tolist()).reshape(theirs.shape), theirs, rtol=2e-4, atol=2e-5,
                                   err_msg=what)

    def pair(self, text):
        """The module of both libraries, with PyTorch's values, which have the same names."""
        theirs = eval("torch.nn." + text, {"torch": torch, "nn": torch.nn})
        ours = eval("nn." + text, {"nn": nn, "torch": tn})
        self.assertEqual(list(ours.state_dict()), list(theirs.state_dict()), text)
        self.assertEqual([n for n, _ in ours.named_parameters()], [n for n, _ in theirs.named_parameters()], text)
        for name, p in ours.named_parameters():
            self.same_distribution(p, theirs.get_parameter(name), f"{text}: {name}")
        with torch.no_grad():
            for p in theirs.parameters():  # constants, such as a bias of zeros, would hide mistakes
                p.add_(torch.rand(p.shape) * 0.1)
        ours.load_state_dict(theirs.state_dict())
        return ours, theirs

    def same_distribution(self, ours, theirs, what):
        """Constants are equal; random values have a spread that is as large, as far as so few tell."""
        self.assertEqual(ours.shape, tuple(theirs.shape), what)
        a, b = np.array(flat(ours)), theirs.detach().numpy().ravel()
        if a.size and np.ptp(b) == 0:
            np.testing.assert_array_equal(a, b, err_msg=what)
        elif a.size > 8:
            room = 3 / math.sqrt(a.size)
            self.assertLess(abs(math.log(a.std() / b.std())), room, what)
            self.assertLess(abs(a.mean() - b.mean()), 5 * b.std() / math.sqrt(a.size) + 1e-9, what)

    def run_both(self, text, ours, theirs, arrays, weights):
        """Outputs and gradients of both; weights multiply the outputs, so that gradients differ by element."""
        xs = [tn.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
        zs = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
        y, z = ours(*xs), theirs(*zs)
        y, z = flatten(y), flatten(z)  # an LSTM returns y, (h, c)
        total, other = 0, 0
        for a, b in zip(y, z):
            self.close(a, b, text)
            w = weights.normal(size=tuple(b.shape)).astype("f4")
            total, other = total + (a * tn.tensor(w)).sum(), other + (b * torch.tensor(w)).sum()
        if not other.requires_grad:
            return
        total.backward()
        other.backward()
        for x, v in zip(xs, zs):
            if v.grad is not None:
                self.close(x.grad, v.grad, text + ": gradient of an input")
        for (name, p), q in zip(ours.named_parameters(), theirs.parameters()):
            self.close(p.grad, q.grad, f"{text}: gradient of {name}")

    def test_layers(self):
        rng = np.random.default_rng(0)
        tn.manual_seed(1)
        torch.manual_seed(1)
        for text, shapes, *options in LAYERS:
            options = options[0] if options else {}
            with self.subTest(text):
                ours, theirs = self.pair(text)
                arrays = [rng.integers(0, options["ints"], s) if "ints" in options else rng.normal(size=s).astype("f4")
                          for s in shapes]
                if text.startswith(("Linear", "Conv", "MaxPool", "Embedding", "Flatten", "Dropout", "ReLU", "Leaky",
                                    "GELU")):
                    self.assertEqual(repr(ours), repr(theirs))
                self.run_both(text, ours, theirs, arrays, rng)
                for name, b in theirs.named_buffers():
                    self.close(ours.get_buffer(name), b, f"{text}: {name}")
                ours.eval(), theirs.eval()
                self.run_both(text + " in evaluation mode", ours, theirs, arrays,
                              rng) if not list(ours.parameters()) else \
                    self.close(first(ours(*[tn.tensor(a) for a in arrays])),
                               first(theirs(*[torch.tensor(a) for a in arrays])), text)

    def test_losses(self):
        rng = np.random.default_rng(0)
        for text, make in LOSSES:
            with self.subTest(text):
                ours = eval("nn." + text, {"nn": nn, "torch": tn})
                theirs = eval("torch.nn." + text)
                arrays = [np.asarray(a, dtype="f4" if np.asarray(a).dtype.kind == "f" else "i8") for a in make(rng)]
                self.assertEqual(list(ours.state_dict()), list(theirs.state_dict()))
                x, z = tn.tensor(arrays[0], requires_grad=True), torch.tensor(arrays[0], requires_grad=True)
                y = ours(x, *[tn.tensor(a) for a in arrays[1:]])
                t = theirs(z, *[torch.tensor(a) for a in arrays[1:]])
                self.close(y, t, text)
                y.sum().backward()
                t.sum().backward()
                self.close(x.grad, z.grad, text)

    def test_lengths_of_sequences(self):
        rng = np.random.default_rng(0)
        x, ends, pack = rng.normal(size=(5, 3, 4)).astype("f4"), [5, 2, 3], torch.nn.utils.rnn
        for text in ["LSTM(4, 3, num_layers=2, bidirectional=True)", "GRU(4, 3, bidirectional=True)", "RNN(4, 3)"]:
            ours, theirs = self.pair(text)
            packed = pack.pack_padded_sequence(torch.tensor(x), ends, enforce_sorted=False)
            y, t = ours(tn.tensor(x), lengths=ends), theirs(packed)
            for a, b in zip(flatten(y), flatten((pack.pad_packed_sequence(t[0])[0], t[1]))):
                self.close(a, b, text)

    def test_temporal_classification(self):
        rng = np.random.default_rng(0)
        logits, labels = rng.normal(size=(9, 3, 5)).astype("f4"), rng.integers(1, 5, (3, 4))
        for ends, counts, how in [([9, 8, 7], [4, 0, 2], {}), ([9, 3, 5], [2, 4, 3], dict(reduction="sum", zero_infinity=True)),
                                  ([9, 9, 9], [1, 4, 4], dict(reduction="none"))]:
            flat = np.concatenate([row[:n] for row, n in zip(labels, counts)])
            for target in [labels, flat]:
                x, z = tn.tensor(logits, requires_grad=True), torch.tensor(logits, requires_grad=True)
                y = nn.functional.ctc_loss(nn.functional.log_softmax(x, -1), tn.tensor(target), ends, counts, **how)
                f = torch.nn.functional
                t = f.ctc_loss(f.log_softmax(z, -1), torch.tensor(target), torch.tensor(ends), torch.tensor(counts), **how)
                self.close(y, t, str(how))
                y.sum().backward()
                t.sum().backward()
                self.close(x.grad, z.grad, str(how))

    def test_masks_of_attention(self):
        rng = np.random.default_rng(0)
        ours, theirs = self.pair("MultiheadAttention(8, 2, batch_first=True)")
        x = rng.normal(size=(2, 5, 8)).astype("f4")
        hidden = np.triu(np.ones((5, 5), bool), 1)
        padding = np.array([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]], bool)
        floats = rng.normal(size=(4, 5, 5)).astype("f4")
        for masks in [dict(attn_mask=hidden), dict(key_padding_mask=padding), dict(attn_mask=floats),
                      dict(attn_mask=hidden, key_padding_mask=padding),
                      dict(attn_mask=hidden, average_attn_weights=False)]:
            tensors = {n: m for n, m in masks.items() if isinstance(m, np.ndarray)}
            y, w = ours(*[tn.tensor(x)] * 3, **masks | {n: tn.tensor(m) for n, m in tensors.items()})
            z, v = theirs(*[torch.tensor(x)] * 3, **masks | {n: torch.tensor(m) for n, m in tensors.items()})
            self.close(y, z, str(list(masks)))
            self.close(w, v, str(list(masks)))

    def test_functions(self):
        rng = np.random.default_rng(0)
        a, b = (rng.normal(size=(2, 3, 4, 5)).astype("f4") for _ in range(2))
        for text in ["F.normalize(a, dim=-1)", "F.normalize(a, p=1.0)", "F.pad(a, (1, 2, 0, 3), value=2.5)",
                     "F.pad(a, (1, -1))", "F.pixel_unshuffle(a[:, :, :, :4], 2)", "F.pairwise_distance(a, b)",
                     "F.scaled_dot_product_attention(a, b, b, is_causal=True)",
                     "F.scaled_dot_product_attention(a, b, b, scale=0.3)", "F.interpolate(a, scale_factor=0.5)",
                     "F.interpolate(a, scale_factor=1.7, mode='bilinear')", "F.interpolate(a, (3, 9), mode='bicubic', antialias=True)",
                     "F.interpolate(a[0], 3, mode='area')", "F.grid_sample(a, b[..., :2], 'bicubic', align_corners=False)",
                     "F.grid_sample(a[:, None], b[:, :, None, :, :3], padding_mode='border', align_corners=True)",
                     "F.one_hot(a.argmax(dim=-1), 7)", "F.dropout(a, 0.5, training=False)",
                     "F.instance_norm(a)", "F.threshold(a, 0.0, 1.0)"]:
            with self.subTest(text):
                y = eval(text, {"F": nn.functional, "a": tn.tensor(a), "b": tn.tensor(b)})
                z = eval(text, {"F": torch.nn.functional, "a": torch.tensor(a), "b": torch.tensor(b)})
                self.close(y, z, text)

    def test_gumbel_softmax(self):
        x = tn.tensor([[2.0, 0.0, 0.0]] * 400, requires_grad=True)
        y = nn.functional.gumbel_softmax(x, hard=True)
        rows = np.array(y.tolist())
        self.assertTrue(np.allclose(rows.sum(1), 1) and np.allclose(rows.max(1), 1))
        self.assertLess(abs(rows[:, 0].mean() - math.exp(2) / (math.exp(2) + 2)), 0.08)
        (y * tn.tensor([1.0, 2.0, 3.0])).sum().backward()
        self.assertGreater(x.grad.abs().sum().item(), 0)

    def test_dropout_of_channels(self):
        y = np.array(nn.Dropout2d(0.5)(tn.ones(50, 8, 2, 2)).tolist())
        self.assertEqual(set(np.unique(y)), {0, 2})
        self.assertTrue((y == y[:, :, :1, :1]).all())
        self.assertLess(abs(y.mean() - 1), 0.2)


def flatten(y):
    return [t for v in y for t in flatten(v)] if isinstance(y, tuple) else [y]


def first(y):
    return y[0] if isinstance(y, tuple) else y


if __name__ == "__main__":
    unittest.main()
