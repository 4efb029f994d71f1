"""The collectives of c10d, as calls of the library. Each returns None when it is done (the caller asked for no work), else a
Work. c10d's lists of tensors have one entry for each device of a rank, which is one here."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Callable, Sequence

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from .. import _low as c
from .. import low
from ..enums import Op
from ..errors import GangwayError, InvalidArgument
from ..structs import block, struct
from .failures import told
from .folds import fold_of, premultiplied, sparse_sum
from .messages import Messages
from .tensors import (
    Finish, all_of, filling, joined, number_of, one, parted, raw, reduction, rows, same, source, target, units,
)
from .works import Work

profiled: Callable[[], bool] = torch._C._autograd._profiler_enabled
_PREMUL_SUM, _SUM, _AVG = int(ReduceOp.PREMUL_SUM), int(ReduceOp.SUM), int(ReduceOp.AVG)
_NAMES = ("barrier", "all_reduce", "all_gather", "all_gather_list", "reduce_scatter", "broadcast", "reduce", "gather",
          "scatter", "all_to_all")
_NOW: dict[str, Callable[..., Any]] = {n: getattr(c, f"gw_gang_{n}") for n in _NAMES}
_LATER: dict[str, Callable[..., Any]] = {n: getattr(c, f"gw_gang_{n}_async") for n in _NAMES}


class Collectives:
    """What a Backend does with tensors."""

    _h: Any
    _rank: int
    _size: int
    _messages: Messages
    _patience: timedelta | None  # of each call, where it differs from the gang's own
    _calls = 0

    # --- running and starting

    def _run(self, name: str, arguments: tuple[Any, ...], opts: Any, result: Sequence[Any], finish: Finish | None,
             *keep: Any) -> Work | None:
        """Runs it where the caller waits, else starts it. `keep` lives until it is done."""
        if profiled():
            with torch.profiler.record_function(f"gangway:{name}"):
                return self._call(name, arguments, opts, result, finish, *keep)
        return self._call(name, arguments, opts, result, finish, *keep)

    def _call(self, name: str, arguments: tuple[Any, ...], opts: Any, result: Sequence[Any], finish: Finish | None,
              *keep: Any) -> Work | None:
        self._calls += 1
        if opts.asyncOp or self._patience is not None:
            try:
                handle = _LATER[name](self._h, *arguments, None)
                c.gw_work_attach(handle, (result, keep), low.py_free)
            except GangwayError as error:
                raise told(error)
            return self._given(Work(iter((handle,)), result, finish), opts)
        try:
            _NOW[name](self._h, *arguments, None)
        except GangwayError as error:
            raise told(error)
        if finish is not None:
            finish()
        return None

    def _record(self, opts: Any, result: Sequence[Any], finish: Finish | None, *keep: Any, counts: Sequence[int],
                **fields: Any) -> Work | None:
        """A call with counts for each rank."""
        self._calls += 1
        record = struct("gw_collective", counts=block("l", counts), **fields)
        try:
            handle = c.gw_gang_run(self._h, record, None)
            c.gw_work_attach(handle, (result, keep), low.py_free)
        except GangwayError as error:
            raise told(error)
        return self._given(Work(iter((handle,)), result, finish), opts)

    def _given(self, work: Work, opts: Any) -> Work | None:
        if opts.asyncOp:
            return work
        work.wait(self._patience)
        return None

    def _several(self, calls: Sequence[Work | None], opts: Any, result: Sequence[Any]) -> Work | None:
        """Calls that were started one after the other, as one work."""
        works = [w for w in calls if w is not None]
        if not works:
            return Work(iter(()), result) if opts.asyncOp else None
        return Work(_handles(works), result)

    # --- reductions

    def allreduce(self, tensors: list[Tensor], opts: Any) -> Work | None:
        """In place."""
        tensor = one(tensors, "all_reduce")
        if tensor.layout is not torch.strided:
            return self._allreduce_sparse(tensor, opts)
        return self._allreduce(tensor, opts.reduceOp, opts, tensors)

    def _allreduce(self, tensor: Tensor, op: Any, opts: Any, result: Sequence[Tensor]) -> Work | None:
        home = self._reducible(tensor, op)
        number = reduction(op, home.dtype)
        if number is None:
            return self._fold_all(home, op, opts, result)
        out, finish = target(home, fill=True)
        address = out.data_ptr()
        return self._run("all_reduce", (address, address, out.numel(), raw(out)[2], number), opts, result, finish, out)

    @staticmethod
    def _reducible(tensor: Tensor, op: Any) -> Tensor:
        """Complex numbers add as pairs."""
        if tensor.is_complex() and number_of(op) in (_SUM, _AVG):
            return torch.view_as_real(tensor)
        return tensor

    def _fold_all(self, home: Tensor, op: Any, opts: Any, result: Sequence[Tensor]) -> Work | None:
        x = source(home)
        if number_of(op) == _PREMUL_SUM:
            return self._premultiplied(premultiplied(op, x), home, opts, result)
        fold = fold_of(op, x.dtype)
        every = x.new_empty((self._size, *x.shape))
        address, count, word = raw(x)
        return self._run("all_gather", (address, every.data_ptr(), count, word), opts, result,
                         filling(home, lambda: fold(every.unbind(0))), x, every)

    def _premultiplied(self, x: Tensor, home: Tensor, opts: Any, result: Sequence[Tensor]) -> Work | None:
        number = reduction(ReduceOp.SUM, x.dtype)
        out = torch.empty_like(x)
        return self._run("all_reduce", (x.data_ptr(), out.data_ptr(), x.numel(), raw(x)[2], number), opts, result,
                         filling(home, lambda: out), x, out)

    def _allreduce_sparse(self, tensor: Tensor, opts: Any) -> Work | None:
        """The sum of sparse tensors; done when it returns."""
        if number_of(opts.reduceOp) != _SUM or tensor.layout is not torch.sparse_coo:
            raise InvalidArgument(f"all_reduce of {tensor.layout} by {opts.reduceOp}: sparse tensors of layout "
                                  "torch.sparse_coo are summed, others are not reduced")
        with torch.no_grad():
            tensor.copy_(self._sum_of_sparse(tensor.detach().coalesce()))  # as detach() would not see the new indices
        return Work(iter(()), [tensor]) if opts.asyncOp else None

    def _sum_of_sparse(self, mine: Tensor) -> Tensor:
        counts = self._all_counts(mine._nnz())
        indices = self._all_parts(mine._indices().t(), counts)
        values = self._all_parts(mine._values(), counts)
        return sparse_sum([torch.sparse_coo_tensor(i.t(), v, mine.shape) for i, v in zip(indices, values)])

    def _all_counts(self, mine: int) -> list[int]:
        one_count, all_counts = torch.tensor([mine]), torch.empty(self._size, dtype=torch.int64)
        self._run("all_gather", (one_count.data_ptr(), all_counts.data_ptr(), 1, raw(one_count)[2]), _SYNC, [], None)
        return [int(n) for n in all_counts]

    def _all_parts(self, mine: Tensor, counts: Sequence[int]) -> Sequence[Tensor]:
        """Every rank's rows."""
        x = source(mine)
        every = x.new_empty((sum(counts), *x.shape[1:]))
        address, count, word = raw(x)
        each = count // x.shape[0] if x.shape[0] else units(x) * every[:1].numel()
        self._record(_SYNC, [], None, x, every, counts=[n * each for n in counts], op=Op.ALL_GATHER, dtype=word,
                     input=address, output=every.data_ptr(), count=count)
        return every.split(list(counts))

    def allreduce_sparse(self, tensors: list[Tensor], opts: Any) -> Work | None:
        """As allreduce()."""
        return self.allreduce(tensors, opts)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any) -> Work | None:
        """Each in place, one after the other."""
        return self._several([self._allreduce(t, opts.reduceOp, opts, [t]) for t in tensors], opts, tensors)

    def reduce(self, tensors: list[Tensor], opts: Any) -> Work | None:
        """In place on the root; others keep their values."""
        tensor, op, root = one(tensors, "reduce"), opts.reduceOp, opts.rootRank
        home = self._reducible(tensor, op)
        if number_of(op) == _PREMUL_SUM:
            home, op = premultiplied(op, home), ReduceOp.SUM
        number = reduction(op, home.dtype)
        x = source(home)
        mine = self._rank == root
        if number is None:
            fold = fold_of(op, x.dtype)
            every = x.new_empty((self._size, *x.shape) if mine else (0,))
            address, count, word = raw(x)
            return self._run("gather", (address, every.data_ptr() if mine else None, count, word, root), opts, tensors,
                             filling(tensor, lambda: fold(every.unbind(0))) if mine else None, x, every)
        out = torch.empty_like(x) if mine and x.data_ptr() != tensor.data_ptr() else x
        bring = filling(self._reducible(tensor, op), lambda: out) if mine and out is not x else None
        return self._run("reduce", (x.data_ptr(), out.data_ptr() if mine else None, x.numel(), raw(x)[2], number, root), opts,
                         tensors, bring, x, out)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any) -> Work | None:
        """This rank's part of the sum of flat inputs."""
        op = opts.reduceOp
        if number_of(op) == _PREMUL_SUM:
            input, op = premultiplied(op, input), ReduceOp.SUM
        x, home = source(self._reducible(input, op), "input"), self._reducible(output, op)
        same([home], x, "output")
        if x.numel() != home.numel() * self._size:
            raise InvalidArgument(f"reduce_scatter: input has {x.numel()} elements, the output {home.numel()} for each of "
                                  f"{self._size} ranks")
        return self._reduce_scatter(x, home, op, opts, [output])

    def _reduce_scatter(self, x: Tensor, home: Tensor, op: Any, opts: Any, result: Sequence[Tensor]) -> Work | None:
        number = reduction(op, x.dtype)
        if number is None:
            fold = fold_of(op, x.dtype)
            every = x.new_empty((self._size, *home.shape))
            address, count, word = raw(x)
            return self._run("all_to_all", (address, every.data_ptr(), count // self._size, word), opts, result,
                             filling(home, lambda: fold(every.unbind(0))), x, every)
        out, finish = target(home, "output")
        return self._run("reduce_scatter", (x.data_ptr(), out.data_ptr(), out.numel(), raw(x)[2], number), opts, result,
                         finish, x, out)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work | None:
        """One input for each rank, which may differ in size."""
        output, parts, op = one(outputs, "reduce_scatter"), inputs[0], opts.reduceOp
        self._one_each(parts, "inputs")
        if number_of(op) == _PREMUL_SUM:
            parts, op = [premultiplied(op, p) for p in parts], ReduceOp.SUM
        same(parts, output, "inputs")
        x, home = self._reducible(joined(parts, "inputs"), op).reshape(-1), self._reducible(output, op)
        counts = [p.numel() * (2 if p.is_complex() and home is not output else 1) for p in parts]
        if home.numel() != counts[self._rank]:
            raise InvalidArgument(f"reduce_scatter: output has {home.numel()} elements, this rank's input "
                                  f"{counts[self._rank]}")
        if len(set(counts)) == 1:
            return self._reduce_scatter(x, home, op, opts, outputs)
        number = reduction(op, x.dtype)
        if number is None:
            raise InvalidArgument(f"reduce_scatter of parts that differ in size: {op} of {x.dtype} needs equal ones")
        out, finish = target(home, "output")
        return self._record(opts, outputs, finish, x, out, counts=counts, op=Op.REDUCE_SCATTER, dtype=raw(x)[2],
                            input=x.data_ptr(), output=out.data_ptr(), count=out.numel(), reduce=number)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Work | None:
        """One after the other."""
        return self._several([self.reduce_scatter_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)], opts,
                             outputs)

    # --- gathering

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any) -> Work | None:
        """All inputs, by rank, in one tensor."""
        x = source(input, "input")
        same([output], x, "output")
        if output.numel() != x.numel() * self._size:
            raise InvalidArgument(f"all_gather: output has {output.numel()} elements, {x.numel()} of each of {self._size} ranks "
                                  "are needed")
        out, finish = target(output, "output")
        address, count, word = raw(x)
        return self._run("all_gather", (address, out.data_ptr(), count, word), opts, [output], finish, x, out)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work | None:
        """One output for each rank, which may differ in size."""
        outs, x = outputs[0], source(one(inputs, "all_gather"), "input")
        self._one_each(outs, "outputs")
        same(outs, x, "outputs")
        counts = [o.numel() for o in outs]
        if x.numel() != counts[self._rank]:
            raise InvalidArgument(f"all_gather: input has {x.numel()} elements, its output {counts[self._rank]}")
        address, count, word = raw(x)
        if len(set(counts)) == 1:
            pairs = [target(o, f"outputs[{i}]") for i, o in enumerate(outs)]
            addresses = block("a", [t.data_ptr() for t, _ in pairs])
            return self._run("all_gather_list", (address, addresses, count, word), opts, outs, all_of([f for _, f in pairs]),
                             x, [t for t, _ in pairs])
        flat = x.new_empty(sum(counts))
        return self._record(opts, outs, lambda: parted(flat, outs), x, flat, counts=[n * units(x) for n in counts],
                            op=Op.ALL_GATHER, dtype=word, input=address, output=flat.data_ptr(), count=count)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work | None:
        """outputs[rank][i] gets that rank's inputs[i]; one after the other."""
        self._one_each(outputs, "output lists")
        calls = [self.allgather([[o[i] for o in outputs]], [x], opts) for i, x in enumerate(inputs)]
        return self._several(calls, opts, [t for o in outputs for t in o])

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Work | None:
        """One after the other."""
        return self._several([self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)], opts, outputs)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work | None:
        """Into the root's outputs, one for each rank."""
        x, root = source(one(inputs, "gather"), "input"), opts.rootRank
        if self._rank != root:
            address, count, word = raw(x)
            return self._run("gather", (address, None, count, word, root), opts, [], None, x)
        outs = outputs[0]
        self._one_each(outs, "outputs")
        same(outs, x, "outputs")
        for i, o in enumerate(outs):
            if o.numel() != x.numel():
                raise InvalidArgument(f"gather: outputs[{i}] has {o.numel()} elements, the input {x.numel()}")
        flat = x.new_empty(self._size * x.numel())
        address, count, word = raw(x)
        return self._run("gather", (address, flat.data_ptr(), count, word, root), opts, outs, lambda: parted(flat, outs), x,
                         flat)

    def gather_single(self, output: Tensor, input: Tensor, opts: Any) -> Work | None:
        """Into one tensor of the root."""
        x, root = source(input, "input"), opts.rootRank
        address, count, word = raw(x)
        if self._rank != root:
            return self._run("gather", (address, None, count, word, root), opts, [], None, x)
        out, finish = target(output, "output")
        return self._run("gather", (address, out.data_ptr(), count, word, root), opts, [output], finish, x, out)

    # --- giving out

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Work | None:
        """In place."""
        tensor = one(tensors, "broadcast")
        out, finish = target(tensor, fill=self._rank == opts.rootRank)
        address, count, word = raw(out)
        return self._run("broadcast", (address, address, count, word, opts.rootRank), opts, tensors,
                         None if self._rank == opts.rootRank else finish, out)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work | None:
        """The root's inputs, one for each rank."""
        output, root = one(outputs, "scatter"), opts.rootRank
        out, finish = target(output, "output")
        address, count, word = raw(out)
        x: Tensor | None = None
        if self._rank == root:
            parts = inputs[0]
            self._one_each(parts, "inputs")
            same(parts, output, "inputs")
            for i, p in enumerate(parts):
                if p.numel() != output.numel():
                    raise InvalidArgument(f"scatter: inputs[{i}] has {p.numel()} elements, the output {output.numel()}")
            x = joined(parts, "inputs")
        return self._run("scatter", (x.data_ptr() if x is not None else None, address, count, word, root), opts, outputs,
                         finish, x, out)

    # --- exchanging

    def all_to_all_single(self, output: Tensor, input: Tensor, output_splits: list[int], input_splits: list[int],
                          opts: Any) -> Work | None:
        """Rows of dim 0 to each rank and from each."""
        x = source(input, "input")
        same([output], x, "output")
        sent = rows(x, input_splits, self._size, "input")
        got = rows(output, output_splits, self._size, "output")
        out, finish = target(output, "output")
        return self._exchange(x, out, sent, got, bool(input_splits or output_splits), opts, [output], finish)

    def _exchange(self, x: Tensor, out: Tensor, sent: Sequence[int], got: Sequence[int], uneven: bool, opts: Any,
                  result: Sequence[Tensor], finish: Finish | None) -> Work | None:
        word = raw(x)[2]
        if not uneven:
            return self._run("all_to_all", (x.data_ptr(), out.data_ptr(), sent[0], word), opts, result, finish, x, out)
        return self._record(opts, result, finish, x, out, counts=[*sent, *got], op=Op.ALL_TO_ALL, dtype=word,
                            input=x.data_ptr(), output=out.data_ptr())

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Work | None:
        """One tensor to each rank and one from each, of any sizes."""
        self._one_each(inputs, "inputs")
        self._one_each(outputs, "outputs")
        same([*inputs, *outputs], inputs[0], "tensors")
        x = joined(inputs, "inputs")
        flat = x.new_empty(sum(o.numel() for o in outputs))
        each = units(x)
        return self._exchange(x, flat, [t.numel() * each for t in inputs], [t.numel() * each for t in outputs], True, opts,
                              outputs, lambda: parted(flat, outputs))

    def barrier(self, opts: Any) -> Work | None:
        """Returns when every rank has come."""
        seconds = opts.timeout.total_seconds()
        if seconds <= 0 or opts.asyncOp:
            return self._run("barrier", (), opts, [], None)
        work = self._run("barrier", (), _ASYNC, [], None)
        assert work is not None
        work.wait(opts.timeout)
        return None

    # --- messages

    def send(self, tensors: list[Tensor], peer: int, tag: int) -> Work:
        """To a rank that receives this tag from this rank."""
        x = source(one(tensors, "send"))
        try:
            self._messages.check_peer(peer, "send")
            return Work(iter(self._messages.send(x, peer, tag)), tensors)
        except GangwayError as error:
            raise told(error)

    def recv(self, tensors: list[Tensor], peer: int, tag: int) -> Work:
        """From a rank that sends this tag to this rank."""
        out, finish = target(one(tensors, "recv"))
        try:
            self._messages.check_peer(peer, "recv")
            if tag == 0:
                address, count, word = raw(out)
                handle = c.gw_gang_recv_async(self._h, address, count, word, peer, None)
                c.gw_work_attach(handle, out, low.py_free)
                work = Work(iter((handle,)), tensors, finish)
            else:
                work = Work(self._messages.receive(out, peer, tag), tensors, finish)
        except GangwayError as error:
            raise told(error)
        work._sender = peer
        return work

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Work:
        """From the first rank that has sent this tag."""
        out, finish = target(one(tensors, "recv"))
        senders: list[int] = []
        work = Work(self._messages.receive_any(out, tag, senders.append), tensors, finish)
        work._senders = senders
        return work

    def _one_each(self, tensors: Sequence[Any], name: str) -> None:
        if len(tensors) != self._size:
            raise InvalidArgument(f"{name}: {len(tensors)} were given, {self._size} are needed, one for each rank")


def _handles(works: Sequence[Work]) -> Any:
    """The steps of works that began one after the other, then their ends."""
    for work in works:
        while not work._advance():
            yield work._handle
        if work._error is not None:
            raise work._error


class _Options:
    """c10d's options of a call, as far as they are asked here."""

    def __init__(self, async_op: bool) -> None:
        self.asyncOp = async_op
        self.timeout = timedelta(0)


_SYNC, _ASYNC = _Options(False), _Options(True)
