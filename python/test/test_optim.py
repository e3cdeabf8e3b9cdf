"""Optimizers and schedules, judged against PyTorch where it is there and against numbers otherwise."""
import pickle
import unittest

import tenon as tn
from tenon import nn, optim
from tenon.optim import lr_scheduler

try:
    import numpy as np
    import torch
except ImportError:
    torch = None

needs_torch = unittest.skipUnless(torch, "PyTorch is not installed")


def loss_of(w):
    return ((w - tn.tensor([1.0, 2.0])) ** 2).sum()


class Optimizers(unittest.TestCase):
    def test_sgd_by_hand_in_both_forms(self):
        for fused in (True, False):
            w = nn.Parameter(tn.zeros(2))
            opt = optim.SGD([w], lr=0.25)
            for _ in range(2):
                if fused:
                    opt.step(loss_of(w))
                else:
                    opt.zero_grad()
                    loss_of(w).backward()
                    opt.step()
            self.assertEqual(w.tolist(), [0.75, 1.5])
            self.assertEqual(opt.updates, 2)

    def test_a_closure_returns_the_loss(self):
        w = nn.Parameter(tn.zeros(2))
        opt = optim.SGD([w], lr=0.5)

        def closure():
            opt.zero_grad()
            loss = loss_of(w)
            loss.backward()
            return loss

        self.assertEqual(opt.step(closure).item(), 5)
        self.assertEqual(w.tolist(), [1, 2])

    def test_lbfgs_is_pytorchs(self):
        """Rosenbrock's function; the numbers are PyTorch's."""
        for own in (False, True):
            w = nn.Parameter(tn.tensor([-1.2, 1.0], dtype=tn.float64))
            opt = optim.LBFGS([w], max_iter=100, line_search_fn="strong_wolfe")
            calls = []

            def closure():
                opt.zero_grad()
                loss = (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2
                if own:
                    loss.backward()
                calls.append(1)
                return loss

            self.assertAlmostEqual(opt.step(closure).item(), 24.2, places=5)  # float32
            self.assertAlmostEqual(w.tolist()[0], 0.9999814210791363, places=11)
            self.assertEqual(len(calls), 43)
        with self.assertRaisesRegex(TypeError, "takes a function that returns the loss"):
            opt.step()
        with self.assertRaisesRegex(RuntimeError, "only 'strong_wolfe' is supported"):
            optim.LBFGS([w], line_search_fn="armijo")
        with self.assertRaisesRegex(tn.Error, "ZeroDivisionError"):
            opt.step(lambda: 1 // 0)

    def test_each_gradient_is_clipped_by_its_own_norm(self):
        a, b = nn.Parameter(tn.tensor([3.0, 4.0])), nn.Parameter(tn.tensor([0.5]))
        opt = optim.SGD([a, b], lr=1.0, clip_each=1.0)
        opt.step((a * a).sum() / 2 + (b * b).sum() / 2)
        self.assertAlmostEqual(a.tolist()[0], 3 - 0.6, places=5)
        self.assertAlmostEqual(b.tolist()[0], 0, places=5)

    def test_what_is_frozen_or_tied_counts_as_it_should(self):
        net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
        net[1].weight = net[0].weight
        self.assertEqual(len(optim.SGD(net).param_groups[0]["params"]), 1)
        net[0].requires_grad_(False)
        with self.assertRaisesRegex(ValueError, "no parameter"):
            optim.SGD(net.parameters())

    def test_wrong_arguments(self):
        w = nn.Parameter(tn.zeros(2))
        with self.assertRaisesRegex(TypeError, "not one tensor"):
            optim.SGD(w)
        with self.assertRaisesRegex(tn.ArgumentError, "lr -1 is not a number >= 0"):
            optim.SGD([w], lr=-1.0)
        with self.assertRaises(NotImplementedError):
            optim.Adam([w], amsgrad=True)
        with self.assertRaisesRegex(NotImplementedError, "not in momentum"):
            optim.SGD([{"params": [w], "momentum": 0.5}])
        with self.assertRaisesRegex(ValueError, "no option 'rate'"):
            optim.SGD([{"params": [w], "rate": 0.5}])
        with self.assertRaisesRegex(tn.ShapeError, "not one element"):
            optim.SGD([w]).step(tn.ones(3))

    def test_groups_and_their_rates(self):
        a, b = nn.Parameter(tn.zeros(2)), nn.Parameter(tn.zeros(2))
        opt = optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.05}], lr=0.25)
        opt.step(loss_of(a) + loss_of(b))
        self.assertEqual(a.tolist(), [0.5, 1])
        np_close(self, b.tolist(), [0.1, 0.2])
        for g in opt.param_groups:
            g["lr"] = 0.0
        opt.step(loss_of(a) + loss_of(b))
        self.assertEqual(a.tolist(), [0.5, 1])
        opt.param_groups[1]["lr"] = 0.5  # now the largest
        opt.step(loss_of(a) + loss_of(b))
        self.assertEqual(a.tolist(), [0.5, 1])
        np_close(self, b.tolist(), [1, 2])

    def test_clipping_accumulation_and_schedule_of_c(self):
        w = nn.Parameter(tn.zeros(2))
        opt = optim.SGD([w], lr=1.0, clip_norm=1.0)
        opt.step(loss_of(w) * 100)
        np_close(self, w.tolist(), [1 / 5 ** 0.5, 2 / 5 ** 0.5])
        w = nn.Parameter(tn.zeros(2))
        opt = optim.SGD([w], lr=0.25, accumulate=2, schedule="linear", warmup=2, total=4)
        self.assertEqual(opt.lr, 0.125)
        opt.step(loss_of(w))
        self.assertEqual(w.tolist(), [0, 0])
        opt.step(loss_of(w))
        self.assertEqual(w.tolist(), [0.25, 0.5])
        self.assertEqual(opt.lr, 0.25)

    def test_state_goes_through_pickle(self):
        def train(w, opt, steps):
            for _ in range(steps):
                opt.step(loss_of(w))

        w, v = nn.Parameter(tn.zeros(2)), nn.Parameter(tn.zeros(2))
        a = optim.AdamW([w], lr=0.1)
        train(w, a, 3)
        v.data = w.detach().clone()
        b = optim.AdamW([v], lr=0.7)
        b.load_state_dict(pickle.loads(pickle.dumps(a.state_dict())))
        self.assertEqual(b.param_groups[0]["lr"], 0.1)
        self.assertEqual(b.updates, 3)
        train(w, a, 2)
        train(v, b, 2)
        self.assertEqual(w.tolist(), v.tolist())
        with self.assertRaisesRegex(ValueError, "state of AdamW"):
            optim.SGD([w]).load_state_dict(a.state_dict())

    def test_random_numbers_go_on(self):
        net = nn.Linear(3, 2)
        opt = optim.Adam(net, lr=0.1)
        opt.step(net(tn.ones(1, 3)).sum())
        state = opt.state_dict()
        tn.manual_seed(3)
        want = [tn.rand(2).tolist() for _ in range(2)]
        tn.manual_seed(3)
        got = [tn.rand(2).tolist()]
        opt.state_dict()
        opt.load_state_dict(state)
        self.assertEqual(got + [tn.rand(2).tolist()], want)

    def test_parameters_that_are_replaced_are_trained(self):
        def converted(net):
            net.double()

        def assigned(net):
            net.weight.data = tn.ones(2, 3)

        for change in (converted, assigned):
            for clear in (True, False):
                net, plain = nn.Linear(3, 2), nn.Linear(3, 2)
                plain.load_state_dict(net.state_dict())
                opt, other = (optim.SGD(n, lr=0.1, momentum=0.9) for n in (net, plain))
                for i in range(4):
                    if i == 2:
                        change(net)
                        if change is assigned:
                            plain.load_state_dict(net.state_dict())
                    for n, o in ((net, opt), (plain, other)):
                        if clear or i != 2:
                            o.zero_grad()
                        (n(tn.ones(2, 3, dtype=n.weight.dtype)) ** 2).sum().backward()
                        o.step()
                self.assertEqual(opt.updates, 4)
                np_close(self, net.weight.flatten().tolist(), plain.weight.flatten().tolist())
        net.weight.data = tn.ones(4, 3)
        with self.assertRaisesRegex(RuntimeError, "make a new optimizer"):
            opt.step()

    def test_gradients_are_cleared_to_none_or_to_zeros(self):
        net = nn.Linear(2, 1)
        for owner in (net, optim.SGD(net, lr=0.1)):
            owner.zero_grad(set_to_none=False)
            self.assertIsNone(net.weight.grad)  # there was none
            net(tn.ones(1, 2)).sum().backward()
            owner.zero_grad(set_to_none=False)
            self.assertEqual(net.weight.grad.tolist(), [[0, 0]])
            net(tn.ones(1, 2)).sum().backward()
            self.assertEqual(net.weight.grad.tolist(), [[1, 1]])
            owner.zero_grad()
            self.assertIsNone(net.weight.grad)

    def test_options_that_cannot_change_are_refused(self):
        opt = optim.SGD([{"params": [nn.Parameter(tn.ones(1))]}, {"params": [nn.Parameter(tn.ones(1))]}], momentum=0.9)
        opt.param_groups[0]["nesterov"] = True
        with self.assertRaisesRegex(NotImplementedError, "nesterov"):
            opt.step()
        opt.param_groups[0].update(nesterov=False, momentum=0.5)
        with self.assertRaisesRegex(NotImplementedError, "not in momentum"):
            opt.step()
        opt.param_groups[1]["momentum"] = -1.0
        opt.param_groups[0]["momentum"] = -1.0
        with self.assertRaisesRegex(ValueError, "momentum -1"):
            opt.step()

    def test_a_schedule_does_not_plan_anew(self):
        net = nn.Linear(4, 4)
        opt = optim.AdamW([{"params": [net.weight]}, {"params": [net.bias], "lr": 3e-4}], lr=1e-3)
        schedule = lr_scheduler.OneCycleLR(opt, [1e-3, 3e-4], total_steps=50)
        x = tn.randn(8, 4)
        plans = []
        for _ in range(12):
            opt.step((net(x) ** 2).mean())
            schedule.step()
            plans.append(tn._c.ctx_stats()["plans"])
        self.assertEqual(plans[5], plans[-1])


