"""Paths: everything that the system takes, by every call that takes a path."""

import os
import pathlib
import re

import numpy as np
import pytest

import gangway as gw
from gangway import _low
from gangway.structs import struct

SMALL = dict(dim=16, layers=1, heads=2, ffn=16, vocab=16)


def forms(folder):
    """One folder each, as what os.fspath gives or as it is."""
    top = str(folder)
    yield "Path", pathlib.Path(top) / "a"
    yield "bytes", os.fsencode(top + "/b")
    yield "spaces", top + "/c d/e f"
    yield "not ASCII", top + "/\u017c\u00f3\u0142w \U0001f422"
    yield "not UTF-8", os.fsdecode(os.fsencode(top) + b"/caf\xe9")
    yield "not UTF-8, bytes", os.fsencode(top) + b"/the\xe9"
    yield "a new line", top + "/a\nb"
    yield "a trailing slash", top + "/t/"
    yield "a long name", top + "/" + "n" * 255


def inside(folder, name):
    """A file of the folder, as the same kind of path."""
    return os.path.join(os.fsencode(folder), name.encode()) if isinstance(folder, bytes) else os.path.join(folder, name)


def test_models_are_saved_and_loaded_by_any_path(tmp_path):
    model = gw.Llama(**SMALL).parallelize()
    for what, folder in forms(tmp_path):
        model.save(folder)
        assert os.path.exists(inside(folder, "model.safetensors")), what
        model.load(folder)
        assert gw.from_pretrained(folder).num_parameters() == model.num_parameters(), what
        assert gw.Decoder.options_from(folder)["dim"] == 16


def test_runs_are_kept_by_any_path(tmp_path):
    model = gw.Linear(3, 2).parallelize()
    opt = gw.AdamW(model)
    for what, folder in forms(tmp_path):
        run = gw.Checkpoints(folder, synchronous=True)
        run.save(model, opt, step=3)
        assert run.restore(model, opt).step == 3, what
        run.release()
        metrics = gw.Metrics(model, json_lines=inside(folder, "metrics.jsonl"), csv=inside(folder, "metrics.csv"),
                             svg=inside(folder, "loss.svg"))
        metrics.release()
        assert gw.FileStore(inside(folder, "store")) is not None
        with gw.Gang.create(rank=0, size=1, engine="self").trace(inside(folder, "trace")):
            pass
        assert os.path.exists(inside(inside(folder, "trace"), "rank-0.json")), what


def test_tokens_are_read_by_any_path(tmp_path):
    for what, folder in forms(tmp_path):
        os.makedirs(folder)
        path = inside(folder, "tokens.u16")
        np.arange(64, dtype=np.uint16).tofile(path)
        for given in (path, [path]):
            data = gw.Dataset(given, sequence=8)
            assert data.rows_per_epoch > 0, what
            place = data.position()
            data.restore(place)


def test_a_missing_file_is_named_as_the_system_has_it(tmp_path):
    missing = os.fsencode(tmp_path) + b"/caf\xe9"
    with pytest.raises(FileNotFoundError) as caught:
        gw.Linear(3, 2).materialize().load(missing)
    assert os.fsencode(caught.value.filename).startswith(missing)
    str(caught.value).encode()  # the text can be printed


def takers(model):
    opt = gw.AdamW(model)
    yield "folder", model.save
    yield "path", model.load
    yield "folder", gw.from_pretrained
    yield "folder", gw.Decoder.options_from
    yield "folder", gw.Checkpoints
    yield "carry_from", lambda path: gw.Checkpoints("/tmp/none", carry_from=path)
    yield "path", lambda path: gw.load_optimizer(opt, path)
    yield "folder", gw.FileStore
    yield "folder", lambda path: gw.Gang.create(rank=0, size=1, engine="self").trace(path).__enter__()
    yield "paths", gw.Dataset
    yield r"paths\[1\]", lambda path: gw.Dataset(["/tmp/none", path])
    for name in ("json_lines", "csv", "svg"):
        yield name, lambda path, name=name: gw.Metrics(model, **{name: path})


def test_what_is_no_path_is_a_type_error_that_names_the_argument():
    """And a zero byte, which no path has, a wrong value."""
    for name, call in takers(gw.Linear(3, 2).materialize()):
        with pytest.raises(TypeError, match=f"^{name} is an? int, not a path"):
            call(3)
        for path in ("/tmp/z\0y", b"/tmp/z\0y"):
            with pytest.raises(gw.InvalidArgument, match=r"has a zero byte at 6"):
                call(path)
        with pytest.raises(gw.InvalidArgument, match=f"^{name} is no path of the system"):
            call("/tmp/\ud800")


def test_only_paths_are_taken_as_bytes():
    with pytest.raises(TypeError, match="name is a bytes, not a str"):
        struct("gw_gang_options", name=b"name")


def test_every_path_of_the_headers_is_known_as_one():
    """gangway.i and stubs.py name the parameters and fields that are paths; a new one belongs there."""
    headers = pathlib.Path(__file__).resolve().parents[3] / "capi" / "include" / "gangway"
    texts = "".join(path.read_text() for path in headers.glob("*.h") if path.name != "api.h")
    named = set(re.findall(r"const char \*(\w*(?:path|folder|file)\w*)\b", texts))
    interface = (pathlib.Path(__file__).resolve().parents[1] / "swig" / "gangway.i").read_text()
    known = set(re.findall(r"const char \*(\w+)[ ,{]", interface[interface.index("// The names of parameters"):].partition("gwpy_path")[0]))
    assert named <= known and known, named - known
