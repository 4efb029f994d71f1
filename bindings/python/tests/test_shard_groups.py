"""Shard groups: parameters whose compute is the caller's own, in NumPy and PyTorch."""

import numpy as np
import pytest
from ranks import over, together
from test_models import folder

import gangway as gw


@together(1, 2, 4)
def test_shard_groups_train_like_plain_numpy(gangs):
    start = {"w": np.arange(10, dtype=np.float32), "b": np.float32([1, 2, 3]), "c": np.float64([4])}
    group = gw.ShardGroup(gangs, "g", start)
    opt = gw.SGD(group, lr=0.5)
    for _ in range(2):
        with group.unsharded() as full:
            assert {n: v.shape for n, v in full.items()} == {"w": (10,), "b": (3,), "c": (1,)}
            group.add_gradients({n: np.ones_like(v) * (gangs.rank + 1) for n, v in full.items()})
        group.reduce()
        result = opt.step(scale=1 / gangs.size)
    total = (gangs.size + 1) / 2
    for name, value in group.values().items():
        first, last = opt.model[f"g.{name}"].rows
        np.testing.assert_allclose(value, start[name][first:last] - total, rtol=1e-6)
        np.testing.assert_allclose(opt.model[f"g.{name}"].gather(), start[name] - total, rtol=1e-6)
    assert result.grad_norm != 0 and opt.steps == 2
    group.unshard_async().wait(60)
    with pytest.raises(gw.InvalidState, match="sharded"):
        group.add_gradients([np.ones(10), np.ones(3), np.ones(1)]) or group.full_gradients()


@together(1, 2, 4, not_on_gpus="NumPy cannot compute in a GPU's memory")
def test_numpy_computes_in_the_memory_of_a_shard_group(gangs):
    start = {"w": np.arange(10, dtype=np.float32), "b": np.float32([1, 2, 3]), "c": np.float64([4])}
    group = gw.ShardGroup(gangs, "g", start)
    into = {n: np.empty_like(v) for n, v in start.items()}
    with group.unsharded(into) as full:
        for name, value in start.items():
            assert full[name] is into[name]
            np.testing.assert_array_equal(into[name], value)
    with group.updating() as mine:
        for value in mine.values():
            value[...] = 7
    with group.unsharded() as full:
        assert all((v == 7).all() for v in full.values())
    with group.unsharded():
        whole = group.full_gradients()
        whole["w"] += 3
    group.reduce()
    assert whole["w"].tolist() == [3.0] * 10  # an array that lives is never used again by the library
    assert (group.gradients()["w"] == 3 * gangs.size).all()


@together(1, 2)
def test_a_step_refuses_gradients_that_are_not_reduced(gangs):
    """It would take them as zero, and a later step would count them."""
    group = gw.ShardGroup(gangs, "", {"w": np.zeros(4)})
    opt = gw.SGD(group, lr=1.0)

    def add():
        with group.unsharded():
            group.add_gradients({"w": np.ones(4)})

    def updating():
        with group.updating():
            pass

    add()
    for step in (opt.step, lambda: opt.model.clip_grad_norm(1.0), updating):
        with pytest.raises(gw.InvalidState, match=r'shard group "" \(w is its first of 1 parameters\) .* not reduced'):
            step()
    add()
    group.reduce()
    assert opt.step(scale=1 / gangs.size).step == 1
    add()
    opt.model.zero_grad()  # drops them
    assert opt.step().step == 2
    assert opt.model["w"].gather().tolist() == [-2.0] * 4


@together(1)
def test_a_nested_dict_is_refused_by_its_keys(gangs):
    with pytest.raises(TypeError, match="parameter a is a dict with the keys b, not an array: .* give a nested one flat"):
        gw.ShardGroup(gangs, "q", {"a": {"b": np.ones(4, np.float32)}})


@together(1, 2)
def test_a_tied_parameter_has_every_name(gangs):
    start = np.arange(6, dtype=np.float32)
    group = gw.ShardGroup(gangs, "g", {"w": gw.Spec([6], init=lambda first, last: start[first:last], aliases=["head"])})
    model = gw.ShardGroup.module(group)
    assert len(model) == 1 and "g.head" in model
    state = model.state_dict()
    assert set(state) == {"g.w", "g.head"}
    model.load_state_dict({"g.head": start + 1})
    assert (model["g.w"].gather() == start + 1).all()
    model.load_state_dict(state)
    with pytest.raises(gw.InvalidArgument, match="state has another g.head than g.w, but the model ties them"):
        model.load_state_dict({"g.w": start, "g.head": start + 1})
    where = folder(gangs)
    model.save(where)
    model.load_state_dict({"g.w": start + 9})
    model.load(where)
    assert (model["g.w"].gather() == start).all()


@together(2)
def test_several_groups_are_one_model(gangs):
    groups = [gw.ShardGroup(gangs, f"layers.{i}", {"w": np.full(4, i, np.float32)}) for i in range(3)]
    opt = gw.AdamW(groups, lr=0.1)
    where = folder(gangs)
    opt.model.save(where)
    assert [p.name for p in opt.model] == [f"layers.{i}.w" for i in range(3)]
    opt.model.load_state_dict({p.name: np.full(4, 9, np.float32) for p in opt.model})
    assert all((p.gather() == 9).all() for p in opt.model)
    opt.model.load(where)
    for i, group in enumerate(groups):
        with group.unsharded() as full:
            assert (full["w"] == i).all()


@over(2, needs="torch")
def test_torch_groups_give_torch_tensors(gangs):
    import torch

    group = gw.ShardGroup(gangs, "g", {"w": torch.arange(6.0).reshape(2, 3)}, param_dtype="bf16")
    with group.unsharded() as full:
        assert full["w"].dtype == torch.bfloat16 and full["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
        group.add_gradients([torch.ones(2, 3)])
    group.reduce()
    assert float(group.gradients()["w"].sum()) == 3 * 2
    kept = full["w"]
    gangs.root.barrier()
    del group, full
    assert kept.sum() == 15


def test_arrays_that_do_not_fit_a_shard_group_are_refused():
    group = gw.ShardGroup(None, "g", {"w": np.ones((4, 3), np.float32)})
    ones = np.ones((4, 3), np.float32)
    with group.unsharded():
        for gradients, text in (([ones[:, :2].copy()], r"shape \[4, 2\], g.w has \[4, 3\]"), ({"w": ones.astype(int)}, "is i64"),
                                ({"v": ones}, 'gradients has "v", g only w'), ([], "gradients has 0 arrays, g 1 parameters"),
                                ([ones.T], r'gradients\["w"\] is not contiguous'), ([3], r'gradients\["w"\] is a int')):
            with pytest.raises((gw.InvalidArgument, TypeError), match=text):
                group.add_gradients(gradients)
    for into, text in (({}, 'into has no "w"'), ({"w": ones[:3]}, r"into\[0\] has shape \[3, 3\], g.w has \[4, 3\]"),
                       ({"w": np.broadcast_to(ones[:1], (4, 3))}, r'into\["w"\] is read-only')):
        with pytest.raises(gw.InvalidArgument, match=text):
            group.unshard(into)
