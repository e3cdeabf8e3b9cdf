"""Datasets and batches, by the names of torch.utils.data.

    data = tn.data.digits()
    for x, y in tn.data.DataLoader(data, 64, shuffle=True):
        ...

A thread of C prepares the batches ahead. What a batch contains follows from (seed, epoch, index) alone, so a run that is
resumed at a saved position sees the same batches.
"""
from __future__ import annotations

import os
import random
import shutil
import sys
import time
from typing import Any, Callable, Generic, Iterable, Iterator, Sequence, Sized, TypeVar

from . import _c
from ._dtypes import DType
from ._functions import context_on, tensor
from ._tensor import Tensor

__all__ = ["Batch", "Data", "Dataset", "TensorDataset", "Subset", "ConcatDataset", "IterableDataset", "DataLoader",
           "Sampler", "SequentialSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler",
           "BatchSampler", "random_split", "default_collate", "digits", "mnist", "idx_files", "cifar10", "images", "csv", "text",
           "arrays", "progress", "read_image", "write_image", "show_image", "image_grid", "read_idx"]

T = TypeVar("T")


class Batch(tuple):
    """The fields of a batch, (x, y, ...), each a tensor whose first axis counts the items."""

    count: int  # type: ignore[assignment]  # of items
    epoch: int
    start: int  # the place of its first item in the epoch
    last: bool  # whether it ends the epoch
    weight: float  # of a mean over its items, in the mean of all ranks; 1 unless ranks have different numbers of items

    @classmethod
    def _of(cls, row: Any) -> Batch:
        b = cls(row[0])
        b.count, b.epoch, b.start, b.last, b.weight = row[1:]
        return b

    @property
    def x(self) -> Any:
        """The first field."""
        return self[0]

    @property
    def y(self) -> Any:
        """The second field; None if there is none."""
        return self[1] if len(self) > 1 else None


# ---- datasets of C


