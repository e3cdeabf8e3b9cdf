"""Tokenizers: texts as numbers of tokens."""
from __future__ import annotations

import os
from typing import Any, Iterable, Iterator, Sequence, Union

from . import _c

__all__ = ["Tokenizer", "TokenStream"]


class Tokenizer:
    """A byte-pair tokenizer in a tokenizer.json of Hugging Face, or in GPT-2's two files."""

    def __init__(self, handle: _c.Tokenizer) -> None:
        self._handle = handle

    @classmethod
    def open(cls, path: Union[str, "os.PathLike[str]"], *, context: _c.Context | None = None) -> Tokenizer:
        """Opens a tokenizer.json, or a folder that has one or has vocab.bpe and encoder.json."""
        return cls(_c.tokenizer_open(os.fspath(path), context=context))

    from_file = from_pretrained = open

    def encode(self, text: str | bytes, *, add_special: bool = False, plain: bool = False) -> list[int]:
        """The numbers of a text's tokens; add_special: also the tokens that the file puts around a text; plain: special tokens in the
        text are encoded as any text."""
        return _c.tokenizer_encode(self._handle, text, add_special, plain)

    def decode(self, ids: Any, *, errors: str = "replace") -> str:
        """The text of tokens: numbers, or a tensor of them."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_bytes(self, ids: Any) -> bytes:
        """The text of tokens as bytes, since tokens may end inside a character."""
        return _c.tokenizer_decode(self._handle, _numbers(ids))

    def stream(self, ids: Iterable[int] = ()) -> TokenStream:
        """The text of tokens that come one by one, after those of a prompt."""
        s = TokenStream(self)
        for i in ids:
            s.push(i)
        return s

    def token(self, id: int) -> str | None:
        """A token as its file spells it; None if no token has this number."""
        return _c.tokenizer_token(self._handle, id)

    def id(self, token: str) -> int | None:
        """The number of a token as its file spells it; None if there is none."""
        i = _c.tokenizer_id(self._handle, token)
        return None if i < 0 else i

    def is_special(self, id: int) -> bool:
        """Whether a token is not text, but a mark such as <s>."""
        return _c.tokenizer_is_special(self._handle, id)

    @property
    def special_tokens(self) -> dict[str, int]:
        """The special tokens by their spelling."""
        return {token: i for i in range(len(self)) if self.is_special(i) and (token := self.token(i)) is not None}

    def __len__(self) -> int:
        """One above the highest number of a token."""
        return _c.tokenizer_count(self._handle)

    def __repr__(self) -> str:
        return f"<tenon.Tokenizer of {len(self)} tokens>"


class TokenStream:
    """The text of tokens that come one by one: each push() returns the whole characters that the token completes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self._state = tokenizer, bytearray(_c.stream_bytes)

    def push(self, id: Any) -> str:
        """What a token adds to the text."""
        return _c.tokenizer_stream(self.tokenizer._handle, self._state, int(id))

    def end(self) -> str:
        """What is left of a character."""
        return _c.tokenizer_stream(self.tokenizer._handle, self._state, -1)

    def texts(self, ids: Iterable[int]) -> Iterator[str]:
        """The texts of tokens and the end, as they come."""
        for i in ids:
            if part := self.push(i):
                yield part
        if part := self.end():
            yield part


def _numbers(ids: Any) -> Sequence[int]:
    if isinstance(ids, _c.Tensor) or hasattr(ids, "tolist"):
        ids = ids.tolist()
    return [ids] if isinstance(ids, int) else ids