def np_close(test, got, want):
    for a, b in zip(got, want):
        test.assertAlmostEqual(a, b, places=5)


OPTIMIZERS = ["SGD({}, lr=0.1)", "SGD({}, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01)",
              "SGD({}, lr=0.1, momentum=0.9, nesterov=True)", "Adam({}, lr=0.01, betas=(0.0, 0.9))",
              "Adam({}, lr=0.02, weight_decay=0.1)",
              "AdamW({}, lr=0.02, betas=(0.8, 0.95), eps=1e-6)", "AdamW({}, lr=0.02, weight_decay=0)",
              "RMSprop({}, lr=0.01)", "RMSprop({}, lr=0.01, alpha=0.9, momentum=0.5, centered=True, weight_decay=0.01)",
              "Adagrad({}, lr=0.1)", "Adagrad({}, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.1, weight_decay=0.01)",
              "Adadelta({}, lr=0.5)", "Adadelta({}, rho=0.8, eps=1e-4, weight_decay=0.01)",
              "NAdam({}, lr=0.02)", "NAdam({}, lr=0.02, betas=(0.8, 0.95), weight_decay=0.1, momentum_decay=0)"]
OWN_SCHEDULES = {"StepLR(opt, 3, 0.5)": dict(schedule="step", every=3, factor=0.5), "ExponentialLR(opt, 0.9)": dict(schedule="exponential", factor=0.9),
                 "CosineAnnealingWarmRestarts(opt, 3, 2)": dict(schedule="restarts", every=3, factor=2),
                 "OneCycleLR(opt, 0.1, total_steps=20)": dict(schedule="one_cycle", total=20)}

