"""Each status comes as its exception, with code, text, rank and peer."""

import ctypes
import errno
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from ranks import over

import gangway as gw
from gangway import _low, errors, low
from gangway.structs import struct


@pytest.mark.parametrize("status", [s for s in gw.Status if s > 0], ids=lambda s: s.name)
def test_each_status_has_its_exception(status):
    kind = errors.BY_STATUS[status]
    error = errors.make(status, "text", "gang", 1, 2, "op", 5)
    assert type(error) is kind and isinstance(error, gw.GangwayError) and str(error) == "text"
    assert (error.code, error.rank, error.peer, error.gang, error.op, error.system_error) == (status, 1, 2, "gang", "op", 5)
    assert _low.gw_status_name(status) == status.name


class InC(gw.Module):
    """A custom module in C, whose forward returns a status."""

    FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)

    def __init__(self, status):
        self.forward_in_c = self.FUNCTION(lambda user, call: status)
        options = struct("gw_custom_options", name="InC", forward=low.py_call, backward_input=low.py_call, output_count=2)
        abi = (Path(__file__).resolve().parents[3] / "capi" / "abi.txt").read_text()
        offset = re.search(r"struct gw_custom_options .*?\n +(\d+) +8  gw_call_fn forward\n", abi, re.S)[1]
        ctypes.c_void_p.from_address(int(options.this) + int(offset)).value = ctypes.cast(self.forward_in_c, ctypes.c_void_p).value
        super().__init__(_low.gw_custom_create(options))


@pytest.mark.parametrize("status", [s for s in gw.Status if s > 0], ids=lambda s: s.name)
def test_each_status_that_a_step_fails_with_arrives_as_its_own_exception(status):
    root = gw.Gang.create(name="alone")
    model = InC(status).parallelize(gw.Gangs.create(root))
    with pytest.raises(gw.GangwayError) as caught:
        gw.train_step(model, gw.SGD(model), np.ones((1, 3), np.float32), weight=1)
    error = caught.value
    assert type(error) is errors.BY_STATUS[status]
    assert error.text == f"InC: its forward callback returned {status:d} ({status.name})" == str(error)
    assert (error.code, error.rank, error.peer, error.gang, error.op) == (status, -1, -1, "", "gw_train_step")