class Data:
    """A dataset of C: its items, an order of them, and a position, which is that of the next batch."""

    def __init__(self, handle: _c.Data) -> None:
        self._handle = handle

    def __len__(self) -> int:
        """The number of items."""
        return _c.data_count(self._handle)

    def next(self, n: int) -> Batch:
        """The next batch of n items. After the last one of an epoch, which may be shorter, the next epoch begins."""
        return Batch._of(_c.next(self._handle, n))

    def batches(self, n: int) -> Iterator[Batch]:
        """The batches of n items from the position to the end of the epoch.

        It goes on where it was, also if another loop over the dataset has moved the position meanwhile.
        """
        at, last = self.cursor, False
        while not last:
            if self.cursor != at:
                self.seek(at)
            batch = self.next(n)
            at, last = self.cursor, batch.last
            yield batch

    def num_batches(self, n: int) -> int:
        """The number of batches of n items in an epoch."""
        return _c.data_batches(self._handle, n)

    def shuffle(self, on: bool = True, seed: int = 0) -> Data:
        """Turns shuffling by a seed on or off. It is on at first, with the seed of the context."""
        _c.data_shuffle(self._handle, on, seed)
        return self

    def drop_last(self, on: bool = True) -> Data:
        """Leaves out the last batch of an epoch if it is short."""
        _c.data_drop_last(self._handle, on)
        return self

    def shard(self, rank: int, size: int) -> Data:
        """Batches are this rank's part of those that one process would get; tn.distributed.shard takes the world's."""
        _c.data_shard(self._handle, rank, size)
        return self

    def augment(self, *, shift: int = 0, crop: int = 0, flip: bool = False, resized_crop: bool = False, area: float = 0.0,
                brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, hue: float = 0.0,
                mixup: float = 0.0) -> Data:
        """Moves images by up to `shift` pixels, pads and crops them by `crop`, and mirrors half of them.

        resized_crop takes a random part of a picture (of `images`) instead of its middle. Colours are changed as by torchvision's
        ColorJitter. With mixup, images are mixed in pairs and y has the weight of each class.
        """
        _c.data_augment(self._handle, shift=shift, crop=crop, flip=flip, resized_crop=resized_crop, area=area,
                        brightness=brightness, contrast=contrast, saturation=saturation, hue=hue, mixup=mixup)
        return self

    @property
    def skipped_files(self) -> list[str]:
        """The files of a folder of images that could not be read so far, each with the reason; at most 64."""
        found = []
        while (text := _c.data_skipped(self._handle, len(found))) is not None:
            found.append(text)
        return found

    def split(self, fraction: float, seed: int = 0) -> Data:
        """Moves a fraction of the items, chosen by the seed, to a new dataset."""
        return Data(_c.data_split(self._handle, fraction, seed))

    @property
    def cursor(self) -> dict[str, int]:
        """The position: seed, epoch, and index of the next item in it."""
        return _c.data_cursor(self._handle)

    def seek(self, cursor: dict[str, int]) -> Data:
        """Sets the position to one that `cursor` returned."""
        _c.data_seek(self._handle, **cursor)
        return self

    def rewind(self) -> Data:
        """Returns to the start of epoch 0."""
        _c.data_rewind(self._handle)
        return self

    def state_dict(self) -> dict[str, int]:
        """The position, to be saved."""
        return self.cursor

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Sets the position to a saved one."""
        self.seek(state)

    @property
    def fields(self) -> tuple[tuple[DType, tuple[int, ...]], ...]:
        """The dtype and the shape of each field of one item."""
        return _c.data_info(self._handle)[1]

    @property
    def num_classes(self) -> int:
        """The number of classes of y; 0 if it is not a class."""
        return _c.data_info(self._handle)[2]

    @property
    def classes(self) -> list[str]:
        """The names of the classes of y; those without a name are numbers."""
        names = (_c.data_class_name(self._handle, i) for i in range(self.num_classes))
        return [str(i) if name is None else name for i, name in enumerate(names)]

    @property
    def skipped(self) -> int:
        """The number of rows of a table that were skipped for missing cells, or of images that could not be read so far."""
        return _c.data_info(self._handle)[3]

    @property
    def schema(self) -> str:
        """The columns and categories of a table as JSON, for csv(schema=...); "" if there are none."""
        return _c.data_schema(self._handle)

    def row(self, i: int) -> int:
        """The row of its table that item i is."""
        return _c.data_row(self._handle, i)

    def __repr__(self) -> str:
        fields = ", ".join(f"{d.name} {s}" for d, s in self.fields)
        classes = f", {self.num_classes} classes" if self.num_classes else ""
        return f"<tenon.data.Data of {len(self)} items: {fields}{classes}>"


def digits(count: int = 60000, *, seed: int = 0, test: bool = False, context: _c.Context | None = None) -> Data:
    """Images of drawn digits, made on demand: x (1, 28, 28) in [0, 1], y the digit. Those for a test are others."""
    return Data(_c.digits(count=count, seed=seed, test=test, context=context))


def mnist(folder: str, *, test: bool = False, context: _c.Context | None = None) -> Data:
    """MNIST, or data in its format, in a folder: train-* or (test) t10k-*, plain or .gz."""
    return Data(_c.idx(folder, test, context=context))


def idx_files(images: str, labels: str, *, context: _c.Context | None = None) -> Data:
    """Two files in the format of MNIST."""
    return Data(_c.idx_files(images, labels, context=context))


def cifar10(folder: str, *, test: bool = False, context: _c.Context | None = None) -> Data:
    """CIFAR-10 in a folder, data_batch_1.bin ... or (test) test_batch.bin."""
    return Data(_c.cifar10(folder, test, context=context))


def images(folder: str, size: int = 224, *, resize: int = 0, channels: int = 3, most_pixels: int = 0, threads: int = 0,
           strict: bool = False, context: _c.Context | None = None) -> Data:
    """A folder of JPEG and PNG files for each class: x (channels, size, size) in [0, 1].

    The shorter side is resized to `resize`, by default 8/7 of the size, and the middle is taken. Files that cannot be read are
    skipped, unless strict; `skipped_files` of the data says which.
    """
    return Data(_c.images(folder, size=size, resize=resize, channels=channels, most_pixels=most_pixels, threads=threads,
                          strict=strict, context=context))


_MISSING = {"error": 0, "mean": 1, "category": 2, "skip": 3}


def csv(path: str, *, target: str | int | None = None, no_header: bool = False, schema: str | None = None,
        no_target: bool = False, missing: str = "error", missing_words: str | None = None, held_out: float = 0.0,
        split_seed: int = 0, context: _c.Context | None = None) -> Data:
    """A table: x has numbers as they are and categories one-hot, y is the column `target`, by default the last."""
    if missing not in _MISSING:
        raise ValueError(f"missing is one of {', '.join(_MISSING)}, not {missing!r}")
    return Data(_c.csv(path, target=None if target is None else str(target), no_header=no_header, schema=schema,
                       no_target=no_target, missing=_MISSING[missing], missing_words=missing_words,
                       held_out=held_out, split_seed=split_seed, context=context))


def text(path: str, length: int = 128, *, tokenizer: Any = None, context: _c.Context | None = None) -> Data:
    """A text as windows of tokens: x (length), and y, which is x one token later. Without a tokenizer, tokens are bytes."""
    handle = getattr(tokenizer, "_handle", tokenizer)
    return Data(_c.text(path, length=length, tokenizer=handle, context=context))


def arrays(*fields: Any, context: _c.Context | None = None) -> Data:
    """The first axis of tensors or arrays (x, y, ...), which are copied."""
    return Data(_c.arrays([f if isinstance(f, _c.Tensor) else tensor(f) for f in fields], context=context))


def read_image(path: str, size: int = 0, *, resize: int = 0, channels: int = 0, most_pixels: int = 0,
               context: _c.Context | None = None) -> Tensor:
    """An image, JPEG, PNG, PGM or PPM: (C, H, W) in [0, 1]. With a size, the middle of a JPEG or PNG after it was resized."""
    return _c.image_read_with(path, size=size, resize=resize, channels=channels, most_pixels=most_pixels, context=context)


def image_grid(x: Tensor, columns: int = 8, *, padding: int = 2, lo: float = 0, hi: float = 0) -> Tensor:
    """Images (N, C, H, W) joined to one, (C, rows, columns), as torchvision's make_grid. lo is black and hi is white."""
    return _c.image_grid(x, columns=columns, padding=padding or -1, lo=lo, hi=hi)


