"""PyTorch modules as pipeline stages against the same modules in one piece."""

import threading

import pytest
from thread_ranks import PATIENCE, together

import gangway as gw

torch = pytest.importorskip("torch", reason="PyTorch is not installed; test.sh says from where it is borrowed")

WIDTH, ROWS, MICROBATCHES = 6, 11, 4


class Stage(torch.nn.Module):
    """Two layers and a norm; ids travel beside the values and choose rows of an embedding on each stage."""

    def __init__(self, stage):
        super().__init__()
        generator = torch.Generator().manual_seed(stage)
        self.a, self.b = (torch.nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for _ in range(2))
        self.norm = torch.nn.LayerNorm(WIDTH, dtype=torch.float64)
        self.table = torch.nn.Embedding(4, WIDTH, dtype=torch.float64)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2

    def forward(self, x, ids):
        return x + self.b(torch.tanh(self.a(self.norm(x)))) * self.table(ids), ids


def loss_of(y, ids, target):
    return ((y - target) ** 2).sum()


def batch(shift=0):
    generator = torch.Generator().manual_seed(50 + shift)
    x, target = (torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2))
    return x, torch.randint(4, (ROWS,), generator=generator), target


def alone(stages, batches):
    """Losses and gradients of all stages in one piece, summed over the batches."""
    modules = [Stage(s) for s in range(stages)]
    total = 0.0
    for x, ids, target in batches:
        for module in modules:
            x, ids = module(x, ids)
        loss = loss_of(x, ids, target)
        loss.backward()
        total += float(loss.detach())
    return total, [{n: p.grad for n, p in module.named_parameters()} for module in modules]


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("schedule, ranks, per_rank", [("1f1b", 2, 1), ("interleaved-1f1b", 2, 2), ("zb-h1", 4, 1), ("zbv", 2, 2)])
def test_gradients_equal_those_of_one_piece(schedule, ranks, per_rank):
    total, wanted = alone(ranks * per_rank, [batch()])

    def body(gang):
        pipe = gw.Pipeline(gang, schedule=schedule, microbatches=MICROBATCHES, kind="torch")
        modules = {s: Stage(s) for s in pipe.local_stages}
        stages = gw.TorchStages(pipe, modules, loss=loss_of)
        x, ids, target = batch()
        first, last = 0 in modules, pipe.stages - 1 in modules
        given = dict(targets=target) if last else {}
        assert stages.eval_step(*((x, ids) if first else ()), **given) == pytest.approx(total, rel=1e-12)
        assert all(p.grad is None for module in modules.values() for p in module.parameters())
        for step in (1, 2):  # gradients add
            assert stages.step(*((x, ids) if first else ()), **given) == pytest.approx(total, rel=1e-12)
            for s, module in modules.items():
                for name, parameter in module.named_parameters():
                    close(parameter.grad, step * wanted[s][name])
        assert repr(stages).startswith(f"<TorchStages {pipe.local_stages[0]}: Stage")

    together(ranks, body)


@pytest.mark.parametrize("schedule, most", [("1f1b", 0), ("1f1b", 1), ("zbv", 0), ("zbv", 1)])
def test_stages_that_are_shard_groups_train_as_one_rank(schedule, most):
    """pp 2 x dp_shard 2: each stage is a shard group over its data ranks."""
    per_rank = 2 if schedule == "zbv" else 1
    batches = [batch(0), batch(1)]
    total, wanted = alone(2 * per_rank, batches)

    def body(root):
        gangs = gw.Gangs.create(root, pp=2)
        data = gw.Gangs.create(gangs["dp"])
        pipe = gw.Pipeline(gangs["pp"], schedule=schedule, microbatches=MICROBATCHES, most_unsharded=most, kind="torch")
        groups = {s: gw.shard(Stage(s), data, name=f"stage{s}") for s in pipe.local_stages}
        stages = gw.TorchStages(pipe, groups, loss=loss_of)
        x, ids, target = batches[data.rank]
        own = stages.step(x, ids, targets=target)
        assert data.root.all_sum(own) == pytest.approx(total, rel=1e-12)
        for s, group in groups.items():
            model = gw.ShardGroup.module(group)
            for name, gradient in wanted[s].items():
                close(model[f"stage{s}.{name}"].gather_gradient("torch"), gradient)
        opt = gw.SGD(list(groups.values()), lr=0.01)
        opt.step()
        assert data.root.all_sum(stages.eval_step(x, ids, targets=target)) < total

    together(4, body)


