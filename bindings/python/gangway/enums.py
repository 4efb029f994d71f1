"""Enumerations of the library. They are open: a later library may return a number that this package does not know."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeVar

from . import _low as c

E = TypeVar("E", bound="Open")


class Open(IntEnum):
    """An IntEnum that takes unknown numbers, named UNKNOWN_<number>."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value}"
        member._value_ = value
        return member


class Status(Open):
    """Result of a call."""

    NONE = c.GW_STATUS_NONE
    OK = c.GW_OK
    INVALID_ARGUMENT = c.GW_E_INVALID_ARGUMENT
    NOT_SUPPORTED = c.GW_E_NOT_SUPPORTED
    INVALID_STATE = c.GW_E_INVALID_STATE
    GANG = c.GW_E_GANG
    PEER_LOST = c.GW_E_PEER_LOST
    TIMEOUT = c.GW_E_TIMEOUT
    MISMATCH = c.GW_E_MISMATCH
    ABORTED = c.GW_E_ABORTED
    NOT_READY = c.GW_E_NOT_READY
    NOT_FOUND = c.GW_E_NOT_FOUND
    FORKED = c.GW_E_FORKED
    CALLER = c.GW_E_CALLER
    OUT_OF_MEMORY = c.GW_E_OUT_OF_MEMORY
    IO = c.GW_E_IO
    CORRUPT = c.GW_E_CORRUPT
    INTERNAL = c.GW_E_INTERNAL
    BUSY = c.GW_E_BUSY


class DType(Open):
    """Element types: DLPack's code, bits and lanes as one word."""

    NONE = c.GW_DTYPE_NONE
    I8 = c.GW_I8
    I16 = c.GW_I16
    I32 = c.GW_I32
    I64 = c.GW_I64
    U8 = c.GW_U8
    U16 = c.GW_U16
    U32 = c.GW_U32
    U64 = c.GW_U64
    F16 = c.GW_F16
    F32 = c.GW_F32
    F64 = c.GW_F64
    BF16 = c.GW_BF16
    C64 = c.GW_C64
    C128 = c.GW_C128
    BOOL = c.GW_BOOL
    F8_E4M3 = c.GW_F8_E4M3
    F8_E5M2 = c.GW_F8_E5M2


class Reduce(Open):
    """Reductions; MEAN is the sum divided by the gang's size."""

    NONE = c.GW_REDUCE_NONE
    SUM = c.GW_SUM
    MEAN = c.GW_MEAN
    PRODUCT = c.GW_PRODUCT
    MIN = c.GW_MIN
    MAX = c.GW_MAX


class Op(Open):
    """Collectives."""

    BARRIER = c.GW_BARRIER
    ALL_REDUCE = c.GW_ALL_REDUCE
    ALL_GATHER = c.GW_ALL_GATHER
    REDUCE_SCATTER = c.GW_REDUCE_SCATTER
    BROADCAST = c.GW_BROADCAST
    REDUCE = c.GW_REDUCE
    GATHER = c.GW_GATHER
    SCATTER = c.GW_SCATTER
    ALL_TO_ALL = c.GW_ALL_TO_ALL
    SEND = c.GW_SEND
    RECV = c.GW_RECV


class Strategy(Open):
    """How parameters are sharded."""

    FULL_SHARD = c.GW_FULL_SHARD
    SHARD_GRAD_OP = c.GW_SHARD_GRAD_OP
    NO_SHARD = c.GW_NO_SHARD


class Packing(Open):
    """How the tokens of a dataset become rows."""

    STREAM = c.GW_PACKING_STREAM
    DOCUMENTS = c.GW_PACKING_DOCUMENTS


class Style(Open):
    """How a module is split over the ranks of tp."""

    REPLICATE = c.GW_STYLE_REPLICATE
    COLWISE = c.GW_STYLE_COLWISE
    ROWWISE = c.GW_STYLE_ROWWISE
    SEQUENCE_PARALLEL = c.GW_STYLE_SEQUENCE_PARALLEL
    PREPARE_INPUT = c.GW_STYLE_PREPARE_INPUT
    PREPARE_OUTPUT = c.GW_STYLE_PREPARE_OUTPUT
    HEADWISE = c.GW_STYLE_HEADWISE