def write_image(x: Tensor, path: str, columns: int = 8, *, padding: int = 2, lo: float = 0, hi: float = 0) -> None:
    """Writes an image (H, W) or (C, H, W), or several (N, C, H, W) as a grid, as a PNG file."""
    _c.image_write_with(x, path, columns=columns, padding=padding or -1, lo=lo, hi=hi)


_STYLES = ("auto", "colours", "dots", "shades")


def show_image(x: Tensor, columns: int = 0, *, padding: int = 2, lo: float = 0, hi: float = 0, style: str = "auto",
               width: int = 0) -> None:
    """Prints images with characters: in colours (two pixels in one), as dots (eight) or shades (two)."""
    if style not in _STYLES:
        raise ValueError(f"style is one of {', '.join(_STYLES)}, not {style!r}")
    if not width:
        width = shutil.get_terminal_size().columns
    if style == "auto" and sys.stdout.isatty() and (sys.stdout.encoding or "").lower() == "utf-8" and not os.environ.get("NO_COLOR"):
        style = "colours"
    sys.stdout.write(_c.image_print(x, columns, padding or -1, lo, hi, _STYLES.index(style), width))


def read_idx(path: str, *, context: _c.Context | None = None) -> Tensor:
    """The images of one file in the format of MNIST, as bytes."""
    return _c.idx_read(path, context=context)


# ---- datasets of Python


class Dataset(Generic[T]):
    """A dataset of the program's own: __len__ and __getitem__, which returns an item.

    An item is a number, an array, or a tuple of these; every item has the dtypes and shapes of the first. It is then made
    on the loader's thread. An item may also be or hold a tensor, a dict or a str, or be made with the help of tensors: then it
    is made where the batch is asked for.
    """

    def __getitem__(self, index: int) -> T:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """A dataset that can only be iterated; it has no order to shuffle and no position to save."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class TensorDataset(Dataset[tuple]):
    """The first axis of tensors or arrays of equal length."""

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise ValueError("TensorDataset needs a tensor")
        if any(len(t) != len(tensors[0]) for t in tensors):
            raise ValueError(f"TensorDataset: lengths differ: {', '.join(str(len(t)) for t in tensors)}")
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int) -> tuple:
        return tuple(t[index] for t in self.tensors)


class Subset(Dataset[T]):
    """The items of another dataset at some indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> T:
        return self.dataset[self.indices[index]]