SCHEDULES = ["StepLR(opt, 3, 0.5)", "MultiStepLR(opt, [2, 5, 5, 9])", "ConstantLR(opt, 0.5, 4)",
             "LinearLR(opt, 0.1, 0.8, 6)", "ExponentialLR(opt, 0.9)", "PolynomialLR(opt, 8, 2.0)",
             "CosineAnnealingLR(opt, 7, 1e-3)", "CosineAnnealingWarmRestarts(opt, 3, 2)",
             "LambdaLR(opt, lambda t: 1 / (1 + t))", "OneCycleLR(opt, 0.3, total_steps=20)",
             "OneCycleLR(opt, 0.3, total_steps=20, max_momentum=0.9, three_phase=True, anneal_strategy='linear')",
             "CyclicLR(opt, 0.01, 0.1, 3)", "CyclicLR(opt, 0.01, 0.1, 3, 5, 'triangular2', cycle_momentum=False)",
             "CyclicLR(opt, 0.01, 0.1, 4, mode='exp_range', gamma=0.9)",
             "ChainedScheduler([ConstantLR(opt, 0.5, 4), ExponentialLR(opt, 0.9)])",
             "SequentialLR(opt, [LinearLR(opt, 0.1, 1.0, 4), CosineAnnealingLR(opt, 10)], [4])"]


