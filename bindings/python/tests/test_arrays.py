"""Borrowing and lending through DLPack in one process."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

import gangway as gw
from gangway import _low
from gangway.arrays import Made, as_kind, borrow, dtype_of


@pytest.fixture(scope="module")
def gang():
    return gw.Gang.create_fake(0, 2)


def test_numpy_is_borrowed_without_a_copy():
    x = np.arange(6.0).reshape(2, 3)
    view = borrow(x, "x")
    assert (view.address, view.shape, view.dtype, view.count) == (x.ctypes.data, (2, 3), gw.DType.F64, 6)
    assert view.strides == (3, 1) and view.contiguous and not view.read_only
    offset = x[1:]
    assert borrow(offset, "x").address == offset.ctypes.data


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_other_frameworks_are_borrowed_and_lent_without_a_copy(name, gang):
    framework = pytest.importorskip(name, reason=f"{name} is not installed")
    x = framework.arange(6.0) if name == "torch" else framework.numpy.arange(6.0)
    address = x.data_ptr() if name == "torch" else x.unsafe_buffer_pointer()
    assert borrow(x, "x").address == address
    view = gang.empty((4,))
    lent = as_kind(view, name)
    assert (lent.data_ptr() if name == "torch" else lent.unsafe_buffer_pointer()) == view.address
    made = Made(name, (3,), gw.DType.F32)
    result = made.array()
    assert (result.data_ptr() if name == "torch" else result.unsafe_buffer_pointer()) == made.view.address
    view.read_only = True
    assert as_kind(view, name) is not None and view.read_only


def test_a_borrowed_array_lives_as_long_as_its_view():
    class Watched(np.ndarray):
        pass

    x = np.zeros(3).view(Watched)
    gone = weakref.ref(x)
    view = borrow(x, "x")
    del x
    gc.collect()
    assert gone() is not None and view.count == 3
    del view
    gc.collect()
    assert gone() is None


def test_a_lent_view_outlives_its_owner(gang):
    view = gang.empty((1000,))
    x = np.from_dlpack(view)
    x[:] = 7
    assert view.exports == 1
    del view
    gc.collect()
    assert (x == 7).all() and x.flags.writeable


def test_old_exporters_and_old_consumers_work(gang):
    class Old:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, stream=None):
            return self.array.__dlpack__()

    x = np.arange(3.0)
    assert borrow(Old(x), "x").address == x.ctypes.data
    view = gang.empty((3,))
    assert '"dltensor"' in repr(view.__dlpack__())
    assert '"dltensor_versioned"' in repr(view.__dlpack__(max_version=(1, 0)))
    gc.collect()
    assert view.exports == 0
    view.read_only = True
    with pytest.raises(BufferError, match="read-only"):
        view.__dlpack__()
    assert not np.from_dlpack(view).flags.writeable
    with pytest.raises(BufferError, match="no copies"):
        view.__dlpack__(copy=True)


def test_the_librarys_own_dlpack_functions_hand_tensors_over_once():
    x = np.arange(4.0)
    capsule = x.__dlpack__(max_version=(1, 0))
    tensor = _low.gw_tensor_from_dlpack(capsule)
    assert "used_dltensor_versioned" in repr(capsule)
    view = _low.gw_tensor_view(tensor)
    assert view.address == x.ctypes.data

    class Lender:
        def __dlpack__(self, **_):
            return _low.gw_tensor_to_dlpack(tensor)

        def __dlpack_device__(self):
            return (1, 0)

    y = np.from_dlpack(Lender())
    assert y.ctypes.data == x.ctypes.data
    copy = _low.gw_tensor_view(_low.gw_tensor_copy(view))
    assert copy.address != view.address and np.from_dlpack(copy).tolist() == x.tolist()
    with pytest.raises(ValueError):
        _low.gw_tensor_from_dlpack(capsule)


REFUSALS = [
    (lambda: np.zeros((4, 4))[:, :2], r"array is not contiguous: shape \(4, 2\) has strides \(4, 1\), row-major is needed"),
    (lambda: np.zeros((2, 3)).T, "array is not contiguous"),
    (lambda: [1, 2], r"array is a list, not an array \(it has no __dlpack__\)"),
    (lambda: None, "array is a NoneType, not an array"),
    (lambda: np.array(["a"]), "array cannot be borrowed"),
    (lambda: np.broadcast_to(np.float32(1), (3,)), "array is read-only, but it is to be written"),
    (lambda: np.zeros(3, np.uint16), "u16"),
    (lambda: np.zeros((1,) * 9), "9 dims, at most 8"),
]


@pytest.mark.parametrize("make, text", REFUSALS)
def test_refusals_name_the_argument_and_the_reason(gang, make, text):
    with pytest.raises(gw.InvalidArgument, match=text) as caught:
        gang.all_reduce_(make())
    assert caught.value.code == gw.Status.INVALID_ARGUMENT and isinstance(caught.value, ValueError)


def test_refusals_of_two_arrays_compare_them(gang):
    x = np.zeros(4, np.float32)
    with pytest.raises(gw.InvalidArgument, match=r"outputs\[1\] is too small: it has 3 elements, 4 are needed"):
        gang.all_gather_list_([np.zeros(4, np.float32), np.zeros(3, np.float32)], x)
    with pytest.raises(gw.InvalidArgument, match=r"outputs\[0\] is f64, but x is f32"):
        gang.all_gather_list_([np.zeros(4), np.zeros(4)], x)
    with pytest.raises(gw.InvalidArgument, match="outputs has 1 arrays, the gang 2 ranks"):
        gang.all_gather_list_([x], x)
    with pytest.raises(gw.InvalidArgument, match=r"x has shape \(3, 2\); its first dim must be the gang's size, 2"):
        gang.reduce_scatter(np.zeros((3, 2)))
    with pytest.raises(gw.InvalidArgument, match='op is "average", not one of'):
        gang.all_reduce_(x, "average")


def test_arrays_on_another_device_are_refused(gang):
    class Elsewhere:
        def __dlpack__(self, **_):
            capsule = gang.empty((1,)).__dlpack__(max_version=(1, 0))
            pointer = ctypes.pythonapi.PyCapsule_GetPointer
            pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            device = pointer(capsule, b"dltensor_versioned") + 32 + 8  # DLManagedTensorVersioned.dl_tensor.device
            ctypes.cast(device, ctypes.POINTER(ctypes.c_int32))[0] = 2
            ctypes.cast(device, ctypes.POINTER(ctypes.c_int32))[1] = 1
            return capsule

    with pytest.raises(gw.InvalidArgument, match=r"array is on device 2:1 \(DLPack's numbers\), the gang works on the CPU"):
        gang.all_reduce_(Elsewhere())


def test_dtypes_by_every_name():
    assert dtype_of("f32") == dtype_of("float32") == dtype_of(np.float32) == dtype_of(np.dtype("f4")) == gw.DType.F32
    assert dtype_of("bf16") == dtype_of("bfloat16") == gw.DType.BF16 and dtype_of(None) == gw.DType.NONE
    assert dtype_of(bool) == gw.DType.BOOL
    with pytest.raises(gw.InvalidArgument, match='dtype is "f31"'):
        dtype_of("f31")


def test_enumerations_are_open():
    assert gw.DType(0x12345).name == "UNKNOWN_74565" and gw.DType(0x12345) == 0x12345
    assert gw.Status(99).name == "UNKNOWN_99"
