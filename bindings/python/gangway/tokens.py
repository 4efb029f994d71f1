"""python -m gangway.tokens --tokenizer FOLDER TEXT... OUT: token files of texts, by the tokenizer of a model.

The texts are .jsonl files (a document for each line, under --key), or plain texts. OUT is a .bin (Megatron's format, with an
.idx beside it), a .u16 or a .u32 (tokens alone, with an index OUT.documents beside it). gangway.Dataset reads them all.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import random
import re
import sys
from array import array
from collections import Counter
from pathlib import Path
from typing import Any, Iterator, Sequence

import numpy as np

from .structs import shown

_BATCH = 256  # documents that are encoded at once, on all cores
_PACKED = (".gz", ".bz2", ".xz", ".zst")
# Half of a pair, which JSON can write (\ud800) and no tokenizer takes; json.loads has joined whole pairs.
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)
_ESCAPES = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}


class _Refused(Exception):
    """What cannot be done, as a text for the user."""


class _Writer:
    """A token file and where its documents begin. The files get their names at the end."""

    def __init__(self, path: Path, vocab: int) -> None:
        if path.suffix not in (".bin", ".u16", ".u32"):
            raise _Refused(f"the output is {path}, neither a .bin nor a .u16 nor a .u32")
        if path.suffix == ".u16" and vocab > 1 << 16:
            raise _Refused(f"the vocabulary has {vocab} ids, too many for a .u16; write a .u32 or a .bin")
        self.path, self.tokens, self.lengths = path, 0, array("q")
        wide = path.suffix == ".u32" or (path.suffix == ".bin" and vocab > 1 << 16)
        self._dtype = np.dtype("<i4" if wide and path.suffix == ".bin" else "<u4" if wide else "<u2")
        self._part = path.with_name(path.name + ".part")
        self._file = open(self._part, "wb")

    def add(self, ids: Sequence[int]) -> None:
        """A document."""
        self._file.write(np.asarray(ids, self._dtype).tobytes())
        self.lengths.append(len(ids))
        self.tokens += len(ids)

    def _index(self) -> tuple[Path, bytes]:
        lengths = np.frombuffer(self.lengths, np.int64) if self.lengths else np.empty(0, np.int64)
        ends = np.cumsum(lengths)
        count = len(lengths)
        if self.path.suffix != ".bin":
            head = b"GWDOCS1\n" + np.array([self.tokens, count], "<u8").tobytes()
            return self.path.with_name(self.path.name + ".documents"), head + (ends - lengths).astype("<u8").tobytes()
        kind = {"<i4": 4, "<u2": 8}[self._dtype.str]
        head = b"MMIDIDX\0\0" + np.array([1], "<u8").tobytes() + bytes([kind]) + np.array([count, count + 1], "<u8").tobytes()
        pointers = ((ends - lengths) * self._dtype.itemsize).astype("<i8")
        return self.path.with_suffix(".idx"), b"".join(
            (head, lengths.astype("<i4").tobytes(), pointers.tobytes(), np.arange(count + 1, dtype="<i8").tobytes()))

    def commit(self) -> None:
        """Gives the files their names."""
        self._file.close()
        index, content = self._index()
        part = index.with_name(index.name + ".part")
        part.write_bytes(content)
        os.replace(self._part, self.path)
        os.replace(part, index)

    def drop(self) -> None:
        """Removes what was not committed."""
        self._file.close()
        self._part.unlink(missing_ok=True)


def _documents(inputs: Sequence[Path], key: str, separator: str) -> Iterator[str]:
    """The documents. An empty one is "", where the file says that it is one: not between two separators."""
    for path in inputs:
        if path.suffix in _PACKED:
            raise _Refused(f"{path} is packed; unpack it first")
        # utf-8-sig takes the byte order mark away that some programs begin a file with.
        with open(path, encoding="utf-8-sig", newline="") as file:
            try:
                if path.suffix == ".jsonl":
                    yield from _of_json(path, file, key)
                elif separator:
                    yield from _separated(file, separator)
                else:
                    yield file.read()
            except UnicodeDecodeError as error:
                raise _Refused(f"{path} is no UTF-8: {error.reason} in the block of bytes {error.object[error.start:error.end]!r}") from None


def _of_json(path: Path, file: Any, key: str) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)[key]
        except (ValueError, KeyError, TypeError) as error:
            raise _Refused(f"{path}, line {number}: no JSON object with \"{key}\" ({type(error).__name__})") from None
        if not isinstance(text, str):
            raise _Refused(f"{path}, line {number}: \"{key}\" is a {type(text).__name__}, not a text")
        yield text if text.isascii() else text.translate(_SURROGATES)


def _separated(file: Any, separator: str) -> Iterator[str]:
    rest = ""
    while block := file.read(1 << 20):
        *whole, rest = (rest + block).split(separator)
        yield from filter(None, whole)
    if rest:
        yield rest


def _tokenizer(folder: Path) -> tuple[Any, int | None]:
    """The tokenizer, and the id of its end of text."""
    if importlib.util.find_spec("tokenizers") is None:
        raise _Refused("the package tokenizers is missing: pip install tokenizers")
    path = folder / "tokenizer.json" if folder.is_dir() else folder
    if not path.is_file():
        raise _Refused(f"{folder} has no tokenizer.json")
    made = importlib.import_module("tokenizers").Tokenizer.from_buffer(path.read_bytes())
    config = path.with_name("tokenizer_config.json")
    end = json.loads(config.read_text(encoding="utf-8")).get("eos_token") if config.is_file() else None
    name = end.get("content") if isinstance(end, dict) else end
    return made, None if name is None else made.token_to_id(name)


def _aside(count: int, share: float, seed: int) -> set[int]:
    """The numbers of the documents for validation."""
    if not 0 <= share < 1:
        raise _Refused(f"the share for validation is {share:g}, not from 0 to below 1")
    if share == 0:
        return set()
    if count < 2:
        raise _Refused(f"the inputs have {count} documents, so that none can be set aside for validation")
    return set(random.Random(seed).sample(range(count), min(max(round(share * count), 1), count - 1)))


def _write(asked: argparse.Namespace, writers: list[_Writer], tokenizer: Any, end: int | None, separator: str) -> None:
    from .progress import progress

    counts = Counter(bool(text) for text in _documents(asked.texts, asked.key, separator))
    count = counts[True]
    if counts[False]:
        print(f"{counts[False]} empty documents are left out")
    if count == 0:
        raise _Refused("the inputs have no document")
    aside = _aside(count, asked.validation, asked.seed)
    tail = [] if end is None else [end]
    number = 0
    waiting: list[str] = []

    def flush() -> None:
        nonlocal number
        for encoded in tokenizer.encode_batch(waiting, add_special_tokens=False):
            ids = encoded.ids + tail
            if ids:
                writers[1 if number in aside else 0].add(ids)
            number += 1
        waiting.clear()

    for document in progress(filter(None, _documents(asked.texts, asked.key, separator)), rank=0, total=count, unit=" documents"):
        waiting.append(document)
        if len(waiting) == _BATCH:
            flush()
    flush()


def _unescaped(found: re.Match[str]) -> str:
    if found[1] not in _ESCAPES:
        raise _Refused(f"the separator has {found[0]}, which is not known; \\n, \\t, \\0 and \\\\ are")
    return _ESCAPES[found[1]]


def _run(asked: argparse.Namespace) -> None:
    if asked.lines and asked.separator:
        raise _Refused("give either --lines or --separator")
    separator = "\n" if asked.lines else re.sub(r"\\(.?)", _unescaped, asked.separator or "", flags=re.DOTALL)
    missing = [path for path in asked.texts if not path.is_file()]
    if missing:
        raise _Refused(f"{missing[0]} is no file")
    tokenizer, end = _tokenizer(asked.tokenizer)
    if asked.document_end is not None:
        end = None if asked.document_end < 0 else asked.document_end
    vocab = max(tokenizer.get_vocab_size(), (end or 0) + 1)
    paths = [asked.output]
    if asked.validation > 0:
        paths.append(asked.output.with_name(f"{asked.output.stem}.validation{asked.output.suffix}"))
    writers: list[_Writer] = []
    try:
        for path in paths:
            writers.append(_Writer(path, vocab))
        _write(asked, writers, tokenizer, end, separator)
        for writer in writers:
            writer.commit()
            print(f"{shown(writer.path)}: {writer.tokens} tokens of {len(writer.lengths)} documents")
    finally:
        for writer in writers:
            writer.drop()
    if asked.sequence:
        from .dataset import Dataset

        for path in paths:
            made = Dataset(path, sequence=asked.sequence, packing="documents", read_ahead=0)
            print(f"{shown(path)}: {made.rows_per_epoch} rows of {asked.sequence} tokens")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="gangway.tokens", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("texts", nargs="+", type=Path, metavar="TEXT")
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with tokenizer.json, or such a file")
    parser.add_argument("--key", default="text", help="of a .jsonl: what holds the text of a document; default: text")
    parser.add_argument("--separator", help="what stands between the documents of a text; \\n, \\t, \\0 and \\\\ are known; default: each text is one")
    parser.add_argument("--lines", action="store_true", help="each line of a text is a document")
    parser.add_argument("--document-end", type=int, help="the token after each document; -1: none; default: the eos_token")
    parser.add_argument("--validation", type=float, default=0.0, help="the share of documents that go into OUT.validation.*")
    parser.add_argument("--seed", type=int, default=0, help="decides which documents those are; default: 0")
    parser.add_argument("--sequence", type=int, help="make the index of rows of so many tokens, too")
    try:
        _run(parser.parse_args(arguments))
    except (_Refused, OSError) as error:
        sys.exit(f"gangway.tokens: {error}")


if __name__ == "__main__":
    main()
