#!/usr/bin/env python3
"""Compares Tenon's tokenizers with PyPI's `tokenizers`, and writes the small ones of the tests.

    tokenizers_side.py TEXT [--strings 100000] [--seed 1] [--gpt2 DIR] [--only NAME]
    tokenizers_side.py TEXT --write test/recordings/tokenizers

A tokenizer of each kind is trained here by PyPI's library, on TEXT and on random text. Ids must be equal
on TEXT, line by line and whole, and on random Unicode strings; so must the decoded texts.
"""
import argparse
import ctypes
import json
import os
import random
import sys
import tempfile
import time

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4 = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


# ---- the kinds


def words(pattern, behavior="isolated"):
    return pre_tokenizers.Split(Regex(pattern), behavior)


def byte_level(pattern=None, first=(), normalizer=None, prefix=False, ignore_merges=False, bos=None, size=600):
    """A byte-level tokenizer, not trained yet: its parts, and what trains it."""
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=pattern is None)
    parts = list(first) + ([words(pattern)] if pattern else []) + [last]
    t.pre_tokenizer = pre_tokenizers.Sequence(parts) if len(parts) > 1 else last
    t.decoder = decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    special = [bos] if bos else ["<|endoftext|>"]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return t, trainer, bos


def sentence_piece(metaspace=False, fallback=True, fuse=True, size=900, scheme="always"):
    """Llama 2's kind: spaces are a character, unknown characters are bytes."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=fallback))
    if metaspace:
        t.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", prepend_scheme=scheme)
        t.decoder = decoders.Metaspace("\u2581", prepend_scheme=scheme)
    else:
        t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + ([f"<0x{i:02X}>" for i in range(256)] if fallback else [])
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    return t, trainer, "<s>"


KINDS = {
    "gpt2": lambda: byte_level(),
    "gpt2_prefix": lambda: byte_level(prefix=True),
    "llama3": lambda: byte_level(LLAMA3, ignore_merges=True, bos="<|begin_of_text|>"),
    "qwen": lambda: byte_level(QWEN, normalizer=normalizers.NFC()),
    "gpt4": lambda: byte_level(GPT4),
    "gpt4o": lambda: byte_level(GPT4O),
    "deepseek": lambda: byte_level(DEEPSEEK, first=[words(r"\p{N}{1,3}"), words("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+")]),
    "smollm": lambda: byte_level(first=[pre_tokenizers.Digits(individual_digits=True)]),
    "digits": lambda: byte_level(first=[pre_tokenizers.Digits(), pre_tokenizers.Punctuation("contiguous")]),
    "nfd": lambda: byte_level(normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.Strip()])),
    "llama2": lambda: sentence_piece(),
    "llama2_plain": lambda: sentence_piece(fallback=False, fuse=False, size=500),
    "metaspace": lambda: sentence_piece(metaspace=True),
    "metaspace_first": lambda: sentence_piece(metaspace=True, scheme="first", fallback=False),
    "whitespace": lambda: (lambda t: (t, trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>"],
                                                             show_progress=False), None))(whitespace()),
}
SMALL = ["gpt2", "llama3", "qwen", "llama2", "metaspace"]


def whitespace():
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    return t


def make(name, text):
    """Trains a tokenizer and adds tokens of every kind to it. They are written as the file spells them."""
    t, trainer, bos = KINDS[name]()
    lines = text.splitlines()
    # Llama 2's kind has no words: the lines must be short, or a merge would be a sentence.
    t.train_from_iterator([w for line in lines for w in line.split(" ")] if name == "llama2" else lines, trainer)
    t.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>", rstrip=True, special=True)])
    t.add_tokens([AddedToken("hello", single_word=True), AddedToken("  ", normalized=name != "nfd"), AddedToken("<left>", lstrip=True),
                  AddedToken("\u00e9t\u00e9", normalized=True), AddedToken("<raw>", normalized=False)])
    if bos:
        t.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, t.token_to_id(bos))])
    return t


# ---- texts


def random_string(r):
    """Letters of many scripts, marks, digits, spaces, contractions and added tokens, and any code point."""
    pieces = ["'s", "'S", "'re", "'LL", "'\u017f", "<|im_start|>", "<|im_end|>", "<left>", "<raw>", "hello", "  ", "\n", "\r\n",
              "\t", "\u00a0", "\u3000", "\u2581", "\u0301", "\u0323", "e\u0301te\u0301", "\u00e9t\u00e9", "\u1100\u1161\u11a8", "\uac00",
              "\u200d", "hello\u200c", "the ", " and", "12345", "\u0661\u0662", "\u00b2", "\u216b", "...", "?!", " ", " ", "<s>", "<0x41>"]
    ranges = [(32, 127), (32, 127), (32, 127), (0xa0, 0x250), (0x250, 0x600), (0x600, 0x1200), (0x300, 0x370),
              (0x1e00, 0x2100), (0x2000, 0x2c00), (0x3000, 0xa000), (0xac00, 0xd7a4), (0x1f300, 0x1f700), (0, 0xd800),
              (0xe000, 0x110000)]
    out = []
    for _ in range(r.randrange(1, 24)):
        if r.random() < 0.3:
            out.append(r.choice(pieces))
        else:
            low, high = r.choice(ranges)
            out.append("".join(chr(r.randrange(low, high)) for _ in range(r.randrange(1, 5))))
    return "".join(out)


# ---- Tenon


class Tenon:
    def __init__(self, path):
        lib = ctypes.CDLL(os.environ.get("TN_LIBRARY") or os.path.join(HERE, "..", "..", "build", "libtenon.so"))
        p, i, s = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
        for name, result, args in [("tn_open", p, [s]), ("tn_tokenizer_open", p, [p, s]), ("tn_error_text", s, [p]),
                                   ("tn_tokenizer_encode", i, [p, s, i, p, i]), ("tn_tokenizer_encode_with", i, [p, s, i, p, i, ctypes.c_int]),
                                   ("tn_tokenizer_decode", i, [p, p, i, s, i]), ("tn_tokenizer_count", i, [p]),
                                   ("tn_tokenizer_id", i, [p, s])]:
            getattr(lib, name).restype, getattr(lib, name).argtypes = result, args
        self.lib, self.cx = lib, lib.tn_open(b"ref")
        self.t = lib.tn_tokenizer_open(self.cx, path.encode())
        if not self.t:
            sys.exit("tenon: " + lib.tn_error_text(self.cx).decode())

    def encode(self, text, special=False):
        data = text.encode()
        room = 2 * len(data) + 16
        ids = (ctypes.c_int64 * room)()
        n = self.lib.tn_tokenizer_encode_with(self.t, data, len(data), ids, room, 1 if special else 0)
        if n < 0:
            sys.exit("tenon: " + self.lib.tn_error_text(self.cx).decode())
        return list(ids[:n])

    def decode(self, ids):
        array = (ctypes.c_int64 * max(1, len(ids)))(*ids)
        n = self.lib.tn_tokenizer_decode(self.t, array, len(ids), None, 0)
        text = ctypes.create_string_buffer(max(1, n))
        self.lib.tn_tokenizer_decode(self.t, array, len(ids), text, n)
        return text.raw[:n]


def compare(name, tokenizer, tenon, texts):
    """The number of texts that differ; the first few are shown. Texts that are cut inside a character differ in how
    the rest of it is shown, so only whole ones are compared."""
    bad = 0
    for text in texts:
        want, got = tokenizer.encode(text, add_special_tokens=False).ids, tenon.encode(text)
        back, mine = tokenizer.decode(want, skip_special_tokens=False), tenon.decode(want).decode(errors="replace")
        same = want == got and (back == mine or "\ufffd" in back)
        framed = tokenizer.encode(text).ids == tenon.encode(text, True)
        bad += not (same and framed)
        if not (same and framed) and bad <= 3:
            print(f"{name}: {text!r}\n  want {want}\n  got  {got}\n  text {back!r}\n       {mine!r}\n  framed {framed}")
    return bad


def run(name, tokenizer, path, text, strings):
    tenon = Tenon(path)
    begin = time.time()
    got = tenon.encode(text)
    mine = time.time() - begin
    begin = time.time()
    want = tokenizer.encode(text, add_special_tokens=False).ids
    theirs = time.time() - begin
    bad = (want != got) + compare(name, tokenizer, tenon, text.splitlines(True)[:4000] + strings)
    size = len(text.encode()) / 1e6
    print(f"{name:16} {len(got):7} tokens  {bad} of {len(strings)} strings and the text differ  "
          f"{size / mine:6.1f} MB/s, tokenizers {size / theirs:6.1f}", flush=True)
    return bad


def write(folder, text):
    """Small tokenizers and the ids of some texts: [name of the file, [[text, ids, ids with special tokens]]]."""
    r = random.Random(5)
    texts = [line for line in text.splitlines() if line][:12] + ["", " ", "hello  hello hellos", "It's I'LL 12345 x2\n\n  y\t"]
    texts += [random_string(r) for _ in range(40)]
    os.makedirs(folder, exist_ok=True)
    for name in SMALL:
        t = make(name, text)
        t.save(os.path.join(folder, name + ".json"), pretty=False)
        rows = [[s, t.encode(s, add_special_tokens=False).ids, t.encode(s).ids] for s in texts]
        with open(os.path.join(folder, name + ".ids.json"), "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("text")
    a.add_argument("--strings", type=int, default=1000)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--gpt2")
    a.add_argument("--only")
    a.add_argument("--write")
    a = a.parse_args()
    with open(a.text, newline="") as f:
        text = f.read()
    if a.write:
        return write(a.write, text[:200000])
    r = random.Random(a.seed)
    strings = [random_string(r) for _ in range(a.strings)]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in [a.only] if a.only else KINDS:
            path = os.path.join(folder, name + ".json")
            t = make(name, text + "\n".join(random_string(random.Random(i)) for i in range(2000)))
            t.save(path)
            bad += run(name, t, path, text, strings)
        if a.gpt2 and not a.only:
            t = Tokenizer(models.BPE.from_file(os.path.join(a.gpt2, "encoder.json"), os.path.join(a.gpt2, "vocab.bpe")))
            t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
            bad += run("GPT-2's own", t, a.gpt2, text, strings)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
