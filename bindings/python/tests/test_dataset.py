"""Datasets, and the token files that python -m gangway.tokens makes."""

import json
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from ranks import together

import gangway as gw
from gangway import tokens


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.u16"
    np.arange(1001, dtype=np.uint16).tofile(path)
    return path


def test_batches_have_tokens_labels_and_a_place(file):
    data = gw.Dataset(file, sequence=8, seed=1)
    assert data.rows_per_epoch == 125 and "125 rows of 8 tokens" in repr(data)
    for k, batch in enumerate(data.batches(global_batch=5, count=4)):
        assert batch.rows == (5 * k, 5 * k + 5) == batch.rank_rows
        assert batch.tokens.shape == (5, 8) and batch.tokens.dtype == np.int64 and batch.documents is None
        np.testing.assert_array_equal(batch.labels, batch.tokens + 1)
        assert batch.label_count == 40 and batch.data_seconds >= 0
    assert (data.rows_taken, data.batches_taken) == (20, 4)


def test_a_batch_is_over_after_two_more(file):
    data = gw.Dataset(file, sequence=8)
    first, second = data.next(global_batch=2), data.next(global_batch=2)
    kept = first.tokens
    data.next(global_batch=2)
    with pytest.raises(gw.InvalidState, match="is over"):
        first.tokens
    np.testing.assert_array_equal(kept + 1, kept + 1)
    assert second.tokens.shape == (2, 8)
    data.release()
    with pytest.raises(gw.InvalidState, match="is over"):
        second.tokens


@together(1, 2, 3)
def test_training_takes_the_same_rows_on_any_number_of_ranks(gangs):
    path = None
    if gangs.rank == 0:
        path = f"{tempfile.mkdtemp()}/a.u8"
        np.arange(5000).astype(np.uint8).tofile(path)
    path = gangs.root.broadcast_object(path)
    alone = gw.Gangs.create(gw.Gang.create_threads(1)[0])

    def losses(where):
        model = gw.Llama(vocab=256, dim=16, layers=1, heads=2).parallelize(where, master_dtype="f64", seed=1)
        opt, data = gw.AdamW(model, lr=1e-2), gw.Dataset([path, path], weights=[2, 1], sequence=16, seed=3)
        found = [gw.train_step(model, opt, batch).loss for batch in data.batches(where, global_batch=7, count=3)]
        data.rows_taken = 0
        return found + [gw.eval_step(model, data.next(where, global_batch=7)).loss]

    np.testing.assert_allclose(losses(gangs), losses(alone), rtol=1e-12)


def test_a_place_goes_on_in_another_dataset(file):
    before, after = gw.Dataset(file, sequence=8), gw.Dataset(file, sequence=8)
    for _ in before.batches(global_batch=7, count=3):
        pass
    place = before.position()
    assert json.loads(place)["rows"] == 21
    after.restore(place)
    assert (after.rows_taken, after.batches_taken) == (21, 3)
    np.testing.assert_array_equal(before.next(global_batch=4).tokens, after.next(global_batch=4).tokens)
    other = gw.Dataset(file, sequence=16)
    with pytest.raises(gw.Mismatch, match="sequence was 8 and is 16 now"):
        other.restore(place)
    other.restore(place, ignore_differences=True)
    assert other.rows_taken == 21


def test_packed_documents_say_which_they_are(tmp_path):
    path = tmp_path / "a.u8"
    path.write_bytes(bytes([1, 2, 0, 3, 0, 4, 5, 6, 7, 0]))
    data = gw.Dataset(path, sequence=6, packing="documents", document_end=0, shuffle=False)
    batch = data.next(global_batch=2)
    assert batch.documents.dtype == np.int32
    assert batch.documents.tolist() == [[0, 0, 0, 1, 1, -1], [0, 0, 0, 0, 0, -1]]
    assert batch.labels.tolist() == [[2, 0, -100, 0, -100, -100], [5, 6, 7, 0, -100, -100]]


def test_attention_stays_inside_of_documents(tmp_path):
    path = tmp_path / "a.u8"
    path.write_bytes(bytes([1, 2, 0, 3, 0, 4, 5, 6, 7, 0]))
    data = gw.Dataset(path, sequence=6, packing="documents", document_end=0, shuffle=False)
    model = gw.Llama(vocab=8, dim=16, layers=1, heads=2).parallelize()
    batch = data.next(global_batch=2)
    packed = gw.eval_step(model, batch)
    assert gw.eval_step(model, batch.tokens, batch.labels, documents=batch.documents).loss == packed.loss
    assert gw.eval_step(model, batch.tokens, batch.labels).loss != packed.loss
    made = gw.eval_step(model, batch.tokens, documents=batch.documents)
    assert made.weight == batch.label_count and abs(made.loss - packed.loss) < 1e-6
    positions = 2 * np.arange(12).reshape(2, 6)
    moved = gw.train_step(model, gw.SGD(model), batch.tokens, documents=batch.documents, positions=positions)
    assert moved.weight == made.weight and moved.loss != made.loss
    with pytest.raises(gw.InvalidArgument, match="document 0 comes again at token 4 of row 1"):
        gw.eval_step(model, batch.tokens, documents=np.array([[0] * 6, [0, 0, 0, 1, 0, 0]]))
    with pytest.raises(TypeError, match="own targets, weight and documents"):
        gw.eval_step(model, batch, documents=batch.documents)


