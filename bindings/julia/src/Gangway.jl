"""
Sharded training for Julia over the C library Gangway: gangs of ranks and their collectives, fully sharded models,
optimizers, model files.

Arrays cross without copies. The library's shapes are C's (row-major), Julia's are column-major, so **dims are
reversed**: an `Array` of size `(d1, d2)` is the library's tensor `[d2, d1]`. Tokens of 4 rows of 128 are a matrix of
size `(128, 4)`; a linear layer's `[out, in]` weight is an array of size `(in, out)`; what the library splits or stacks
over its first dim, Julia sees split or stacked over the last.

Ranks, roots and peers count from 0, as everywhere else in the field.
"""
module Gangway

using Libdl
using Serialization: serialize, deserialize

# What the standard libraries export, too, has no export here: rank (LinearAlgebra), send (Sockets), update!
# (SHA).
export Decoder, Llama, Mistral, Qwen2, Qwen3, Gemma, Gemma2, Gemma3, Olmo2, GPT2, Phi3, decoder_options, from_pretrained, Linear, Embedding, RMSNorm, LayerNorm, Attention, Mlp, FeedForward, Activate, Dropout, Block, Sequential, Custom, Parameter, Model
export parallelize!, tensor_parallel!, context_parallel!, fully_shard!, replicate!, recompute!, materialize!, freeze!
export train_step!, eval_step, step!, swap_ema!, generate, log_probs, clip_grad_norm!, zero_grad!
export allreduce, allgather, allreduce!, allgather!, reducescatter!, bcast!, reduce!, gather!, scatter!, alltoall!, recv!, barrier
export reducescatter, bcast, alltoall
export allreduce_async!, allgather_async!, reducescatter_async!, bcast_async!, reduce_async!, gather_async!
export scatter_async!, alltoall_async!, send_async, recv_async!, barrier_async
export parameters, save, load!
export lora_apply!, lora_apply_folder!, lora_enable!, lora_save, lora_load!, lora_merge!
export fp8_apply!
export Checkpoints, due, restore!
export ShardGroup, unshard!, reshard!, add_gradients!
export Pipeline, pass!, next!, done!
export Dataset, rows_per_epoch, rows_taken, batches_taken, rows_taken!, restore!
export AllGather, ReduceScatter, AllSumReduce, BroadcastTo, SumReduce, Repartition
export GangwayError

include("LibGangway.jl")
using .LibGangway

include("library.jl")
include("pins.jl")
include("errors.jl")
include("arrays.jl")
include("options.jl")
include("handles.jl")
include("stores.jl")
include("gangs.jl")
include("collectives.jl")
include("works.jl")
include("models.jl")
include("lora.jl")
include("fp8.jl")
include("partitions.jl")
include("pipelines.jl")
include("custom.jl")
include("train.jl")
include("optimizers.jl")
include("custom_optimizer.jl")
include("dataset.jl")
include("checkpoints.jl")
include("verify.jl")
include("metrics.jl")
include("plan.jl")
include("shard_groups.jl")
include("show.jl")

# Addresses of functions are of this process, so they are taken when the package is loaded.
function make_callbacks()
    FREE_PIN[] = @cfunction(free_pin, Cvoid, (Ptr{Cvoid},))
    ASK_INTERRUPT[] = @cfunction(ask_interrupt, Int32, (Ptr{Cvoid},))
    RELEASE_TENSOR[] = LibGangway.ADDRESSES[findfirst(==(:gw_tensor_release), LibGangway.NAMES)]
    make_store_callbacks()
    make_gang_callbacks()
    make_module_callbacks()
    make_optimizer_callbacks()
    make_verify_callback()
    return nothing
end

# Julia compiles a function when it first runs, and may throw Ctrl-C where it does: in a finalizer the exception would be
# lost, and the handle with it. So finalizers, and what the library calls in them, run here first, on nothing.
const HANDLES = (Store, Gang, Work, Tensor, Model, Frame, Param, Optimizer, Bytes, Gangs, Checkpoints, GangMemory,
                 Partition, MovementHandle, PipelineHandle, DatasetHandle, Metrics)
foreach(H -> precompile(release!, (H,)), HANDLES)

function compile_finalizers()
    for H in HANDLES
        release!(H(fieldtype(H, 1)(C_NULL)))
    end
    held = Pin(nothing, 0)
    GC.@preserve held ccall(FREE_PIN[], Cvoid, (Ptr{Cvoid},), address(held))
    return nothing
end

function __init__()
    load_library()
    make_callbacks()
    resize_threads()
    compile_finalizers()
    return nothing
end

end