class ConcatDataset(Dataset[T]):
    """The items of several datasets, one after the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)

    def __getitem__(self, index: int) -> T:
        if index < 0:
            index += len(self)
        for d in self.datasets:
            if 0 <= index < len(d):
                return d[index]
            index -= len(d)
        raise IndexError("index out of range")


def random_split(dataset: Any, lengths: Sequence[float], seed: int = 0) -> list[Subset]:
    """Parts of a dataset with these lengths, or these fractions of it, of items chosen by the seed."""
    n = len(dataset)
    if all(isinstance(v, float) for v in lengths) and abs(sum(lengths) - 1) < 1e-6:
        sizes = [int(v * n) for v in lengths]
        for i in range(n - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = [int(v) for v in lengths]
    if sum(sizes) != n:
        raise ValueError(f"random_split: the lengths {list(lengths)} do not add up to {n}")
    order = list(range(n))
    random.Random(seed).shuffle(order)
    parts: list[Subset] = []
    start = 0
    for size in sizes:
        parts.append(Subset(dataset, order[start:start + size]))
        start += size
    return parts


def default_collate(items: Sequence[Any]) -> Any:
    """A batch of items: tensors and arrays stacked, numbers as a tensor, tuples and dicts by their members, texts as a list."""
    first = items[0]
    if isinstance(first, (str, bytes)):
        return list(items)
    if isinstance(first, dict):
        return {key: default_collate([item[key] for item in items]) for key in first}
    if isinstance(first, tuple):
        return tuple(default_collate(field) for field in zip(*items, strict=True))
    if isinstance(first, (bool, int, float)):
        return tensor(list(items))
    return _c.stack([item if isinstance(item, _c.Tensor) else tensor(item) for item in items], 0)


def _needs_collating(item: Any) -> bool:
    """Whether an item has parts that the loader's thread cannot copy: tensors, which belong to the calling thread, and texts."""
    if isinstance(item, tuple):
        return not item or any(_needs_collating(part) for part in item)
    return isinstance(item, (_c.Tensor, str, dict))


# ---- samplers: orders of the program's own


class Sampler(Generic[T]):
    """An order of the items of a dataset: __iter__, which gives their indices, and __len__ if their number is known."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class SequentialSampler(Sampler[int]):
    """The items in their order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))


class _Random(Sampler[int]):
    """What random orders share: a generator that goes on from epoch to epoch, by a seed or by that of the context."""

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._generator: random.Random | None = None

    @property
    def generator(self) -> random.Random:
        if self._generator is None:
            seed = int(_c.randint("int64", 0, 1 << 31, ())) if self._seed is None else self._seed
            self._generator = random.Random(seed)
        return self._generator


class RandomSampler(_Random):
    """The items in a random order, or num_samples of them; with replacement an item may come several times."""

    def __init__(self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, *,
                 seed: int | None = None) -> None:
        super().__init__(seed)
        self.data_source, self.replacement = data_source, replacement
        self.num_samples = len(data_source) if num_samples is None else num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        n, left = len(self.data_source), self.num_samples
        if self.replacement:
            yield from (self.generator.randrange(n) for _ in range(left))
            return
        while left > 0 and n:
            order = list(range(n))
            self.generator.shuffle(order)
            yield from order[:left]
            left -= n


class SubsetRandomSampler(_Random):
    """Some items in a random order."""

    def __init__(self, indices: Sequence[int], *, seed: int | None = None) -> None:
        super().__init__(seed)
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        order = [int(i) for i in self.indices]
        self.generator.shuffle(order)
        return iter(order)


class WeightedRandomSampler(_Random):
    """num_samples items, each drawn with a probability in proportion to its weight."""

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, *, seed: int | None = None) -> None:
        super().__init__(seed)
        self.weights = [float(w) for w in (weights.tolist() if hasattr(weights, "tolist") else weights)]
        self.num_samples, self.replacement = num_samples, replacement
        if any(not w >= 0 for w in self.weights) or not any(self.weights):
            raise ValueError("WeightedRandomSampler: weights are not negative, and one is above 0")
        if not replacement and num_samples > sum(w > 0 for w in self.weights):
            raise ValueError(f"WeightedRandomSampler: fewer than {num_samples} items have a weight above 0")

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        if self.replacement:
            return iter(self.generator.choices(range(len(self.weights)), self.weights, k=self.num_samples))
        # The first of independent exponential times, whose rates are the weights.
        times = [(self.generator.expovariate(w), i) for i, w in enumerate(self.weights) if w > 0]
        return iter([i for _, i in sorted(times)[:self.num_samples]])


