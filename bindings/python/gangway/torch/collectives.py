"""The collectives and messages of c10d, as calls of the library. Each returns None when it is done (the caller asked for no
work), else a Work. c10d's lists of tensors have one entry for each device of a rank, which is one here."""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor

from .. import _low as c
from .. import low
from ..enums import Op
from ..errors import GangwayError, InvalidArgument
from ..structs import block
from .failures import told
from .reductions import Reductions
from .running import ASYNC
from .tensors import Finish, all_of, joined, one, parted, raw, rows, same, source, target, units
from .works import Work


class Collectives(Reductions):
    """What a Backend does with tensors."""

    # --- gathering

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any) -> Work | None:
        """All inputs, by rank, in one tensor."""
        x = source(input, "input")
        same([output], x, "output")
        if output.numel() != x.numel() * self._size:
            raise InvalidArgument(f"all_gather: output has {output.numel()} elements, {x.numel()} of each of {self._size} "
                                  "ranks are needed")
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
        if not input_splits and not output_splits and sent != got:
            raise InvalidArgument(f"all_to_all: input has {x.numel()} elements, output {output.numel()}; without split sizes "
                                  "they must be alike")
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
        work = self._run("barrier", (), ASYNC, [], None)
        assert work is not None
        work.wait(opts.timeout)
        return None

    # --- messages

    def send(self, tensors: list[Tensor], peer: int, tag: int) -> Work:
        """To a rank that receives this tag from this rank."""
        x = source(one(tensors, "send"))
        try:
            self._messages.check_peer(peer, "send")
            return self._limited(Work(iter(self._messages.send(x, peer, tag)), tensors))
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
        return self._limited(work)

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Work:
        """From the first rank that has sent this tag."""
        out, finish = target(one(tensors, "recv"))
        senders: list[int] = []
        work = Work(self._messages.receive_any(out, tag, senders.append), tensors, finish)
        work._senders = senders
        return self._limited(work)
