"""The reductions of c10d."""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from ..enums import Op
from ..errors import InvalidArgument
from .folds import fold_of, premultiplied, sparse_sum
from .running import SYNC, Running
from .tensors import filling, joined, number_of, one, raw, reduction, same, source, target, units
from .works import Work

_PREMUL_SUM, _SUM, _AVG = int(ReduceOp.PREMUL_SUM), int(ReduceOp.SUM), int(ReduceOp.AVG)


class Reductions(Running):
    """Natively where the library has the operation and the type; else every rank gathers and folds (folds.py)."""

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
        self._run("all_gather", (one_count.data_ptr(), all_counts.data_ptr(), 1, raw(one_count)[2]), SYNC, [], None)
        return [int(n) for n in all_counts]

    def _all_parts(self, mine: Tensor, counts: Sequence[int]) -> Sequence[Tensor]:
        """Every rank's rows."""
        x = source(mine)
        every = x.new_empty((sum(counts), *x.shape[1:]))
        address, count, word = raw(x)
        each = count // x.shape[0] if x.shape[0] else units(x) * every[:1].numel()
        self._record(SYNC, [], None, x, every, counts=[n * each for n in counts], op=Op.ALL_GATHER, dtype=word,
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
