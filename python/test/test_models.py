"""Networks of C as Modules, generation, and checkpoints."""
import copy
import os
import pickle
import tempfile
import unittest

import tenon as tn
from tenon import models, nn, optim

SMALL = dict(layers=2, heads=2, width=16, vocab=11, context_length=32, dropout=0.0)


class Networks(unittest.TestCase):
    def test_names_modes_and_forward(self):
        net = models.mlp(4, 8, 3)
        self.assertEqual([n for n, _ in net.named_parameters()], ["1.weight", "1.bias", "3.weight", "3.bias"])
        self.assertEqual(list(net.state_dict()), [n for n, _ in net.named_parameters()])
        twin = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        twin.load_state_dict(net.state_dict())
        x = tn.randn(5, 4)
        for a, b in zip(net(x).flatten().tolist(), twin(x).flatten().tolist()):
            self.assertAlmostEqual(a, b, places=5)
        res = models.resnet(20)
        self.assertIn("layer1.0.conv1.weight", dict(res.named_parameters()))
        self.assertIn("bn1.running_mean", dict(res.named_buffers()))
        self.assertTrue(res.training)
        res.eval()
        self.assertFalse(tn._c.layer_training(res._handle))
        self.assertFalse(tn._c.layer_training(tn._c.layer_find_child(res._handle, "bn1")))
        self.assertEqual(res.layer1(tn.zeros(1, 16, 8, 8)).shape, (1, 16, 8, 8))
        self.assertIn("layer1", str(res.summary(tn.zeros(1, 3, 32, 32))))

    def test_networks_for_images(self):
        x = tn.randn(2, 3, 32, 32)
        nets = (models.mobilenet_v2(classes=5), models.vit(size=32, patch=16, layers=1, heads=2, width=8, classes=5),
                models.convnext(blocks=[1, 1, 1, 1], width=4, classes=5))
        for net in nets:
            self.assertEqual(net(x).shape, (2, 5))
        self.assertEqual(models.unet(levels=3, width=4, classes=5)(x).shape, (2, 5, 32, 32))
        self.assertIn("encoder.layers.encoder_layer_0.self_attention.in_proj_weight", dict(nets[1].named_parameters()))

    def test_training_freezing_and_types(self):
        net = models.mlp(2, 2)
        before = net.state_dict()["1.weight"].tolist()
        opt = optim.SGD(net, lr=0.1)
        opt.step((net(tn.ones(3, 2)) ** 2).sum())
        self.assertNotEqual(net.state_dict()["1.weight"].tolist(), before)
        net.freeze()
        self.assertFalse(net(tn.ones(1, 2)).requires_grad)
        net.freeze(False)
        net.half()
        self.assertEqual(net(tn.ones(1, 2).half()).dtype, tn.float16)
        self.assertEqual(dict(net.named_parameters())["1.weight"].dtype, tn.float16)
        self.assertTrue(dict(net.named_parameters())["1.weight"].requires_grad)

    def test_copies(self):
        net = models.gpt2(**SMALL)
        tokens = tn.tensor([[1, 2, 3]])
        for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            self.assertEqual(twin(tokens).tolist(), net(tokens).tolist())
            twin.get_parameter("transformer.wte.weight").data.zero_()
        self.assertNotEqual(net.get_parameter("transformer.wte.weight").abs().sum().item(), 0)

    def test_a_layer_keeps_its_network_alive(self):
        layer = models.mlp(4, 8, 3).get_submodule("1")
        self.assertEqual(layer(tn.ones(1, 4)).shape, (1, 8))
        with self.assertRaises(tn.ShapeError):
            layer(tn.ones(1, 5))

    def test_generation(self):
        tn.manual_seed(3)
        net = models.gpt2(**SMALL).eval()
        prompts = [[1, 2, 3], [4]]
        new = net.generate(prompts, 6)
        self.assertEqual([len(row) for row in new], [6, 6])
        # One token at a time by hand gives the same ones.
        row = list(prompts[0])
        for _ in range(6):
            row.append(int(net(tn.tensor([row]))[0, -1].argmax()))
        self.assertEqual(new[0], row[3:])
        self.assertEqual(net.generate(prompts, 6, use_cache=False), new)
        self.assertEqual(net.generate([1, 2, 3], 6), new[0])
        self.assertEqual(net.generate(tn.tensor([[1, 2, 3]]), 6), [new[0]])
        self.assertEqual(net.generate([1, 2, 3], 6, stop=new[0][2]), new[0][:new[0].index(new[0][2])])
        drawn = net.generate(prompts, 6, temperature=1.0, top_k=5, seed=7)
        self.assertEqual(net.generate(prompts, 6, temperature=1.0, top_k=5, seed=7), drawn)

    def test_a_listener_hears_every_token_and_may_end_it(self):
        net = models.gpt2(**SMALL).eval()
        heard = []
        new = net.generate([[1, 2]], 5, on_token=lambda row, token: heard.append((row, token)))
        self.assertEqual(heard, [(0, t) for t in new[0]])
        self.assertLess(len(net.generate([1, 2], 20, on_token=lambda row, token: False)), 20)
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            net.generate([1, 2], 20, on_token=lambda row, token: 1 / 0)
        with self.assertRaises(tn.Error):
            net.generate([1, 99], 2)
        with self.assertRaises(TypeError):
            net.generate("text")
        with self.assertRaises(TypeError):
            net.generate([1, "a"])
        self.assertEqual(net.generate([1, 2], 5), new[0])

    def test_caches(self):
        net = models.gpt2(**SMALL).eval()
        tokens = tn.tensor([[1, 2, 3, 4]])
        cache = net.cache(1, 8)
        net.forward_cached(tokens[:, :3], cache)
        last = net.forward_cached(tokens[:, 3:], cache)
        self.assertEqual(len(cache), 4)
        for a, b in zip(last[0, 0].tolist(), net(tokens)[0, 3].tolist()):
            self.assertAlmostEqual(a, b, places=5)
        cache.clear()
        self.assertEqual(len(cache), 0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.bn, self.b = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.b.weight.requires_grad_(False)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.b(self.bn(self.a(x))))