class Activation(Open):
    """A function of each number, as the activation of a feed-forward layer."""

    SILU = c.GW_ACTIVATION_SILU
    GELU_TANH = c.GW_ACTIVATION_GELU_TANH
    GELU = c.GW_ACTIVATION_GELU
    RELU = c.GW_ACTIVATION_RELU
    TANH = c.GW_ACTIVATION_TANH


class RopeScaling(Open):
    """How rotary frequencies are scaled, as rope_type of a config.json says it."""

    LLAMA3 = c.GW_ROPE_SCALING_LLAMA3
    LINEAR = c.GW_ROPE_SCALING_LINEAR
    YARN = c.GW_ROPE_SCALING_YARN
    LONGROPE = c.GW_ROPE_SCALING_LONGROPE


class QkNorm(Open):
    """RMS norms of q and k: over each head, or over all heads together."""

    NONE = c.GW_QK_NORM_NONE
    HEAD = c.GW_QK_NORM_HEAD
    WIDTH = c.GW_QK_NORM_WIDTH


class BlockNorms(Open):
    """Where a block has its norms: before each half, after it, or both."""

    BEFORE = c.GW_BLOCK_NORMS_BEFORE
    AFTER = c.GW_BLOCK_NORMS_AFTER
    BOTH = c.GW_BLOCK_NORMS_BOTH


class ContextMethod(Open):
    """How attention is split over the ranks of cp."""

    RING = c.GW_CONTEXT_RING
    ALL_GATHER = c.GW_CONTEXT_ALL_GATHER
    ALL_TO_ALL = c.GW_CONTEXT_ALL_TO_ALL


class StageSplit(Open):
    """How the layers of a model are shared out among the stages of a pipeline."""

    EVEN = c.GW_STAGE_SPLIT_EVEN
    BY_COST = c.GW_STAGE_SPLIT_BY_COST
    GIVEN = c.GW_STAGE_SPLIT_GIVEN


class ActionKind(Open):
    """What an action of a pipeline computes."""

    FORWARD = c.GW_ACTION_FORWARD
    BACKWARD = c.GW_ACTION_BACKWARD
    INPUT_GRADIENT = c.GW_ACTION_INPUT_GRADIENT
    WEIGHT_GRADIENT = c.GW_ACTION_WEIGHT_GRADIENT
    UNSHARD = c.GW_ACTION_UNSHARD
    RESHARD = c.GW_ACTION_RESHARD
    REDUCE_GRAD = c.GW_ACTION_REDUCE_GRAD


class Recompute(Open):
    """What backward recomputes instead of keeping it."""

    NONE = c.GW_RECOMPUTE_NONE
    FULL = c.GW_RECOMPUTE_FULL
    SELECTIVE = c.GW_RECOMPUTE_SELECTIVE
    EVERY = c.GW_RECOMPUTE_EVERY
    RATIO = c.GW_RECOMPUTE_RATIO


class Fp8Scaling(Open):
    """What shares a scale in FP8, and where it comes from."""

    TENSOR = c.GW_FP8_TENSOR
    DELAYED = c.GW_FP8_DELAYED
    ROW = c.GW_FP8_ROW


class Init(Open):
    """First values of a parameter."""

    NORMAL = c.GW_INIT_NORMAL
    ZEROS = c.GW_INIT_ZEROS
    ONES = c.GW_INIT_ONES
    FILL = c.GW_INIT_FILL


class Part(Open):
    """Which part of a parameter is read."""

    VALUE = c.GW_PART_VALUE
    GRADIENT = c.GW_PART_GRADIENT
    FULL_VALUE = c.GW_PART_FULL_VALUE
    FULL_GRADIENT = c.GW_PART_FULL_GRADIENT


class Phase(Open):
    """Which callback of a custom module runs."""

    SHAPES = c.GW_PHASE_SHAPES
    FORWARD = c.GW_PHASE_FORWARD
    BACKWARD_INPUT = c.GW_PHASE_BACKWARD_INPUT
    BACKWARD_WEIGHT = c.GW_PHASE_BACKWARD_WEIGHT


class SkipReason(Open):
    """Why a training step changed nothing."""

    NONE = c.GW_SKIP_NONE
    NO_WEIGHT = c.GW_SKIP_NO_WEIGHT
    NON_FINITE = c.GW_SKIP_NON_FINITE