def test_an_entry_that_a_store_alters_fails_the_gang():
    values, found = {}, {}

    class Altering(gw.Store):
        def __init__(self, rank):
            self.rank = rank
            super().__init__()

        def put(self, key, value):
            values[key] = value

        def get(self, key):
            if self.rank == 0 and 1 in found:
                raise ZeroDivisionError("rank 1 is gone")
            value = values.get(key)
            return b"altered" if self.rank == 1 and value and key.endswith("host/arena") else value

        def remove(self, key):
            values.pop(key, None)

    def create(rank):
        try:
            gw.Gang.create(store=Altering(rank), rank=rank, size=2, timeout=60)
        except Exception as error:
            found[rank] = error

    ranks = [threading.Thread(target=create, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert type(found[0]) is ZeroDivisionError
    assert type(found[1]) is gw.GangFailed and found[1].code == gw.Status.GANG
    assert found[1].text == "host engine: a bad entry in the store" == str(found[1])


def test_an_unknown_status_is_an_error_too():
    assert errors.make(99, "text", "", -1, -1, "", 0).code == 99


def test_a_wrong_argument_raises_its_exception(tmp_path):
    with pytest.raises(gw.NotSupported, match="nccl"):
        gw.Gang.create(engine="nccl")
    with pytest.raises(gw.InvalidArgument, match="rank 5"):
        gw.Gang.create(rank=5, size=2)
    with pytest.raises(TypeError, match="unexpected keyword argument .colour."):
        gw.Gang.create(colour=1)
    model = gw.Linear(4, 3)
    with pytest.raises(gw.InvalidState, match="gw_parallelize or gw_module_materialize"):
        gw.AdamW(model)
    with pytest.raises(gw.NotFound, match="no parameter"):
        model.materialize()["nobody"]
    with pytest.raises(FileNotFoundError, match="No such file") as missing:
        model.load(tmp_path / "nothing")
    assert missing.value.filename == str(tmp_path / "nothing") and missing.value.errno == errno.ENOENT
    assert isinstance(missing.value, gw.FileFailed) and missing.value.strerror == os.strerror(errno.ENOENT)
    with pytest.raises(FileNotFoundError) as missing:
        gw.from_pretrained(tmp_path)
    assert missing.value.filename == str(tmp_path / "config.json")
    gw.Linear(4, 3, bias=False).materialize().save(tmp_path / "less")
    with pytest.raises(gw.NotFound, match="bias"):
        model.load(tmp_path / "less")
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(gw.Corrupt):
        model.load(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(gw.FileFailed) as caught:
        model.save(tmp_path / "file" / "folder")
    assert isinstance(caught.value, OSError) and caught.value.errno == errno.ENOTDIR
    assert not isinstance(caught.value, FileNotFoundError)
    with pytest.raises(gw.OutOfMemory, match="[0-9]"):
        gw.Gang.create().empty((1 << 50,))
    with pytest.raises(gw.InvalidArgument, match="heads"):
        gw.Llama(dim=30, heads=4)
    gang = gw.Gang.create()
    gang.release()
    with pytest.raises(gw.InvalidState, match="released"):
        gang.barrier()


def test_a_forked_child_is_refused():
    program = """
import os, sys, gangway as gw
gang = gw.Gang.create(); gang.barrier()
child = os.fork()
if child == 0:
    try: gang.barrier()
    except gw.Forked: os._exit(7)
    os._exit(1)
sys.exit(0 if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7 else 1)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=600).returncode == 0


@over(2)
def test_a_mismatch_names_both_calls(gangs):
    gang = gangs.root
    with pytest.raises((gw.Mismatch, gw.Aborted, gw.PeerLost)) as caught:
        gang.all_reduce(np.ones(3)) if gang.rank == 0 else gang.all_gather(np.ones(3))
    assert "all_reduce" in str(caught.value) and "all_gather" in str(caught.value)
    assert isinstance(caught.value, gw.Mismatch)


@over(2, status=128 + signal.SIGKILL, says="PeerLost: peer 1")
def test_a_lost_peer_is_named(gangs):
    gang = gangs.root
    signal.signal(signal.SIGTERM, lambda *_: None)  # the launcher ends the other ranks
    gang.barrier()
    if gang.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(gw.PeerLost, match="rank 1 .*signal 9") as caught:
        gang.barrier()
    lost = caught.value
    assert (lost.code, lost.rank, lost.gang, lost.op, lost.text) == (gw.Status.PEER_LOST, 0, gang.name, "barrier", str(lost))
    print(f"PeerLost: peer {lost.peer}", flush=True)
    os._exit(0)


@over(2)
def test_the_gangs_deadline_is_a_timeout(gangs):
    late = gw.Gang.create_threads(2, timeout=0.3)  # the second one never comes
    with pytest.raises(gw.Timeout) as caught:
        late[0].barrier()
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(gw.GangwayError):
        late[0].check()


def test_the_least_deadline_is_a_deadline_and_none_is_the_default():
    late = gw.Gang.create_threads(2, timeout=1e-9)
    with pytest.raises(gw.Timeout):
        late[0].barrier()
    gw.Gang.create(timeout=None).barrier()


@over(2)
def test_a_wait_that_runs_out_is_harmless(gangs):
    gang = gangs.root
    order = gang.duplicate()
    x = np.ones(1 << 10)
    if gang.rank == 0:
        work = gang.all_reduce_async_(x)
        with pytest.raises(gw.NotReady):
            work.wait(0.05)
        assert not work.done()
    order.barrier()
    if gang.rank == 1:
        work = gang.all_reduce_async_(x)
    work.wait(60)
    work.check()
    assert (x == 2).all()


@over(2)
def test_abort_wakes_peers_with_its_reason(gangs):
    gang = gangs.root
    if gang.rank == 1:
        gang.abort("the coffee is out")
    with pytest.raises(gw.Aborted, match="the coffee is out") as caught:
        while True:
            gang.barrier()
    assert caught.value.rank in (-1, gang.rank) and gw.Status.ABORTED == caught.value.code


@pytest.mark.parametrize("way", ["gangs", "gangs with options", "gang"])
def test_a_gang_is_shut_down_by_its_with_block(way):
    makes = {"gangs": gw.init, "gangs with options": lambda: gw.init(timeout=60), "gang": gw.Gang.create}
    with makes[way]() as thing:
        gang = thing if way == "gang" else thing.root
        gang.barrier()
    with pytest.raises(gw.InvalidState, match="was shut down"):
        gang.barrier()


@over(2)
def test_a_body_that_raises_aborts_its_gang(gangs):
    with pytest.raises((ZeroDivisionError, gw.Aborted)) as caught:
        with gangs.root as gang:
            if gang.rank == 0:
                1 / 0
            gang.barrier()
    assert "ZeroDivisionError" in repr(caught.value) or gangs.rank == 0


@pytest.mark.parametrize("make", [gw.init, lambda: gw.init(timeout=60), gw.Gang.create], ids=["gangs", "options", "gang"])
def test_a_body_may_raise_what_no_text_can_say(make):
    class Silent(Exception):
        def __str__(self):
            raise ZeroDivisionError

    for error, said in ((ValueError("\ud800 \0."), r"ValueError: \? \?\."), (Silent(), "Silent: no text")):
        with pytest.raises(type(error)):
            with make() as thing:
                gang = getattr(thing, "root", thing)
                raise error
        with pytest.raises(gw.GangwayError, match=f"rank 0: {said}"):
            gang.check()


def test_a_zero_byte_in_a_text_is_refused():
    with pytest.raises(gw.InvalidArgument, match="reason has a zero byte at 1"):
        gw.Gang.create().abort("a\0b")
    with pytest.raises(gw.InvalidArgument, match="zero byte"):
        gw.Gang.create(name="a\0b")


def test_lists_take_live_handles_of_their_kind_alone():
    model, other = gw.Linear(4, 3), gw.Linear(4, 3)
    with pytest.raises(TypeError, match="a shard group is a Linear, not a ShardGroup"):
        gw.AdamW([model])
    model.release()
    with pytest.raises(gw.InvalidState, match="released"):
        gw.Sequential(model)
    with pytest.raises(gw.InvalidState, match="released"):
        gw.Sequential(other, model)


@over(2)
def test_a_body_that_raises_aborts_its_gangs(gangs):
    with pytest.raises((ZeroDivisionError, gw.Aborted)) as caught:
        with gangs:
            if gangs.rank == 0:
                1 / 0
            gangs.root.barrier()
    assert "ZeroDivisionError" in repr(caught.value) or gangs.rank == 0


def test_two_threads_on_one_model_get_the_same_numbers_or_are_busy():
    model = gw.Llama(vocab=64, dim=32, layers=2, heads=4).parallelize(seed=1)
    tokens = np.tile(np.arange(32), (8, 1))
    alone, seen, together = gw.eval_step(model, tokens).loss, [], threading.Barrier(2)

    def work():
        together.wait()
        for _ in range(40):
            try:
                seen.append(gw.eval_step(model, tokens).loss == alone)
            except gw.Busy as busy:
                seen.append("take turns" in busy.text)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 80 and all(seen)
