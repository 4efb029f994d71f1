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


def test_an_export_keeps_the_array_apis_rules_of_device_version_and_copy(gang):
    view = gang.empty((3,), "f32")
    np.from_dlpack(view)[...] = 7
    for request in ({"dl_device": None}, {"dl_device": (1, 0)}, {"dl_device": view.__dlpack_device__()}, {"copy": False}):
        assert np.from_dlpack(Asking(view, request)).ctypes.data == view.address
    with pytest.raises(BufferError, match=r"dl_device is 2:1, but the memory is on device 1:0 \(DLPack's numbers\)"):
        view.__dlpack__(dl_device=(2, 1))
    for version, capsule in ((None, '"dltensor"'), ((0, 8), '"dltensor"'), ((1, 0), "versioned"), ((2, 3), "versioned")):
        assert capsule in repr(view.__dlpack__(max_version=version))
    for request, text in (({"max_version": 1}, "iterable"), ({"max_version": (1,)}, r"max_version is no \(major, minor\)"),
                          ({"dl_device": ("cpu", 0)}, "int"), ({"dl_device": (1, 0, 0)}, "dl_device is no")):
        with pytest.raises(TypeError, match=text):
            view.__dlpack__(**request)
    view.read_only = True
    for version in (None, (1, 0)):
        copy = np.from_dlpack(Asking(view, {"copy": True, "max_version": version}))
        assert copy.ctypes.data != view.address and copy.tolist() == [7, 7, 7]
    assert copy.flags.writeable and np.from_dlpack(view, copy=True).ctypes.data != view.address
    assert np.from_dlpack(view, device="cpu").ctypes.data == view.address
    gc.collect()
    assert view.exports == 0


class Asking:
    """Asks a view with a request of its own, whatever the consumer's."""

    def __init__(self, view, request):
        self.view, self.request = view, {"max_version": (1, 0), **request}

    def __dlpack__(self, **_):
        return self.view.__dlpack__(**self.request)

    def __dlpack_device__(self):
        return self.view.__dlpack_device__()


