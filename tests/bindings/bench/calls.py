"""What a call costs in Python. Started by run.sh over two ranks; calls.c says what is measured."""

import ctypes
import sys
import time

import numpy as np

import gangway as gw

RANK, SMALL, LARGE, ROUND_TRIP = range(4)
C = ctypes.CDLL(sys.argv[1])  # the library of calls.c
C.bench_batches.restype = C.bench_calls.restype = C.bench_elements.restype = ctypes.c_size_t
C.bench_own.argtypes = [ctypes.c_int, ctypes.c_double]


def compare(which, own):
    """`own(calls)` makes a batch."""
    calls = C.bench_calls(which)
    for _ in range(C.bench_batches()):
        C.bench_c(which)
        start = time.perf_counter()
        own(calls)
        C.bench_own(which, time.perf_counter() - start)


def ranks(gang, calls):
    for _ in range(calls):
        gang.rank


def all_reduces(gang, x, calls):
    for _ in range(calls):
        gang.all_reduce_(x, "max")


def round_trips(model, frame, x, calls):
    for _ in range(calls):
        model.forward(x, frame=frame)
        model.backward(x, frame=frame)


class Copy:
    def shapes(self, x):
        return [x]

    def forward(self, call):
        np.copyto(call.outputs[0], call.inputs[0])

    def backward_input(self, call):
        np.copyto(call.input_grads[0], call.output_grads[0])


C.bench_open(b"Python")
with gw.init() as gangs:
    compare(RANK, lambda n: ranks(gangs.root, n))
    for which in (SMALL, LARGE):
        x = np.from_dlpack(gangs.root.empty((C.bench_elements(which),)))
        x[...] = 0
        compare(which, lambda n: all_reduces(gangs.root, x, n))
    model = gw.Custom(Copy()).materialize()
    frame = gw.Frame(model)
    values = np.float32([[1, 2], [3, 4]])
    compare(ROUND_TRIP, lambda n: round_trips(model, frame, values, n))
C.bench_close()