class BatchSampler(Sampler[list[int]]):
    """The indices of another sampler in lists of batch_size."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        if batch_size < 1:
            raise ValueError(f"BatchSampler: a batch of {batch_size} items")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        return _in_batches(self.sampler, self.batch_size, self.drop_last)


def _in_batches(items: Iterable[T], n: int, drop_last: bool) -> Iterator[list[T]]:
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == n:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch


def _is_stream(dataset: Any) -> bool:
    """Whether a dataset can only be iterated."""
    if isinstance(dataset, (Data, IterableDataset)):
        return isinstance(dataset, IterableDataset)
    return hasattr(dataset, "__iter__") and not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"))


class DataLoader(Generic[T]):
    """The batches of a dataset, one epoch for each iteration; a dataset may also be any iterable.

    sampler gives the indices of the items in another order, and batch_sampler lists of them; such a loader has no
    position to save.

    With a seed, the order of the items depends on it and on the number of the epoch alone; without one, the seed is that of
    the context. num_workers, pin_memory and PyTorch's other arguments of worker processes have no effect: there is one loader
    thread, and it pins what the device can use.
    """

    def __init__(self, dataset: Any, batch_size: int = 1, shuffle: bool = False, *,
                 sampler: Iterable[int] | None = None, batch_sampler: Iterable[Sequence[int]] | None = None,
                 drop_last: bool = False, seed: int | None = None, collate_fn: Callable[[list], Any] | None = None,
                 num_workers: int = 0, pin_memory: bool = False, persistent_workers: bool = False,
                 prefetch_factor: int | None = None, worker_init_fn: Any = None, timeout: float = 0, generator: Any = None,
                 context: _c.Context | None = None) -> None:
        if generator is not None:
            raise TypeError("DataLoader: random numbers of another library have no effect on the order: pass seed=")
        if batch_size < 1:
            raise ValueError(f"DataLoader: a batch of {batch_size} items")
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.num_workers, self.pin_memory = num_workers, pin_memory
        # One of three: batches of C, of a dataset of its own or of items that its thread makes (_data alone); items made here, in
        # the order of a dataset of their numbers (_data and _collate); items of a sampler or a stream (_collate alone).
        self._collate = collate_fn
        self._bare = False  # whether batches are one tensor instead of a tuple
        self._left: dict[str, int] | None = None  # the position behind the last batch
        self._next_epoch = 0  # the epoch of the next iteration
        self._data: Data | None = None
        self.sampler, self.batch_sampler = sampler, batch_sampler
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last")
        if sampler is not None or batch_sampler is not None:
            if shuffle:
                raise ValueError("DataLoader: a sampler has its own order: it excludes shuffle")
            if isinstance(dataset, Data) or _is_stream(dataset):
                raise ValueError("DataLoader: a sampler needs a dataset with __getitem__ of Python")
            if sampler is not None:
                self.batch_sampler = BatchSampler(sampler, batch_size, drop_last)
            self._collate = collate_fn or default_collate
        elif _is_stream(dataset):
            if shuffle:
                raise ValueError("DataLoader: an IterableDataset or an iterable cannot be shuffled")
            self._collate = collate_fn or default_collate
        else:
            self._data = self._open(context)
            self._data.shuffle(shuffle, self._data.cursor["seed"] if seed is None else seed)
            self._data.drop_last(drop_last)

    def _open(self, context: _c.Context | None) -> Data:
        d = self.dataset
        if isinstance(d, Data):
            if self._collate is not None:
                raise ValueError("DataLoader: a dataset of C makes batches, not items: it has no use for collate_fn")
            return d
        if isinstance(d, TensorDataset) and self._collate is None:
            return arrays(*d.tensors, context=context)
        if not len(d):
            raise ValueError("DataLoader: the dataset has no items")
        used = context or _c.current_context()
        claims = used._claims
        sample = d[0]
        # The loader's thread can make neither items of tensors nor items that tensors of this context are used for.
        if self._collate is None and not _needs_collating(sample) and used._claims == claims:
            self._bare = not isinstance(sample, tuple)
            names = getattr(d, "classes", None)
            names = names if isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names) else None
            return Data(_c.dataset(d.__getitem__, len(d), sample, class_names=names, context=context))
        # The order of the items is that of a dataset of their numbers, which are read on the host.
        self._collate = self._collate or default_collate
        host = context_on("cpu")
        return arrays(_c.arange_i64("int64", 0, len(d), 1, context=host), context=host)

    @property
    def _handle(self) -> _c.Data:
        """The dataset of C, whose position a checkpoint saves."""
        if self._data is None:
            raise TypeError("a DataLoader of a sampler or of an iterable has no position")
        return self._data._handle

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        if self._data is None:
            if not hasattr(self.dataset, "__len__"):
                raise TypeError("a DataLoader of an iterable without a length has none")
            n = len(self.dataset)
            return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        return self._data.num_batches(self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        if self._data is None:
            return self._iterate_all()
        return self._iterate(self._data)

    def _iterate(self, data: Data) -> Iterator[Any]:
        at = data.cursor
        if at == self._left:  # no position was set since the last batch: another iteration, which may still run, left it
            at = {"seed": at["seed"], "epoch": self._next_epoch, "index": 0}
            data.seek(at)
        self._next_epoch = at["epoch"] + 1
        for batch in data.batches(self.batch_size):
            self._left = data.cursor
            if self._collate is not None:
                yield self._collate([self.dataset[i] for i in batch.x.tolist()])
            else:
                yield batch.x if self._bare else batch

    def _iterate_all(self) -> Iterator[Any]:
        assert self._collate is not None
        if self.batch_sampler is not None:
            for indices in self.batch_sampler:
                yield self._collate([self.dataset[int(i)] for i in indices])
            return
        for items in _in_batches(self.dataset, self.batch_size, self.drop_last):
            yield self._collate(items)

    def state_dict(self) -> dict[str, int]:
        """The position, to be saved: the next batch is the one that follows the last one returned."""
        return _c.data_cursor(self._handle)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Sets the position to a saved one, at which the next iteration begins."""
        _c.data_seek(self._handle, **state)
        self._left = None


