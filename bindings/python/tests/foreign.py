"""Arrays in a GPU's memory for tests on the software GPU. No framework for CUDA is here: Foreign stands for one."""

import numpy as np

import gangway as gw
from gangway import _low as c
from gangway.arrays import ANY, LEGACY_STREAM, borrow

BUSY = 40  # movements that the legacy stream still has to do when a call comes


class Foreign:
    """An array of a GPU that records how it was asked for its memory."""

    def __init__(self, view):
        self.view, self.asked = view, []

    def __dlpack__(self, stream=None, **rest):
        self.asked.append(stream)
        return self.view.__dlpack__(**rest)

    def __dlpack_device__(self):
        return self.view.__dlpack_device__()


class Old(Foreign):
    """By the capsule of DLPack before 1.0."""

    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        return self.view.__dlpack__()


class Gpu:
    """Arrays from the host to this rank's GPU and back, on the legacy stream alone, as PyTorch does it."""

    def __init__(self, gang):
        self._alone = gang.split(gang.rank)
        self._identity = gw.AllSumReduce(gw.Partition(self._alone), axes=())

    def _moved(self, view):
        return c.gw_movement_forward(self._identity._h, view, LEGACY_STREAM)

    def array(self, values, kind=Foreign, busy=BUSY):
        """It is there once the stream has done all movements."""
        tensor = self._moved(borrow(np.asarray(values, order="C"), "values"))
        for _ in range(busy):
            tensor = self._moved(c.gw_tensor_view(tensor))
        return kind(c.gw_tensor_view(tensor))

    def empty(self, shape, dtype=np.float32):
        return self.array(np.full(shape, 77, dtype), busy=0)

    def copy(self, output, array):
        """Into memory of the GPU."""
        self._alone.all_reduce_into_(output, array)

    def values(self, array):
        moved = self._moved(borrow(array, "array", ANY))
        return np.from_dlpack(gw.Tensor(c.gw_tensor_to_host(moved, LEGACY_STREAM))).copy()

    def check(self, array, wanted):
        np.testing.assert_array_equal(self.values(array), wanted)
