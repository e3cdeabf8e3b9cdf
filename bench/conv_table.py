"""The tables of convolution networks, for models_table.py."""
from gpu_table import best, cell, head, line, over

TITLE = "Convolution networks"
PROFILES = ("ResNet-50 training, B 256", "ResNet-50 inference, B 64", "MobileNetV2 training", "U-Net", "lenet training, B 64")

# What is wanted: img/s at least, and Tenon's over torch.compile's.
TRAINING = {
    "ResNet-50 training, B 256": (8000, 1.2), "ResNet-50 training, B 64": (None, 1.5), "ResNet-18 training, B 256": (None, 1),
    "MobileNetV2 training, B 256": (None, 1), "U-Net training, B 16": (None, 1), "ResNet-50 training in TF32, B 64": (None, None),
}
INFERENCE = {
    "ResNet-50 inference, B 1": (2500, 1), "ResNet-50 inference, B 64": (28000, 1), "ResNet-50 inference, B 256": (32000, 1),
    "MobileNetV2 inference, B 1": (None, 1), "MobileNetV2 inference, B 256": (None, 1),
}
LENET = {"lenet training, B 64": 120, "lenet training, B 1024": 900}  # us a step at most
FIRST_EMPTY, FIRST_FULL = 10, 1.5                                     # seconds at most, of training
LOSSES = ("ResNet-20 losses, B 128", "ResNet-50 losses, B 16")
DIFFERENCE = {"f32": 1e-4, "bf16": 5e-3}


class Missed(list):
    def want(self, what, ok):
        """Writes down what is not as wanted; ok None: not measured."""
        if ok is not True:
            self.append(what + (" (not measured)" if ok is None else ""))


def at_least(value, wanted):
    return None if value is None else value >= wanted


def at_most(value, wanted):
    return None if value is None else value <= wanted


def rates(title, cases, runs, peers, missed, first_wanted):
    text = head(title, *runs, "torch.compile", "PyTorch eager", "Tenon / compile", "wanted", "first step, s: empty cache",
                "full cache", "compile's", "peak, GiB", "compile's", "host, us", "kernels and calls")
    for case, (rate, ratio) in cases.items():
        ours = [run.get(case, {}) for run in runs.values()]
        mine, peer, eager = ours[0], peers.get(case, {}).get("compile", {}), peers.get(case, {}).get("eager", {})
        got = over(mine.get("img/s"), peer.get("img/s"))
        wanted = [f"{rate:,}" if rate else "", f"{ratio:g} x" if ratio else ""]
        if rate:
            missed.want(f"{case}: {rate:,} img/s", at_least(mine.get("img/s"), rate))
        if ratio:
            missed.want(f"{case}: {ratio:g} x torch.compile", at_least(got, ratio))
        if first_wanted:
            for what, most in (("empty", FIRST_EMPTY), ("full", FIRST_FULL)):
                missed.want(f"{case}: first step with an {what} cache in {most} s".replace("an full", "a full"),
                            at_most(mine.get(f"first step, {what} cache"), most))
        text += line([case] + [cell(run.get("img/s"), "{:,.0f}") for run in ours]
                     + [cell(peer.get("img/s"), "{:,.0f}"), cell(eager.get("img/s"), "{:,.0f}"), cell(got, "{:.2f}"),
                        ", ".join(w for w in wanted if w) or "-"]
                     + [cell(mine.get(f"first step, {what} cache"), "{:.2f}") for what in ("empty", "full")]
                     + [cell(peer.get("first step")), cell(mine.get("peak")), cell(peer.get("peak")),
                        cell(mine.get("host"), "{:,.0f}"), cell(mine.get("kernels and calls"), "{:.0f}")])
    return text


def lenet(runs, peers, missed):
    text = head("lenet, Adam, TF32, us a step", *runs, "host", "graph by hand", "torch.compile with graphs", "PyTorch eager",
                "best peer / Tenon", "wanted", "kernels and calls")
    for case, most in LENET.items():
        ours, peer = [run.get(case, {}) for run in runs.values()], peers.get(case, {})
        missed.want(f"{case}: at most {most} us", at_most(ours[0].get("step"), most))
        text += line([case.removeprefix("lenet training, ")] + [cell(run.get("step")) for run in ours]
                     + [cell(ours[0].get("host"))] + [cell(peer.get(way)) for way in ("graph", "compile", "eager")]
                     + [cell(over(best(peer, ("graph", "compile", "eager")), ours[0].get("step")), "{:.2f}"), str(most),
                        cell(ours[0].get("kernels and calls"), "{:.0f}")])
    return text


def losses(peers, missed):
    text = head("losses of 20 steps, same weights and batches", "Tenon, 1st", "PyTorch", "Tenon, 20th", "PyTorch",
                "largest difference", "of step", "wanted", "PyTorch's own")
    each = ""
    for case in LOSSES:
        for precision, most in DIFFERENCE.items():
            got = peers.get(case, {}).get(precision, {})
            apart = got.get("difference") or []
            worst = max(apart, default=None)
            missed.want(f"{case}: within {most:g} of PyTorch's in {precision}", at_most(worst, most))
            both = [got[who][i] if who in got else None for i in (0, -1) for who in ("tenon", "torch")]
            text += line([f"{case.replace(' losses', '')}, {precision}"] + [cell(v, "{:.5f}") for v in both]
                         + [cell(worst, "{:.1e}"), cell(apart.index(worst) + 1 if apart else None, "{}"), f"{most:g}",
                            cell(max(got["torch's own"]) if apart else None, "{:.1e}")])
            if apart:
                each += f"    {case.replace(' losses', '')}, {precision}: " + " ".join(f"{d:.0e}" for d in apart) + "\n"
    return (text + "\nIn f32 without TF32. PyTorch's own is the largest difference between its images stored channels first and last.\n"
            + (f"The relative difference of each step:\n\n{each}" if each else ""))


def tables(runs, peers):
    missed = Missed()
    texts = [rates("training, bf16 autocast, SGD with momentum, img/s", TRAINING, runs, peers, missed, True),
             rates("inference, f16, compile with graphs, img/s", INFERENCE, runs, peers, missed, False),
             lenet(runs, peers, missed), losses(peers, missed)]
    return texts, missed