@needs_torch
class BesideTorch(unittest.TestCase):
    def networks(self):
        torch.manual_seed(0)
        theirs = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        ours = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
        ours.load_state_dict(theirs.state_dict())
        return ours, theirs

    def test_ten_steps_of_each_optimizer(self):
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(16, 5)).astype("f4"), rng.integers(0, 3, 16)
        changes = {"lr": 0.01, "momentum": 0.5, "betas": (0.7, 0.9), "eps": 1e-4, "alpha": 0.8, "weight_decay": 0.0}
        for text in OPTIMIZERS:
            for fused in (True, False):
                for groups in (False, True):
                    with self.subTest(text, fused=fused, groups=groups):
                        ours, theirs = self.networks()
                        lists = [list(n.parameters()) for n in (ours, theirs)]
                        if groups:
                            other = {"lr": 0.005, "weight_decay": 0.2}
                            lists = [[{"params": p[:2]}, {"params": p[2:], **other}] for p in lists]
                        a = eval("optim." + text.format("p"), {"optim": optim, "p": lists[0]})
                        b = eval("torch.optim." + text.format("p"), {"torch": torch, "p": lists[1]})
                        for i in range(10):
                            for g in a.param_groups + b.param_groups if i == 5 else []:
                                g.update({k: v for k, v in changes.items() if k in g and (g[k] or k != "momentum")})
                            loss = nn.functional.cross_entropy(ours(tn.tensor(x)), tn.tensor(y))
                            if fused:
                                a.step(loss)
                            else:
                                a.zero_grad()
                                loss.backward()
                                a.step()
                            b.zero_grad()
                            torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y)).backward()
                            b.step()
                        for (name, p), q in zip(ours.named_parameters(), theirs.parameters()):
                            np.testing.assert_allclose(np.array(p.tolist()), q.detach().numpy(), rtol=1e-3, atol=2e-5,
                                                       err_msg=name)

    def test_schedules(self):
        for text in SCHEDULES:
            with self.subTest(text):
                a = optim.SGD([{"params": [nn.Parameter(tn.zeros(1))]},
                               {"params": [nn.Parameter(tn.zeros(1))], "lr": 0.02}], lr=0.1)
                b = torch.optim.SGD([{"params": [torch.zeros(1, requires_grad=True)]},
                                     {"params": [torch.zeros(1, requires_grad=True)], "lr": 0.02}], lr=0.1)
                s = eval(text, {**vars(lr_scheduler), "opt": a})
                t = eval(text, {**vars(torch.optim.lr_scheduler), "opt": b})
                for _ in range(15):
                    np.testing.assert_allclose(s.get_last_lr(), t.get_last_lr(), rtol=1e-9, atol=1e-15)
                    self.assertAlmostEqual(a.param_groups[1]["momentum"], b.param_groups[1]["momentum"], places=9)
                    b.step()
                    s.step()
                    t.step()

    def test_schedules_that_need_no_calls(self):
        for text, options in OWN_SCHEDULES.items():
            with self.subTest(text):
                w = nn.Parameter(tn.zeros(2))
                a = optim.SGD([w], lr=0.1, **options)
                b = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9)
                t = eval(text, {**vars(torch.optim.lr_scheduler), "opt": b})
                for _ in range(15):
                    np.testing.assert_allclose(tn._c.optim_lr(a._handle), t.get_last_lr()[0], rtol=1e-9)
                    a.step(loss_of(w)), b.step(), t.step()

    def test_averages(self):
        torch.manual_seed(0)
        x, y = torch.randn(16, 5), torch.randint(0, 3, (16,))
        ours, theirs = self.networks()
        copy, _ = self.networks()
        a, b = optim.SGD(ours, lr=0.5, ema=0.75), torch.optim.SGD(theirs.parameters(), lr=0.5)
        average = [p.detach().clone() for p in theirs.parameters()]
        for _ in range(5):
            a.step(nn.functional.cross_entropy(ours(tn.tensor(x.numpy())), tn.tensor(y.numpy())))
            b.zero_grad()
            torch.nn.functional.cross_entropy(theirs(x), y).backward()
            b.step()
            for m, p in zip(average, theirs.parameters()):
                m.lerp_(p.detach(), 0.25)
        a.average_to(copy)
        for p, q in zip(copy.parameters(), average):
            np.testing.assert_allclose(np.array(p.tolist()), q.numpy(), rtol=1e-4, atol=1e-6)

    def test_muon(self):
        """Directions are noise where singular values are small, so a whole step is compared by what it does: equal singular values."""
        rng = np.random.default_rng(0)
        w = rng.normal(size=(24, 16)).astype("f4")
        p, bias = nn.Parameter(tn.tensor(w)), nn.Parameter(tn.zeros(16))
        opt = optim.Muon([p, bias], lr=0.5, weight_decay=0, adjust_lr_fn="match_rms_adamw")
        g = rng.normal(size=(24, 16)).astype("f4")
        opt.step((p * tn.tensor(g)).sum() + bias.sum())
        values = np.linalg.svd((w - np.array(p.tolist())) / (0.5 * 0.2 * 24 ** 0.5), compute_uv=False)
        self.assertTrue((values > 0.6).all() and (values < 1.3).all(), values)
        np.testing.assert_allclose(bias.tolist(), [-0.5] * 16, rtol=1e-5)

    def test_plateau(self):
        a = optim.SGD([nn.Parameter(tn.zeros(1))], lr=0.1)
        b = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        s = lr_scheduler.ReduceLROnPlateau(a, patience=1, cooldown=1)
        t = torch.optim.lr_scheduler.ReduceLROnPlateau(b, patience=1, cooldown=1)
        for v in [3, 2, 2, 2, 2, 2, 2, 1, 1.1, 1.2, 1.3, 1.4]:
            s.step(v), t.step(v)
            self.assertEqual(a.param_groups[0]["lr"], b.param_groups[0]["lr"])


if __name__ == "__main__":
    unittest.main()
