"""Models, shard groups and pipelines on arrays in a GPU's memory, on the software GPU: what they do with arrays of the host."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from foreign import Foreign, Gpu
from ranks import GPUS, together

import gangway as gw
from gangway import _low as c
from gangway.arrays import LEGACY_STREAM, borrow

SMALL = dict(vocab=11, dim=8, layers=1, heads=2, ffn=16, max_positions=16)


def llama(gangs, seed=3):
    return gw.Llama(**SMALL).parallelize(gangs, seed=seed, master_dtype="f64")


def linear(gangs, seed=1):
    return gw.Linear(3, 4).parallelize(gangs, seed=seed, master_dtype="f64")


def numbers(rank, *shape):
    return np.random.default_rng(rank).normal(size=shape)


def check_place(gang, array):
    """A Tensor of the rank's GPU, in order on the legacy stream."""
    assert type(array) is gw.Tensor and array.__dlpack_device__() == (2, gang.rank)


@together(1, 2, gpus=True)
def test_steps_on_batches_of_the_gpu_are_those_of_the_host(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    tokens = (np.arange(16).reshape(4, 4) * (3 + gang.rank) % 11)
    seen = []
    for give in (lambda x: x, gpu.array):
        model = llama(gangs)
        optimizer = gw.AdamW(model, lr=0.01)
        losses = [gw.train_step(model, optimizer, give(tokens), max_grad_norm=1.0).loss for _ in range(3)]
        losses.append(gw.eval_step(model, [give(tokens)]).loss)
        seen.append((losses, model.state_dict(), model.generate([1, 2], 3, temperature=0)))
    assert seen[0][0] == seen[1][0] and seen[0][2] == seen[1][2]
    for name, value in seen[0][1].items():
        np.testing.assert_array_equal(seen[1][1][name], value)
    x = gpu.array(tokens)
    gw.eval_step(model, x)
    assert x.asked == [LEGACY_STREAM]


@together(1, 2, gpus=True)
def test_forward_and_backward_give_the_gpus_own_tensors(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    model = linear(gangs)
    x, dy = numbers(gang.rank, 2, 3), numbers(gang.rank + 9, 2, 4)

    def run(give, **rest):
        frame = gw.Frame(model)
        (y,) = model.forward(give(x), frame=frame)
        (dx,) = model.backward(give(dy), frame=frame, **rest)
        gradients = [p.gradient().copy() for p in model]
        model.zero_grad()
        return y, dx, gradients

    on_host, on_gpu = run(lambda a: a), run(gpu.array)
    assert type(on_host[0]) is type(on_host[1]) is np.ndarray
    for got, wanted in zip(on_gpu[:2], on_host[:2]):
        check_place(gang, got)
        gpu.check(got, wanted)
        np.testing.assert_array_equal(got.to("numpy"), wanted)
    np.testing.assert_equal(on_gpu[2], on_host[2])
    assert type(run(gpu.array, kind="numpy")[1]) is np.ndarray
    check_place(gang, run(lambda a: a, kind="tensor")[1])


@together(1, 2, gpus=True)
def test_parameters_are_read_and_written_where_they_lie(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    model, other = linear(gangs), linear(gangs, seed=2)
    state = model.state_dict(kind="tensor")
    for name, parameter in other.named_parameters():
        check_place(gang, state[name])
        whole = numbers(5, *parameter.shape)
        parameter.assign(gpu.array(whole))
        np.testing.assert_array_equal(parameter.gather(), whole)
        gpu.check(parameter.gather("tensor"), whole)
        first, last = parameter.rows
        gpu.check(parameter.value("tensor"), whole[first:last])
        check_place(gang, parameter.value("tensor"))
    other.load_state_dict({name: Foreign(value) for name, value in state.items()})
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[name], value)
    late = {name: gpu.array(value + 1) for name, value in model.state_dict().items()}
    other.load_state_dict(late)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[name], value + 1)
    optimizer = gw.AdamW(model, lr=0.01)
    frame = gw.Frame(model)
    model.forward(gpu.array(numbers(gang.rank, 2, 3)), frame=frame)
    model.backward(gpu.array(numbers(1, 2, 4)), frame=frame)
    for parameter in model:
        gpu.check(parameter.gradient("tensor"), parameter.gradient())
        gpu.check(parameter.gather_gradient("tensor"), parameter.gather_gradient())
    optimizer.step()
    for parameter in model:
        gpu.check(parameter.state(optimizer, "exp_avg", "tensor"), parameter.state(optimizer, "exp_avg"))


@together(1, 2, gpus=True)
def test_a_shard_group_takes_and_gives_arrays_of_the_gpu(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    first = {"w": numbers(1, 4, 3).astype(np.float32), "b": numbers(2, 4), "s": np.float64(3).reshape(())}
    gradients = {name: numbers(gang.rank + 3, *(value.shape or (1,))).astype(value.dtype) for name, value in first.items()}
    steps = {}
    for name, give in (("host", lambda a: a), ("gpu", gpu.array)):
        group = gw.ShardGroup(gangs, "g", {n: give(v) for n, v in first.items()})
        optimizer = gw.SGD(group, lr=0.1)
        with group.unsharded() as full:
            steps[name] = [{n: np.array(a) if name == "host" else gpu.values(a) for n, a in full.items()}]
            group.add_gradients({n: give(g) for n, g in gradients.items()})
            whole = group.full_gradients()
            group.reduce()
        shown = group.gradients()
        steps[name].append({n: np.array(a) if name == "host" else gpu.values(a) for n, a in shown.items()})
        optimizer.step()
        values = group.values()
        steps[name].append({n: np.array(a) if name == "host" else gpu.values(a) for n, a in values.items()})
    for arrays in (full, whole, shown, values):
        for array in arrays.values():
            check_place(gang, array)
    np.testing.assert_equal(steps["gpu"], steps["host"])
    into = {n: gpu.array(np.full(v.shape or (1,), 77, v.dtype)) for n, v in first.items()}
    group.unshard_async()
    assert group.unshard(into)["w"] is into["w"]
    group.reshard()
    full = group.unshard()
    for n, array in into.items():
        gpu.check(array, gpu.values(full[n]))
    group.reshard()
    with group.updating() as mine:
        wanted = numbers(7, *mine["w"].shape).astype(np.float32)
        if wanted.size:
            gpu.copy(mine["w"], gpu.array(wanted))
    gpu.check(group.values()["w"], wanted)


class Same:
    """y = x, by copies of the GPU on the stream of the call."""

    def __init__(self, gpu):
        self.gpu, self.kinds = gpu, set()

    def shapes(self, x):
        return [x]

    def forward(self, call):
        self.kinds |= {type(a) for a in call.inputs + call.outputs}
        self.gpu.copy(call.outputs[0], call.inputs[0])

    def backward_input(self, call):
        self.gpu.copy(call.input_grads[0], call.output_grads[0])


@together(1, gpus=True)
def test_a_callback_sees_views_of_the_gpu(gangs):
    gpu = Gpu(gangs.root)
    same = Same(gpu)
    model = gw.Custom(same, kind="tensor").parallelize(gangs)
    x, dy = numbers(1, 2, 3).astype(np.float32), numbers(2, 2, 3).astype(np.float32)
    frame = gw.Frame(model)
    gpu.check(model.forward(gpu.array(x), frame=frame)[0], x)
    gpu.check(model.backward(gpu.array(dy), frame=frame)[0], dy)
    assert same.kinds == {gw.View}
    with pytest.raises(gw.InvalidArgument, match='the memory lies on cuda:0, where NumPy computes nothing: kind="torch"'):
        gw.Custom(Same(gpu)).parallelize(gangs).forward(x)

    class Written(Same):
        def forward(self, call):
            call.set_outputs(np.zeros((2, 3), np.float32))

    with pytest.raises(gw.InvalidArgument, match=r"outputs\[0\] is to lie on cuda:0, where NumPy cannot write"):
        gw.Custom(Written(gpu), kind="tensor").parallelize(gangs).forward(x)

    class Later(Same):
        def forward(self, call):
            super().forward(call)
            with pytest.raises(BufferError, match="stream is 64, but this memory is ordered on CUDA's legacy default stream"):
                call.inputs[0].__dlpack__(stream=64)

    gw.Custom(Later(gpu), kind="tensor").parallelize(gangs).forward(x)


@together(2, gpus=True)
def test_a_pipeline_takes_and_gives_arrays_of_the_gpu(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    x, dy = numbers(1, 2, 3), numbers(2, 2, 3)
    with gw.Pipeline(gang, microbatches=2, kind="tensor") as pipe:
        for action in pipe:
            for array in action.inputs:
                check_place(gang, array)
            if action.kind is gw.ActionKind.FORWARD:
                m = action.microbatch
                if action.first_stage:
                    pipe.done(gpu.array(x + m))
                else:
                    gpu.check(action.inputs[0], x + m)
                    pipe.done()
            elif action.last_stage:
                pipe.done(gpu.array(dy * action.microbatch))
            else:
                gpu.check(action.inputs[0], dy * action.microbatch)
                pipe.done()


@together(1, gpus=True)
def test_an_array_of_another_device_is_refused_with_both(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    x = gpu.array(numbers(1, 2, 3), busy=0)
    fake = gw.Gangs.create(gw.Gang.create_fake(0, 1))
    model = linear(fake)
    group = gw.ShardGroup(fake, "g", {"w": (2, 3)})
    pipe = gw.Pipeline(gw.Gang.create_fake(0, 1), microbatches=1)
    action = pipe.next()
    frame = gw.Frame(model)
    model.forward(np.ones((2, 3)), frame=frame)
    group.unshard()
    calls = {
        r"inputs\[0\]": lambda: model.forward(x), r"output_grads\[0\]": lambda: model.backward(x, frame=frame),
        "values": lambda: model["weight"].assign(x),
        r'state\["weight"\]': lambda: model.load_state_dict({"weight": x, "bias": x}),
        "inputs": lambda: gw.eval_step(model, x), "targets": lambda: gw.train_step(model, gw.SGD(model), np.ones((2, 3)), x),
        r'into\["w"\]': lambda: group.unshard({"w": x}), r'gradients\["w"\]': lambda: group.add_gradients([x]),
        "w": lambda: gw.ShardGroup(fake, "h", {"w": x}), r"outputs\[0\]": lambda: pipe.done(x),
        "x": lambda: gw.AllSumReduce(gw.Partition(fake.root), axes=())(x),
        "dy": lambda: gw.AllSumReduce(gw.Partition(fake.root), axes=()).backward(x),
    }
    for name, call in calls.items():
        with pytest.raises(gw.InvalidArgument, match=f"^{name} lies on cuda:0, the gang's device is cpu$"):
            call()
    assert action.kind is gw.ActionKind.FORWARD
    group = gw.ShardGroup(gangs, "g", {"w": (2, 3)})
    with pytest.raises(gw.InvalidArgument, match=r'^into\["w"\] lies on cpu, the gang\'s device is cuda:0$'):
        group.unshard({"w": np.ones((2, 3), np.float32)})
    second = gw.Gang.create_threads(2, device="cuda")[1]
    with pytest.raises(gw.InvalidArgument, match=r"^inputs\[0\] lies on cuda:1, the gang's device is cuda:0$"):
        linear(gangs).forward(Foreign(second.empty((2, 3), "f64")))
    with pytest.raises(gw.InvalidArgument, match="an array of values lies on a GPU, where NumPy cannot read it"):
        gw.Custom(Same(gpu), parameters={"w": x})


@together(1, 2, gpus=True)
def test_movements_take_and_give_arrays_of_the_gpu(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    grid = gw.Partition(gang).cartesian(gang.size, 1)
    x, dy = numbers(gang.rank, 6 - gang.rank, 3), numbers(9, 6 * gang.size, 3)
    for make, x, dy in ((lambda: gw.AllGather(grid, 0), x, dy[: 7 * gang.size - gang.size * (gang.size + 1) // 2]),
                        (lambda: gw.ReduceScatter(grid, 0), dy[: 2 * gang.size], dy[:2]),
                        (lambda: gw.AllSumReduce(grid, 0), dy, dy)):
        on_host, on_gpu = make(), make()
        wanted, got = on_host(x), on_gpu(gpu.array(x))
        assert type(wanted) is np.ndarray
        check_place(gang, got)
        gpu.check(got, wanted)
        back = on_gpu.backward(gpu.array(dy))
        check_place(gang, back)
        gpu.check(back, on_host.backward(dy))
    np.testing.assert_array_equal(gw.AllSumReduce(grid, axes=())(numbers(1, 3)), numbers(1, 3))


class Cuda:
    """A stream of the program's own."""

    def __init__(self):
        self._calls = ctypes.CDLL(str(Path(GPUS, "libgpu_emulation.so")))
        handle = ctypes.c_void_p()
        assert self._calls.cudaStreamCreateWithPriority(ctypes.byref(handle), 1, 0) == 0
        self.stream = handle.value

    def take(self, view, shape):
        """Values of a GPU's memory, read on that stream."""
        out = np.zeros(shape)
        stream = ctypes.c_void_p(self.stream)
        assert self._calls.cudaMemcpyAsync(ctypes.c_void_p(out.ctypes.data), ctypes.c_void_p(view.address),
                                           ctypes.c_size_t(out.nbytes), 4, stream) == 0
        assert self._calls.cudaStreamSynchronize(stream) == 0
        return out

    def end(self):
        assert self._calls.cudaStreamDestroy(ctypes.c_void_p(self.stream)) == 0


@together(1, gpus=True)
def test_the_stream_of_who_takes_a_tensor_waits_for_the_library(gangs):
    gpu, x = Gpu(gangs.root), numbers(1, 300, 500)
    cuda = Cuda()
    view = gpu.array(x).view
    view.__dlpack__(stream=cuda.stream, max_version=(1, 0))
    np.testing.assert_array_equal(cuda.take(view, x.shape), x)
    cuda.end()  # the library does not keep it
    for stream in (None, -1, LEGACY_STREAM):
        view.__dlpack__(stream=stream)
    for stream in (0, -2):
        with pytest.raises(BufferError, match=f"stream is {stream}, which names none: 1 is CUDA's legacy default stream"):
            view.__dlpack__(stream=stream)
    with pytest.raises(TypeError, match="stream is a str, not an integer or None"):
        view.__dlpack__(stream="1")
    with pytest.raises(OverflowError):
        view.__dlpack__(stream=1 << 80)
    shown = c.make_view(view.address, x.shape, gw.DType.F64, view, (2, 0))
    again = Cuda()
    shown.__dlpack__(stream=again.stream)
    again.end()
    assert borrow(np.zeros(3), "x").__dlpack__(stream=0) is not None  # a CPU has none
    gpu.check(view, x)


@together(1, gpus=True)
def test_what_a_call_without_a_stream_shows_is_in_order_on_the_legacy_stream(gangs):
    """Gradients that the last step has emptied: they become zeros when they are shown."""
    gpu = Gpu(gangs.root)
    group = gw.ShardGroup(gangs, "g", {"w": (1000, 1000)}, kind="tensor")
    optimizer = gw.SGD(group)
    for _ in range(5):
        with group.unsharded():
            group.add_gradients([np.ones((1000, 1000), np.float32)])
            group.reduce()
        optimizer.step()
        gpu.check(group.gradients()["w"], np.zeros((1000, 1000)))


@together(1, gpus=True)
def test_a_state_with_one_array_of_another_gpu_changes_no_value(gangs):
    gpu = Gpu(gangs.root)
    model = gw.Linear(3, 2).parallelize(gangs)
    before = model.state_dict()
    second = gw.Gang.create_threads(2, device="cuda")[1]
    state = {name: gpu.array(value + 1) for name, value in before.items()}
    state["bias"] = Foreign(second.empty(before["bias"].shape))
    with pytest.raises(gw.InvalidArgument, match=r'^state\["bias"\] lies on cuda:1, the gang\'s device is cuda:0$'):
        model.load_state_dict(state)
    np.testing.assert_equal(model.state_dict(), before)


@together(1, gpus=True)
def test_first_values_on_a_gpu_may_be_a_number_and_no_integers(gangs):
    gpu = Gpu(gangs.root)
    group = gw.ShardGroup(gangs, "g", {"s": gpu.array(np.float32(3))})
    with group.unsharded() as full:
        np.testing.assert_equal(gpu.values(full["s"]), [3])
    with pytest.raises(gw.InvalidArgument, match="first values on a GPU are i64, not f64, f32, bf16 or f16"):
        gw.ShardGroup(gangs, "h", {"n": gpu.array(np.arange(3))})


@together(2, gpus=True)
def test_a_worker_without_an_array_asks_for_memory_of_the_gpu(gangs):
    gang, gpu = gangs.root, Gpu(gangs.root)
    workers = gw.Partition(gang)
    copies = gw.Broadcast(workers.inclusive([0]), workers)
    y = copies(gpu.array(numbers(1, 3)) if gang.rank == 0 else None, kind="tensor")
    check_place(gang, y)
    gpu.check(y, numbers(1, 3))