def test_bad_input_is_refused_by_its_name(file, tmp_path):
    with pytest.raises(ValueError, match="weights has 1 numbers, paths 2"):
        gw.Dataset([file, file], weights=[1])
    with pytest.raises(gw.InvalidArgument, match="sources\\[1\\].weight is 0"):
        gw.Dataset([file, file], weights=[1, 0])
    with pytest.raises(FileNotFoundError, match="none.u8"):
        gw.Dataset(tmp_path / "none.u8")
    with pytest.raises(gw.NotFound, match="no file of tokens matches"):
        gw.Dataset(str(tmp_path / "*.u8"))
    with pytest.raises(gw.InvalidArgument, match="packing is \"other\""):
        gw.Dataset(file, packing="other")
    with pytest.raises(gw.Corrupt, match="vocabulary has the ids 0 to 99"):
        gw.Dataset(file, sequence=500, vocab_size=100).next(global_batch=3)
    model = gw.Llama(vocab=2000, dim=16, layers=1, heads=2).parallelize()
    batch = gw.Dataset(file, sequence=8).next(global_batch=2)
    with pytest.raises(TypeError, match="has its own targets"):
        gw.eval_step(model, batch, batch.tokens)


# --- python -m gangway.tokens

class Words:
    """Stands for a tokenizer of the package tokenizers: an id for each word of its list."""

    def __init__(self, words):
        self.words = words

    def get_vocab_size(self):
        return len(self.words)

    def encode_batch(self, texts, add_special_tokens):
        assert not add_special_tokens
        return [type("Encoding", (), {"ids": [self.words.index(word) for word in text.split()]}) for text in texts]


@pytest.fixture
def words(monkeypatch):
    monkeypatch.setattr(tokens, "_tokenizer", lambda folder: (Words(["<end>", "a", "b", "c"]), 0))


def rows_of(path, count):
    data = gw.Dataset(path, sequence=12, packing="documents", shuffle=False)
    batch = data.next(global_batch=data.rows_per_epoch)
    found = []
    for row, numbers in zip(batch.tokens, batch.documents):
        found += [row[numbers == n].tolist() for n in range(numbers.max() + 1)]
    assert len(found) == count
    return found


@pytest.mark.parametrize("ending", [".bin", ".u16", ".u32"])
def test_json_lines_become_documents(tmp_path, words, ending, capsys):
    text, out = tmp_path / "in.jsonl", tmp_path / f"out{ending}"
    text.write_text('{"text": "a b"}\n\n{"text": ""}\n{"text": "c"}\n')
    tokens.main(["--tokenizer", "folder", str(text), str(out), "--sequence", "12"])
    assert "5 tokens of 2 documents" in (said := capsys.readouterr().out) and "1 rows of 12 tokens" in said
    assert "1 empty documents are left out" in said
    assert rows_of(out, 2) == [[1, 2, 0], [3, 0]]


def test_validation_and_separators_cut_whole_documents(tmp_path, words):
    text, out = tmp_path / "in.txt", tmp_path / "out.bin"
    text.write_text("|".join(["a b", "b", "c a", "a"] * 5))
    tokens.main(["--tokenizer", "folder", str(text), str(out), "--separator", "|", "--validation", "0.2"])
    assert len(rows_of(out, 16)) == 16 and len(rows_of(tmp_path / "out.validation.bin", 4)) == 4


def test_half_a_surrogate_pair_is_replaced_and_a_byte_order_mark_taken_away(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "_tokenizer", lambda folder: (Words(["<end>", "a", "a\ufffd", "\U0001f600"]), 0))
    text, out = tmp_path / "in.jsonl", tmp_path / "out.bin"
    text.write_text('\ufeff{"text": "a"}\n{"text": "a\\ud800 \\ud83d\\ude00"}\n')
    tokens.main(["--tokenizer", "folder", str(text), str(out)])
    assert rows_of(out, 2) == [[1, 0], [2, 3, 0]]


def test_what_cannot_be_done_is_one_line(tmp_path, words):
    (tmp_path / "packed.jsonl.gz").touch()
    (tmp_path / "latin.txt").write_bytes(b"a\xe9b")
    text, out = tmp_path / "in.jsonl", tmp_path / "out.bin"
    text.write_text('{"text": "a"}\n{"other": 1}\n')
    for arguments, why in (
        ([text, out], "line 2: no JSON object with \"text\""), ([text, tmp_path / "x.txt"], "neither a .bin nor"),
        ([tmp_path / "none", out], "none is no file"), ([text, out, "--key", "other"], "line 1: no JSON object"),
        ([tmp_path / "packed.jsonl.gz", out], "packed.jsonl.gz is packed; unpack it first"),
        ([tmp_path / "latin.txt", out], "latin.txt is no UTF-8"),
        ([text, out, "--separator", r"\q"], r"the separator has \\q, which is not known"),
    ):
        with pytest.raises(SystemExit, match=why):
            tokens.main(["--tokenizer", "folder", *map(str, arguments)])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.jsonl", "latin.txt", "packed.jsonl.gz"]


def test_without_the_package_or_the_file_it_says_what_is_missing(tmp_path):
    (tmp_path / "in.txt").write_text("a")
    code = "import sys; sys.modules['tokenizers'] = None; from gangway.tokens import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "--tokenizer", str(tmp_path), str(tmp_path / "in.txt"), "out.bin"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "pip install tokenizers" in done.stderr and "Traceback" not in done.stderr