def sharded(root, most, loss):
    """pp 2 x dp_shard 2, and the data rank."""
    gangs = gw.Gangs.create(root, pp=2)
    data = gw.Gangs.create(gangs["dp"])
    pipe = gw.Pipeline(gangs["pp"], microbatches=MICROBATCHES, most_unsharded=most, kind="torch")
    groups = {s: gw.shard(Stage(s), data, name=f"stage{s}") for s in pipe.local_stages}
    root.all_sum(1.0)  # a rank that fails early does so when all are ready
    return gw.TorchStages(pipe, groups, loss=lambda *given: loss(data.rank, *given)), pipe, groups, data.rank


@pytest.mark.parametrize("most", [0, 1])
def test_a_loss_that_fails_on_one_rank_ends_the_step_of_all(most):
    x, ids, target = batch()
    losses, raised = [], threading.Barrier(4)

    def loss(data_rank, *given):
        losses.append(data_rank)
        return loss_of(*given) if data_rank == 1 or losses.count(0) < 3 else 1 / 0

    def body(root):
        stages, pipe, groups, data_rank = sharded(root, most, loss)
        fails = data_rank == 0 and pipe.rank == 1
        with pytest.raises(ZeroDivisionError if fails else (gw.Aborted, gw.PeerLost)):
            stages.step(x, ids, targets=target)
        raised.wait(2 * PATIENCE)  # all raise while the rank that failed is there
        assert repr(pipe) == "<Pipeline: released>"
        for group in groups.values():
            assert all(p.numel() == 0 and p.grad is None for p in group.module_of_torch.parameters())
        with pytest.raises(gw.GangwayError):
            stages.step(x, ids, targets=target)

    together(4, body)


@pytest.mark.parametrize("most", [0, 1])
def test_refused_inputs_of_one_rank_end_the_step_of_all(most):
    x, ids, target = batch()
    raised = threading.Barrier(4)

    def body(root):
        stages, pipe, _, data_rank = sharded(root, most, lambda _, *given: loss_of(*given))
        wrong = data_rank == 0 and pipe.rank == 0
        with pytest.raises(TypeError if wrong else gw.Aborted):
            stages.step("text" if wrong else x, ids, targets=target)
        raised.wait(2 * PATIENCE)

    together(4, body)


def test_a_refused_gradient_on_one_rank_keeps_no_peer_waiting():
    def body(gang):
        module = torch.nn.Linear(3, 2, dtype=torch.float64)
        group = gw.shard(module, gw.Gangs.create(gang))
        group.unshard()
        for p in module.parameters():  # autograd follows a gradient made with create_graph=True
            p.grad = torch.ones_like(p).requires_grad_(gang.rank == 0)
        if gang.rank == 0:
            with pytest.raises(gw.InvalidArgument):
                group.reduce()
        else:
            group.reduce()
        for p in module.parameters():
            p.grad = None
        group.reshard()
        assert gang.all_sum(1.0) == 2

    together(2, body)


def test_refusals_name_what_is_wrong():
    def body(gang):
        pipe = gw.Pipeline(gang, microbatches=2, kind="torch")
        with pytest.raises(gw.InvalidArgument, match=r"stages has \[1\], but this rank runs \[0\]"):
            gw.TorchStages(pipe, {1: Stage(1)}, loss=loss_of)
        with pytest.raises(TypeError, match=r"stages\[0\] is a str, not a torch.nn.Module"):
            gw.TorchStages(pipe, {0: "stage"}, loss=loss_of)
        with pytest.raises(gw.InvalidArgument, match='make it with kind="torch"'):
            gw.TorchStages(gw.Pipeline(gang, microbatches=2), {0: Stage(0)}, loss=loss_of)
        with pytest.raises(TypeError, match="pipeline is a int, not a Pipeline"):
            gw.TorchStages(3, {}, loss=loss_of)

    together(1, body)