def test_torch_may_name_the_device_and_ask_for_a_copy(gang):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    view = gang.empty((4,))
    assert torch.from_dlpack(view, device="cpu").data_ptr() == view.address
    assert torch.from_dlpack(view, device="cpu", copy=True).data_ptr() != view.address
    assert torch.from_dlpack(view, copy=False).data_ptr() == view.address


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


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, as far as its deleter."""

    DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", DELETER),
                ("flags", ctypes.c_uint64), ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]


class Exporter:
    """Three f32 on the CPU by a struct of its own, which counts the calls of its deleter: by the taker, or by the capsule's
    destructor when nobody took it."""

    NAME = b"dltensor_versioned"
    DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, DESTRUCTOR)(("PyCapsule_New", ctypes.pythonapi))
    valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))

    def __init__(self, **fields):
        self.destructor = self.DESTRUCTOR(self.destroy)
        self.deleted, self.memory, self.shape = 0, np.arange(3, dtype=np.float32), (ctypes.c_int64 * 1)(3)
        self.managed = Versioned(major=1, deleter=Versioned.DELETER(self.delete), data=self.memory.ctypes.data,
                                 device=(ctypes.c_int32 * 2)(1, 0), ndim=1, code=2, bits=32, lanes=1, shape=self.shape)
        for name, value in fields.items():
            setattr(self.managed, name, value)

    def delete(self, _):
        self.deleted += 1

    def destroy(self, capsule):
        self.deleted += Exporter.valid(capsule, self.NAME)

    def __dlpack__(self, **_):
        return Exporter.new(ctypes.addressof(self.managed), self.NAME, self.destructor)

    def __dlpack_device__(self):
        return (1, 0)


def test_a_deleter_runs_exactly_once(gang):
    def lend_on(view):
        x, y = np.from_dlpack(view), np.from_dlpack(view)
        del x, view
        gc.collect()
        return y

    def keep(exporter):
        capsule = exporter.__dlpack__()
        tensor = _low.gw_tensor_from_dlpack(capsule)
        return np.from_dlpack(gw.Tensor(tensor))

    first, second = gw.Gang.create_threads(2)
    uses = {
        "a view": lambda e: borrow(e, "x"), "a plain call": gang.all_reduce_, "a work": first.all_reduce_async_,
        "exports of an export": lambda e: lend_on(borrow(e, "x")), "the library's tensor": keep,
    }
    for use, do in uses.items():
        exporter = Exporter()
        kept = do(exporter)
        assert exporter.deleted == (use == "a plain call"), use
        if isinstance(kept, gw.Work):
            peer = second.all_reduce_async_(np.ones(3, np.float32))
            gw.wait_all([kept, peer], 60)
        del kept
        gc.collect()
        assert exporter.deleted == 1, use


BAD_EXPORTS = [({"major": 2}, "array gives DLPack 2, not 1"), ({"device": (ctypes.c_int32 * 2)(2, 1)}, "array lies on cuda:1, the gang's device is cpu"),
               ({"lanes": 4}, r"array has element type 0x42002 \(DLPack's code, bits and lanes\)"),
               ({"bits": 7}, "array has element type"), ({"ndim": 99}, "array has 99 dims"), ({"ndim": -1}, "array has -1 dims"),
               ({"flags": 1}, "array is read-only")]


@pytest.mark.parametrize("fields, text", BAD_EXPORTS, ids=lambda v: str(v)[:12])
def test_a_refused_export_is_deleted_exactly_once_too(gang, fields, text):
    exporter = Exporter(**fields)
    with pytest.raises(gw.InvalidArgument, match=text):
        gang.all_reduce_(exporter)
    gc.collect()
    assert exporter.deleted == 1


REFUSALS = [
    (lambda: np.zeros((4, 4))[:, :2], r"array is not contiguous: shape \(4, 2\) has strides \(4, 1\), row-major is needed"),
    (lambda: np.zeros((2, 3)).T, "array is not contiguous"),
    (lambda: np.ma.masked_equal(np.arange(4.0), 2), "array is a masked array, whose mask would be lost: give array.filled"),
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


def test_what_is_no_array_is_a_type_error_that_names_the_argument(gang):
    model = gw.Linear(4, 2).materialize()
    group = gw.ShardGroup(None, "g", {"w": np.ones((2, 2), np.float32)})
    opt = gw.AdamW(model)
    for name, call in (("array", gang.all_reduce_), ("x", gang.all_gather), ("x", lambda x: gang.send(x, 1)), ("inputs\\[0\\]", model.forward),
                       ("inputs", lambda x: gw.train_step(model, opt, x if not isinstance(x, list) else [x])),
                       ("targets", lambda x: gw.eval_step(model, np.ones((2, 4), np.float32), [x])),
                       ("values", model["weight"].assign), ('into\\["w"\\]', lambda x: group.unshard({"w": x})),
                       ('state\\["weight"\\]', lambda x: model.load_state_dict({"weight": x, "bias": x}))):
        for thing, kind in (([1.0, 2.0], "list"), (3, "int"), (None, "NoneType"), ("text", "str")):
            if name in ("inputs", "targets") and thing is None:
                continue  # none: it is left out
            with pytest.raises(TypeError, match=f"^{name} is an? {kind}, not an array"):
                call(thing)


def test_refusals_of_two_arrays_compare_them(gang):
    x = np.zeros(4, np.float32)
    with pytest.raises(gw.InvalidArgument, match=r"outputs\[1\] is too small: it has 3 elements, 4 are needed"):
        gang.all_gather_list_([np.zeros(4, np.float32), np.zeros(3, np.float32)], x)
    with pytest.raises(gw.InvalidArgument, match=r"outputs\[0\] is f64, but x is f32"):
        gang.all_gather_list_([np.zeros(4), np.zeros(4)], x)
    with pytest.raises(gw.InvalidArgument, match="output is i32, but x is f32"):
        gang.scatter_(np.zeros(2, np.int32), np.zeros((2, 2), np.float32))
    with pytest.raises(gw.InvalidArgument, match="output is too large: it has 3 elements, 2 are needed"):
        gang.scatter_(np.zeros(3, np.float32), np.zeros((2, 2), np.float32))
    with pytest.raises(gw.InvalidArgument, match="outputs has 1 arrays, the gang 2 ranks"):
        gang.all_gather_list_([x], x)
    with pytest.raises(gw.InvalidArgument, match=r"x has shape \(3, 2\); its first dim must be the gang's size, 2"):
        gang.reduce_scatter(np.zeros((3, 2)))
    with pytest.raises(gw.InvalidArgument, match='op is "average", not one of'):
        gang.all_reduce_(x, "average")


def test_memory_of_a_shape_that_no_array_has_is_refused(gang):
    with pytest.raises(gw.InvalidArgument, match=r"shape is \(-2, -3\): a dim is below 0"):
        gang.empty((-2, -3))
    with pytest.raises(TypeError):
        gang.empty((2.5,))
    with pytest.raises(gw.InvalidArgument, match=r"more than 2\^58 elements"):
        gang.empty((1 << 32, 1 << 32))


def test_dtypes_by_every_name():
    assert dtype_of("f32") == dtype_of("float32") == dtype_of(np.float32) == dtype_of(np.dtype("f4")) == gw.DType.F32
    assert dtype_of("bf16") == dtype_of("bfloat16") == gw.DType.BF16 and dtype_of(None) == gw.DType.NONE
    assert dtype_of(bool) == gw.DType.BOOL
    with pytest.raises(gw.InvalidArgument, match='dtype is "f31"'):
        dtype_of("f31")


def test_enumerations_are_open():
    assert gw.DType(0x12345).name == "UNKNOWN_74565" and gw.DType(0x12345) == 0x12345
    assert gw.Status(99).name == "UNKNOWN_99"
