"""The reference model under PyTorch's own forms of parallelism, for torch_train.py.

A mesh is a dict of words: tp, pp, cp, dp_shard (degrees), sequence_parallel, schedule (1f1b or zbv), microbatches and
first_layers (the layer that each stage begins with: "0,5"). Axes go from the slowest to the fastest: pp, dp_shard, cp, tp.
All ranks of one data coordinate train the same rows, so that a step has as many tokens a rank as plain data parallelism.
"""
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)

import torch_train as s32

AXES = ("pp", "dp_shard", "cp", "tp")


def split_over_tp(model, tp, sequence_parallel, whole_logits):
    """Megatron's split, with one gather before attention and one before the feed-forward part; modules may be absent."""
    between = Shard(1) if sequence_parallel else Replicate()
    norm = {"norm": SequenceParallel()} if sequence_parallel else {}
    for block in model.blocks:
        gather = PrepareModuleInput(input_layouts=(between, None, None), desired_input_layouts=(Replicate(), None, None))
        columns, rows = ColwiseParallel(), RowwiseParallel(output_layouts=between)
        plan = {"attention": gather, "attention.q": columns, "attention.k": columns, "attention.v": columns, "attention.o": rows,
                "mlp": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
                "mlp.gate": columns, "mlp.up": columns, "mlp.down": rows}
        if sequence_parallel:
            plan |= {"norm1": SequenceParallel(), "norm2": SequenceParallel()}
        parallelize_module(block, tp, plan)
    ends = {"embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=between), **norm,
            "head": ColwiseParallel(input_layouts=between, output_layouts=Replicate() if whole_logits else Shard(-1),
                                    use_local_output=whole_logits)}
    parallelize_module(model, tp, {name: style for name, style in ends.items() if getattr(model, name) is not None})


def shard(model, mesh, **options):
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)


def optimizer_of(model):
    """One group for each mesh: the fused AdamW takes tensors of one kind at a time."""
    groups = {}
    for p in model.parameters():
        groups.setdefault(str(getattr(p, "device_mesh", None)), []).append(p)
    return s32.adamw([{"params": parameters} for parameters in groups.values()])


class Stage(nn.Module):
    """The blocks [first, end) of the model, with the embedding before the first and the head after the last."""

    def __init__(self, model, first, end):
        super().__init__()
        self.embed = model.embed if first == 0 else None
        self.blocks = nn.ModuleList(list(model.blocks)[first:end])
        self.norm, self.head = (model.norm, model.head) if end == s32.LAYERS else (None, None)
        self.cos, self.sin = model.cos, model.sin

    def forward(self, x):
        if self.embed is not None:
            x = self.embed(x)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return x if self.head is None else self.head(self.norm(x))


class ParallelTraining:
    def __init__(self, rank, size, given):
        torch.manual_seed(1)
        self.rank, self.given = rank, given
        self.degree = {axis: int(given.get(axis, 1)) for axis in AXES}
        self.mesh = init_device_mesh("cpu", tuple(self.degree.values()), mesh_dim_names=AXES)
        data = self.mesh["dp_shard"].get_local_rank()
        self.tokens, self.labels = s32.batch_of(s32.BATCH * size // self.degree["dp_shard"], data)
        self.around = contextlib.nullcontext
        model = s32.Llama()
        self.modules = self._stages(model) if self.degree["pp"] > 1 else [model]
        for module in self.modules:
            self._apply(module)
        self.optimizers = [optimizer_of(module) for module in self.modules]
        self.schedule = self._schedule() if self.degree["pp"] > 1 else None

    def _stages(self, model):
        first = [int(layer) for layer in self.given["first_layers"].split(",")] + [s32.LAYERS]
        self.stage_count, pp, own = len(first) - 1, self.degree["pp"], self.mesh["pp"].get_local_rank()
        self.indices = [own] if self.stage_count == pp else [own, self.stage_count - 1 - own]  # a V
        return [Stage(model, first[i], first[i + 1]) for i in self.indices]

    def _apply(self, module):
        if self.degree["tp"] > 1:
            whole_logits = self.degree["pp"] > 1  # between stages and schedule plain tensors are handed on
            split_over_tp(module, self.mesh["tp"], self.given.get("sequence_parallel") == "1", whole_logits)
            if not whole_logits:
                self.around = loss_parallel
        if self.degree["dp_shard"] > 1 or self.degree["cp"] > 1:
            axis = "dp_shard" if self.degree["cp"] == 1 else "cp"
            shard(module, self.mesh[axis], **({"reshard_after_forward": False} if self.degree["pp"] > 1 else {}))

    def _schedule(self):
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleZBVZeroBubble

        stages = [PipelineStage(module, index, self.stage_count, torch.device("cpu"), group=self.mesh["pp"].get_group())
                  for module, index in zip(self.modules, self.indices)]
        options = {"n_microbatches": int(self.given["microbatches"]), "loss_fn": lambda y, t: F.cross_entropy(
            y.reshape(-1, s32.VOCAB), t.reshape(-1))}
        if self.given["schedule"] == "zbv":
            return ScheduleZBVZeroBubble(stages, **options)
        return Schedule1F1B(stages[0], **options)

    def _pass(self):
        """Forward and backward of all rows; the loss, NaN on a rank that does not have it."""
        if self.schedule is None:
            with self.around(), self._split_sequence() as (tokens, labels):
                loss = self.modules[0](tokens, labels)
                loss.backward()
            return loss.detach()
        losses = []
        given = (self.tokens,) if 0 in self.indices else ()
        wanted = {"target": self.labels, "losses": losses} if self.stage_count - 1 in self.indices else {}
        self.schedule.step(*given, **wanted)
        return torch.stack(losses).mean().detach() if losses else torch.tensor(float("nan"))

    @contextlib.contextmanager
    def _split_sequence(self):
        """This rank's part of the rows. PyTorch 2.15 has no context parallel attention on a CPU: the step raises."""
        if self.degree["cp"] == 1:
            yield self.tokens, self.labels
            return
        from torch.distributed.tensor.experimental import context_parallel

        model = self.modules[0]
        buffers = [self.tokens, self.labels, model.cos, model.sin]  # cut in place, whole again after it
        with context_parallel(self.mesh["cp"], buffers=buffers, buffer_seq_dims=[1, 1, 0, 0]):
            yield self.tokens, self.labels

    def step(self):
        loss = self._pass()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return float(loss.full_tensor() if hasattr(loss, "full_tensor") else loss)
