"""Texts between languages and ranks: whatever is in them, they arrive, and an error is never lost for its text."""

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest
from ranks import over

import gangway as gw
from gangway import _low
from gangway.structs import struct

UMLAUTS = "äöü" * 340  # 2 kB in UTF-8


class Failing:
    def __init__(self, rank):
        self.rank = rank

    def shapes(self, x):
        return [x]

    def forward(self, call):
        if self.rank == 0:
            raise ValueError(UMLAUTS)
        call.set_outputs(call.inputs[0])

    def backward_input(self, call):
        call.set_input_grads(call.output_grads[0])


@over(2)
def test_a_long_text_of_umlauts_reaches_the_peer_cut_between_characters(gangs):
    model = gw.Sequential(gw.Linear(3, 3), gw.Custom(Failing(gangs.rank))).parallelize(gangs)
    with pytest.raises((ValueError, gw.Aborted)) as caught:
        model.forward(np.ones((1, 3), np.float32), frame=gw.Frame(model))
        gangs.root.barrier()
    if gangs.rank == 0:
        assert type(caught.value) is ValueError and caught.value.args == (UMLAUTS,)
    else:
        text = caught.value.text
        said = text[text.index("ä"):]
        assert "ValueError: ä" in text and len(said) > 50 and UMLAUTS.startswith(said)


@over(2)
def test_a_reason_of_two_lines_is_one_on_every_rank(gangs):
    if gangs.rank == 0:
        gangs.abort("first\nsecond\r\n\tthird")
    with pytest.raises(gw.Aborted) as caught:
        gangs.root.barrier()
    text = caught.value.text
    assert "first second   third" in text and text.isprintable() and text == str(caught.value)


def named_in_c(name):
    """A gang by a program in C, to whose bytes no one has looked."""
    abi = (Path(__file__).resolve().parents[3] / "capi" / "abi.txt").read_text()
    offset = re.search(r"struct gw_gang_options .*?\n +(\d+) +8  const char \*name\n", abi, re.S)[1]
    options = struct("gw_gang_options")
    ctypes.c_char_p.from_address(int(options.this) + int(offset)).value = name
    return gw.Gang(_low.gw_gang_create(options))


def test_a_gang_whose_name_is_no_utf8_fails_with_its_own_error_and_a_name_that_prints():
    gang = named_in_c(b"gr\xfcn")
    assert gang.name == "gr\ufffdn" and isinstance(gang.flight_record(), str)
    gang.abort("enough")
    with pytest.raises(gw.Aborted) as caught:
        gang.barrier()
    assert caught.value.gang == "gr\ufffdn" and "enough" in caught.value.text


def test_an_exporters_refusal_that_has_no_utf8_is_a_refusal():
    class Array:
        def __dlpack__(self, **_):
            raise ValueError("no \ud800")

    with pytest.raises(gw.InvalidArgument, match="cannot be borrowed: no"):
        gw.Gang.create().all_reduce(Array())
