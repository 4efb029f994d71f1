"""Gangway: sharded training by gangs of ranks.

    import gangway as gw
    with gw.init() as gangs:
        model = gw.Llama(dim=256, layers=4).parallelize(gangs)
        opt = gw.AdamW(model, lr=3e-4)
        result = gw.train_step(model, opt, tokens, max_grad_norm=1.0)
"""

from __future__ import annotations

from . import _low as _c
from ._low import View
from .arrays import Array, dtype_of
from .checkpoints import Checkpoints, Restored, load_optimizer
from .custom import Behaviour, Call, Custom
from .custom_optimizer import CustomOptimizer, OptimizerCall
from .dataset import DataBatch, Dataset
from .enums import (
    ActionKind, Activation, BlockNorms, ContextMethod, DType, Fp8Scaling, Init, Op, Packing, Part, Phase, QkNorm, Recompute,
    Reduce, RopeScaling, SkipReason, StageSplit, Status, Strategy, Style,
)
from .errors import (
    Aborted, Busy, CallerFailed, Corrupt, FileFailed, FileMissing, Forked, GangFailed, GangwayError, Internal, InvalidArgument,
    InvalidState, Mismatch, NotFound, NotReady, NotSupported, OutOfMemory, PeerLost, Timeout,
)
from .gang import Gang, new_id
from .groups import ShardGroup
from .layers import (
    GPT2, Activate, Attention, Block, Decoder, Dropout, Embedding, FeedForward, Gemma, Gemma2, Gemma3, LayerNorm, Linear, Llama,
    Mistral, Mlp, Olmo2, Phi3, Qwen2, Qwen3, RMSNorm, Sequential, from_pretrained)
from .level import RELEASE as _RELEASE
from .library import abi_version, version
from .library import check as _check_library
from .mesh import Gangs, current_gangs, init, mesh_preset, set_default_gangs, watch_signals
from .metrics import Metrics, MetricsRow
from .module import Frame, Module
from .optimizers import *
from .optimizers import __all__ as _optimizers
from .parameters import Spec
from .partition import AllGather, AllSumReduce, Broadcast, Partition, ReduceScatter, Repartition, SumReduce
from .pipeline import Action, Pipeline
from .plan import Partial, Placement, PlanRow, Replicate, Shard, Varying
from .planner import plan_memory
from .progress import progress
from .store import FileStore, Store
from .structs import struct as _struct
from .structs import text as _text
from .tensorboard import TensorBoard
from .tensors import Parameter, Tensor
from .torch_modules import TorchGroup, shard
from .torch_stages import TorchStages
from .train import Optimizer, Rule, StepResult, eval_step, log_probs, optimizer, train_step
from .verify import Verified, verify, verify_groups
from .works import Work, wait_all

_check_library()

__version__ = ".".join(map(str, _RELEASE))


def config() -> str:
    """Every environment variable that the library reads, with its value."""
    return _text(_c.gw_config_text)


def host_memory() -> dict[str, int | None]:
    """Bytes of this host: total, available, used by this process; None: the system does not say."""
    info = _struct("gw_memory_info")
    _c.gw_host_memory(info)
    found = {"total": info.total, "available": info.available, "used": info.used}
    return {name: None if size == (1 << 64) - 1 else size for name, size in found.items()}


def log(first: int = 0) -> tuple[str, int]:
    """The library's log from line `first` on, and the number to ask for next."""
    size, _ = _c.gw_log_read(first, None, 0)
    buffer = bytearray(size + 4096)  # lines may come in between
    size, following = _c.gw_log_read(first, buffer, len(buffer))
    return buffer[:size].decode("utf-8", "replace"), following


watch_signals()

__all__ = [
    "Aborted", "Action", "ActionKind", "Activate", "Activation", "AllGather", "AllSumReduce", "Array", "Attention", "Behaviour",
    "Block", "BlockNorms", "Broadcast", "Busy", "Call", "CallerFailed", "Checkpoints", "ContextMethod", "Corrupt", "Custom",
    "CustomOptimizer", "DType", "DataBatch", "Dataset", "Decoder", "Dropout", "Embedding", "FeedForward", "FileFailed", "FileMissing",
    "FileStore", "Forked", "Fp8Scaling", "Frame", "GPT2", "Gang", "GangFailed", "Gangs", "GangwayError", "Gemma", "Gemma2", "Gemma3", "Init", "Internal",
    "InvalidArgument", "InvalidState", "LayerNorm", "Linear", "Llama", "Metrics", "MetricsRow", "Mismatch", "Mistral",
    "Mlp", "Module", "NotFound", "NotReady", "NotSupported", "Olmo2", "Op", "Optimizer", "OptimizerCall",
    "OutOfMemory", "Packing", "Parameter", "Part", "Partial", "Partition", "PeerLost", "Phase", "Phi3", "Pipeline",
    "Placement", "PlanRow", "QkNorm", "Qwen2", "Qwen3", "RMSNorm", "Recompute", "Reduce", "ReduceScatter",
    "Repartition", "Replicate", "Restored", "RopeScaling", "Rule", "Sequential", "Shard", "ShardGroup", "SkipReason", "Spec",
    "StageSplit", "Status", "StepResult", "Store", "Strategy", "Style", "SumReduce", "Tensor", "TensorBoard",
    "Timeout", "TorchGroup", "TorchStages", "Varying", "Verified", "View", "Work", "abi_version", "config",
    "current_gangs", "dtype_of", "eval_step", "from_pretrained", "host_memory", "init", "load_optimizer", "log_probs",
    "log", "mesh_preset", "new_id", "optimizer", "plan_memory", "progress", "set_default_gangs", "shard",
    "train_step", "verify", "verify_groups", "version", "wait_all", "watch_signals",
]
__all__ += _optimizers