class Checkpoints(unittest.TestCase):
    def make(self):
        net = Net()
        return net, optim.AdamW([{"params": [net.a.weight, net.a.bias]}, {"params": net.bn.parameters(), "lr": 0.003}],
                                lr=0.01)

    def train(self, net, opt, data, steps):
        losses = []
        for _ in range(steps):
            x = next(data).x if hasattr(data, "__next__") else data.next(4).x
            loss = (net(x) ** 2).mean()
            opt.step(loss)
            losses.append(loss.item())
        return losses

    def test_a_run_resumes_exactly(self):
        fields = [tn.randn(20, 3), tn.arange(20)]
        data = tn.data.arrays(*fields)
        net, opt = self.make()
        self.train(net, opt, data, 3)
        opt.param_groups[1]["lr"] = 0.001
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.safetensors")
            tn.checkpoint.save(path, net, opt, data, step=3, user={"name": "a", "best": 0.5})
            after = self.train(net, opt, data, 4)
            other, opt2 = self.make()
            data2 = tn.data.arrays(*fields)
            loaded = tn.checkpoint.load(path, other, opt2, data2)
            self.assertEqual(loaded, (3, {"name": "a", "best": 0.5}))
            self.assertEqual([g["lr"] for g in opt2.param_groups], [0.01, 0.001])
            self.assertEqual(self.train(other, opt2, data2, 4), after)
            with self.assertRaises(tn.FormatError):
                tn.checkpoint.load(path, nn.Linear(3, 4), opt2, data2)
        with self.assertRaises(tn.FileError):
            tn.checkpoint.load("/nowhere/x", net)

    def test_files_of_modules(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.safetensors")
            net = models.gpt2(**SMALL)
            tn.save(net, path)
            twin = models.gpt2(**SMALL)
            twin.load_state_dict(tn.load(path))
            tokens = tn.tensor([[1, 2]])
            self.assertEqual(twin.eval()(tokens).tolist(), net.eval()(tokens).tolist())
            third = models.gpt2(**SMALL).load(path).eval()
            self.assertEqual(third(tokens).tolist(), net(tokens).tolist())


if __name__ == "__main__":
    unittest.main()