# ---- progress


class progress(Generic[T]):
    """Iterates and shows how far it is: a line on stderr that is written anew, of a notebook too. The basics of tqdm.

    On a stderr that is no terminal only the last line is written.
    """

    def __init__(self, iterable: Iterable[T], desc: str = "", total: int | None = None, *, file: Any = None,
                 interval: float = 0.1) -> None:
        self.iterable, self.desc, self.interval = iterable, desc, interval
        self.file = sys.stderr if file is None else file
        self.total = len(iterable) if total is None and isinstance(iterable, Sized) else total
        self.count, self._width = 0, 0
        self._notes: dict[str, Any] = {}
        self._begun = self._shown = time.monotonic()
        terminal = getattr(self.file, "isatty", lambda: False)()
        self._live = terminal or type(self.file).__module__.startswith("ipykernel")

    def __len__(self) -> int:
        if self.total is None:
            raise TypeError("the length is not known")
        return self.total

    def note(self, **values: Any) -> None:
        """Shows values behind the bar: bar.note(loss=0.31). Tensors are read when the line is written."""
        self._notes = values

    set_postfix = note

    def __iter__(self) -> Iterator[T]:
        self._begun, self.count = time.monotonic(), 0
        try:
            for item in self.iterable:
                if self._live and time.monotonic() - self._shown >= self.interval:
                    self._show()
                yield item
                self.count += 1
        finally:
            self._show(end="\n")

    def _show(self, end: str = "") -> None:
        self._shown = time.monotonic()
        line = self.line()
        pad = " " * max(self._width - len(line), 0)
        self._width = len(line)
        self.file.write(("\r" if self._live else "") + line + pad + end)
        self.file.flush()

    def line(self) -> str:
        """The line as it would be written now."""
        seconds = max(time.monotonic() - self._begun, 1e-9)
        rate = self.count / seconds
        parts = [self.desc + ":"] if self.desc else []
        if self.total:
            done = min(self.count / self.total, 1.0)
            filled = int(done * 24)
            left = (self.total - self.count) / rate if rate else 0.0
            parts += [f"{100 * done:3.0f}%", f"[{'=' * filled}{'.' * (24 - filled)}]", f"{self.count}/{self.total}",
                      f"{_clock(seconds)}<{_clock(left)}"]
        else:
            parts += [str(self.count), _clock(seconds)]
        parts.append(f"{rate:.1f}/s" if rate >= 1 or not rate else f"{1 / rate:.1f} s each")
        parts += [f"{k}={float(v):.4g}" if hasattr(v, "__float__") else f"{k}={v}" for k, v in self._notes.items()]
        return " ".join(parts)


def _clock(seconds: float) -> str:
    m, s = divmod(int(seconds), 60)
    return f"{m // 60}:{m % 60:02}:{s:02}" if m >= 60 else f"{m}:{s:02}"
