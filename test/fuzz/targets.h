// targets.h: every target of the fuzzer, one line each. TARGET(name) stands for fuzz_name in
// target_name.c.
TARGET(json)
TARGET(safetensors)
TARGET(npy)
TARGET(checkpoint)
TARGET(idx)
TARGET(csv)
TARGET(bpe)
TARGET(image)
TARGET(onnx)
