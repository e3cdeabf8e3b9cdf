#!/usr/bin/env python3
"""Saves a network of torchvision for `tenon predict` and `tenon eval`, with what its weights expect.

    pip install torch torchvision && python3 tools/torchvision_weights.py resnet50 resnet50.safetensors [WEIGHTS.pth]

The metadata of the file says which network it is, to which size pictures are resized, what is taken of them, the means and
deviations of their colours, and the names of the classes. Without WEIGHTS.pth they are torchvision's default ones, which it
downloads; `random` as WEIGHTS.pth stands for untrained ones, to try it out. Networks are resnet18 to resnet152,
mobilenet_v2, vit_b_16, vit_b_32, vit_l_16, convnext_tiny, convnext_small and convnext_base.
"""
import json
import struct
import sys

import torch
import torchvision.models as zoo


def write(path, tensors, metadata):
    header, at = {"__metadata__": metadata}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": {torch.float32: "F32", torch.int64: "I64"}[t.dtype], "shape": list(t.shape),
                        "data_offsets": [at, at + t.numel() * t.element_size()]}
        at += t.numel() * t.element_size()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(t.contiguous().numpy().tobytes())


def numbers(values):
    return ",".join(f"{v:g}" for v in values)


def main():
    name, path, source = (sys.argv[1:] + [None])[:3]
    weights = zoo.get_model_weights(name).DEFAULT
    net = zoo.get_model(name, weights=None if source else weights)
    if source and source != "random":
        net.load_state_dict(torch.load(source, weights_only=True))
    prep, size = weights.transforms(), weights.transforms().crop_size[0]
    classes = weights.meta["categories"]
    write(path, net.state_dict(), {
        "model": name, "data": f"images:imagenet:size={size}:resize={prep.resize_size[0]}", "task": "classes",
        "input": f"3x{size}x{size}", "outputs": str(len(classes)), "classes": "\n".join(classes) + "\n",
        "normalize": f"{numbers(prep.mean)}/{numbers(prep.std)}"})


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main()
