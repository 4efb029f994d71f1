"""Memory that the library gives out on a GPU and gets back; alone in its process, where no other call has used a stream."""

import ctypes
from pathlib import Path

import numpy as np
from ranks import GPUS, together

from gangway.arrays import LEGACY_STREAM

COUNT, BUSY = 1 << 16, 20


@together(1, gpus=True)
def test_memory_that_the_default_stream_still_reads_is_not_given_back(gangs):
    gang, calls = gangs.root, ctypes.CDLL(str(Path(GPUS, "libgpu_emulation.so")))
    stream = ctypes.c_void_p(LEGACY_STREAM)

    def copy(to, source, count):
        addresses = ctypes.c_void_p(to), ctypes.c_void_p(source)
        assert calls.cudaMemcpyAsync(*addresses, ctypes.c_size_t(4 * count), 4, stream) == 0

    large, other = gang.empty((64 * COUNT,)), gang.empty((64 * COUNT,))
    array, out = gang.empty((COUNT,)), np.zeros(COUNT, np.float32)
    for _ in range(BUSY):
        copy(large.address, other.address, 64 * COUNT)
    copy(out.ctypes.data, array.address, COUNT)
    del array
    for _ in range(4):
        gang.empty((COUNT,))  # gives back what is free; a copy that reads such a block ends the process
    assert calls.cudaStreamSynchronize(stream) == 0
