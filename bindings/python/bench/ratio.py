"""What a call costs in Python and in C: medians over rounds that alternate, on the same gang in the same processes.

    python -m gangway.run -n 2 python bindings/python/bench/ratio.py
"""

import ctypes
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import gangway as gw
from gangway import _low

HERE = Path(__file__).resolve().parent
ROUNDS = 301  # short ones: a round that the system interrupts is an outlier, not an average


def c_loops():
    """loops.c against the library that is loaded here."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "loops.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-I", HERE.parents[2] / "capi" / "include", "-o", target,
                        HERE / "loops.c", Path(gw.__file__).with_name("libgangway.so.1")], check=True)
        loops = ctypes.CDLL(str(target))
    for name in ("loop_rank", "loop_all_reduce", "loop_custom"):
        getattr(loops, name).restype = ctypes.c_double
    return loops


def pointer(capsule):
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_void_p(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))


class Double:
    def shapes(self, x):
        return [x]

    def forward(self, call):
        np.multiply(call.inputs[0], 2, out=call.outputs[0])

    def backward_input(self, call):
        np.multiply(call.output_grads[0], 2, out=call.input_grads[0])


def rank(gang):
    def run(count):
        for _ in range(count):
            gang.rank
    return run


def low_rank(gang):
    def run(count):
        for _ in range(count):
            _low.gw_gang_rank(gang._h)
    return run


def all_reduce(gang, x):
    def run(count):
        for _ in range(count):
            gang.all_reduce_(x, "max")
    return run


def custom():
    model = gw.Custom(Double()).materialize()
    frame = gw.Frame(model)
    x = np.ones(16, np.float32)

    def run(count):
        for _ in range(count):
            model.forward(x, frame=frame)
            model.backward(x, frame=frame)
    return run


def seconds(run, count):
    start = time.perf_counter()
    run(count)
    return (time.perf_counter() - start) / count


def compare(gang, count, in_c, in_python):
    """Medians of both, over rounds that alternate."""
    both = []
    for _ in range(ROUNDS):
        gang.barrier()
        c = in_c(count)
        assert c > 0
        gang.barrier()
        both.append((c, seconds(in_python, count)))
    return np.median(both, axis=0)


with gw.init() as gangs:
    gang = gangs.root
    loops, handle = c_loops(), pointer(gangs.root._h)
    cases = [("gang.rank", 5000, lambda n: loops.loop_rank(handle, n), rank(gang)),
             ("gw_gang_rank", 5000, lambda n: loops.loop_rank(handle, n), low_rank(gang))]
    for name, size in (("8 B", 8), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20)):
        x = np.from_dlpack(gang.empty((size // 4,)))
        x[...] = 1

        def in_c(n, x=x):
            return loops.loop_all_reduce(handle, ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(x.size), n)

        cases.append((f"all_reduce_ of {name}", 10 if size > 100000 else 50, in_c, all_reduce(gang, x)))
    cases.append(("custom module, there and back", 10, loops.loop_custom, custom()))
    if gangs.rank == 0:
        print(f"{'call':32} {'C':>10} {'Python':>10} {'ratio':>7}   (medians of {ROUNDS} rounds, {gangs.size} ranks)")
    for name, count, in_c, in_python in cases:
        c, python = compare(gang, count, in_c, in_python)
        if gangs.rank == 0:
            print(f"{name:32} {1e6 * c:7.3f} us {1e6 * python:7.3f} us {python / c:7.2f}")
