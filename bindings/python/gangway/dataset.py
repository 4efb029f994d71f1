"""Datasets: files of tokens as the batches of a training.

    data = gw.Dataset(["web.bin", "code.bin"], weights=[0.7, 0.3], sequence=2048, seed=1)
    for batch in data.batches(gangs, global_batch=512):      # this rank's rows
        result = gw.train_step(model, opt, batch)
    place = data.position()                                  # a few bytes of JSON; another run: data.restore(place)

python -m gangway.tokens makes such files of texts.
"""

from __future__ import annotations

import os
from typing import Any, Iterable, Iterator, Sequence

import numpy as np

from . import _low as c
from . import low
from .enums import DType, Packing
from .errors import InvalidState
from .members import member
from .mesh import Gangs
from .names import DataFormat, PackingLike
from .options import gangs_of
from .structs import PathLike, block, path_of, struct, text


class DataBatch:
    """This rank's rows of one global batch: train_step(model, opt, batch). It is good until the next but one batch is taken.

    rows: the global batch has the rows from rows[0] up to rows[1] of the training; rank_rows: of them, this rank.
    label_count: this rank's labels that count. data_seconds: how long the rows were waited for."""

    def __init__(self, dataset: Dataset, raw: Any, number: int) -> None:
        self._dataset, self._raw, self._number = dataset, raw, number
        self.rows: tuple[int, int] = (raw.first_row, raw.last_row)
        self.rank_rows: tuple[int, int] = (raw.rank_first_row, raw.rank_last_row)
        self.label_count: int = raw.label_count
        self.data_seconds: float = raw.data_seconds

    def __repr__(self) -> str:
        return f"<DataBatch: rows {self.rank_rows[0]} to {self.rank_rows[1]} of {self.rows[0]} to {self.rows[1]}>"

    def _good(self) -> Any:
        if self._dataset._calls > self._number + 1:
            raise InvalidState(f"{self!r} is over: the dataset has given two more batches, whose memory this one was")
        return self._raw

    def raw_batch(self) -> Any:
        """For a step: the library's own struct."""
        return self._good().batch

    def _copy(self, view: Any, dtype: DType) -> np.ndarray[Any, Any]:
        shape = (self.rank_rows[1] - self.rank_rows[0], self._dataset.sequence)
        if shape[0] == 0:  # there is no memory to show
            return np.empty(shape, np.int64 if dtype is DType.I64 else np.int32)
        return np.from_dlpack(c.make_view(view.data, shape, int(dtype), self._dataset)).copy()

    @property
    def tokens(self) -> np.ndarray[Any, Any]:
        """A copy: int64 [rows, sequence]; 0 where there is padding."""
        return self._copy(self._good().tokens, DType.I64)

    @property
    def labels(self) -> np.ndarray[Any, Any]:
        """A copy: int64 [rows, sequence]; the token that follows, -100 where none does."""
        return self._copy(self._good().labels, DType.I64)

    @property
    def documents(self) -> np.ndarray[Any, Any] | None:
        """A copy: int32 [rows, sequence], the document of each token in its row, -1 where there is padding. None: the packing
        is "stream"."""
        raw = self._good()
        return self._copy(raw.documents, DType.I32) if self._dataset.packing is Packing.DOCUMENTS else None


class Dataset:
    """Rows of `sequence` tokens out of files, in an order that depends on the seed alone, and never on the ranks.

    paths: one or several of: a file, a folder, a pattern. Each is a source, whose rows come once in each of its epochs.
    weights: the share of each source in the rows; None: equal ones.
    format: "u8", "u16", "u32", "llm.c", "megatron", "npy"; None: by the files' names.
    packing: "stream" (rows of consecutive tokens) or "documents" (whole documents packed into rows).
    document_end: the id that ends each packed document; None: by the index of Megatron or of gw-tokens.
    vocab_size: ids from this number on are refused; None: ids are not compared.
    shuffle: False: the rows of a source come in the order of its files.
    read_ahead: how many batches a thread reads ahead."""

    def __init__(
        self, paths: PathLike | Sequence[PathLike], *, weights: Sequence[float] | None = None, sequence: int = 2048,
        packing: PackingLike = "stream", seed: int = 0, format: DataFormat | None = None, document_end: int | None = None,
        vocab_size: int | None = None, shuffle: bool = True, read_ahead: int = 2,
    ) -> None:
        given: Any = paths
        several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, os.PathLike))
        listed = list(given) if several else [given]
        shares = [None] * len(listed) if weights is None else list(weights)
        if len(shares) != len(listed):
            raise ValueError(f"weights has {len(shares)} numbers, paths {len(listed)}")
        named = [path_of(path, f"paths[{i}]" if several else "paths") for i, path in enumerate(listed)]
        sources = [struct("gw_data_source", path=path, format=format, weight=share) for path, share in zip(named, shares)]
        self.packing = member(Packing, packing, "packing")
        self.sequence = sequence
        self._h = c.gw_dataset_create(struct(
            "gw_dataset_options", sources=block("s", sources), source_count=len(sources), sequence=sequence,
            packing=self.packing, seed=seed, document_end=document_end, vocab_size=vocab_size, shuffle=shuffle,
            read_ahead=read_ahead))
        self._calls = 0

    def __repr__(self) -> str:
        if self._h is c.RELEASED:
            return "<Dataset: released>"
        return f"<Dataset: {self.rows_per_epoch:,} rows of {self.sequence:,} tokens, {self.rows_taken:,} taken>"

    def next(self, gangs: Gangs | None = None, *, global_batch: int) -> DataBatch:
        """The next global_batch rows: those of this rank's data coordinate. Every rank gives the same number. No gangs: the
        thread's current ones, else all rows."""
        raw = low.gw_data_batch()
        c.gw_dataset_next(self._h, gangs_of(gangs), global_batch, raw)
        self._calls += 1
        return DataBatch(self, raw, self._calls)

    def batches(self, gangs: Gangs | None = None, *, global_batch: int, count: int | None = None) -> Iterator[DataBatch]:
        """next() for ever, epoch after epoch, or `count` times."""
        while count is None or count > 0:
            yield self.next(gangs, global_batch=global_batch)
            count = None if count is None else count - 1

    @property
    def rows_per_epoch(self) -> int:
        """Of all sources."""
        return int(c.gw_dataset_rows_per_epoch(self._h))

    @property
    def batches_taken(self) -> int:
        """Also before a restore."""
        return int(c.gw_dataset_batches_taken(self._h))

    @property
    def rows_taken(self) -> int:
        """The place in the training, over all ranks. Set it to go elsewhere: 0 at the beginning of each evaluation."""
        return int(c.gw_dataset_rows_taken(self._h))

    @rows_taken.setter
    def rows_taken(self, rows: int) -> None:
        c.gw_dataset_set_rows_taken(self._h, rows)

    def position(self) -> str:
        """The place as JSON, the same on every rank."""
        return text(c.gw_dataset_position, self._h)

    def restore(self, position: str, *, ignore_differences: bool = False) -> None:
        """Goes to such a place. Files and options that decide the order must be as they were, unless ignore_differences."""
        c.gw_dataset_restore(self._h, position, int(ignore_differences))

    def release(self) -> None:
        """Drops the handle now. Batches that it gave are over."""
        self._calls += 2
        self._h = c.RELEASED
