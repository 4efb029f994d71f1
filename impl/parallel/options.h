// The options of parallelism. They are plain data; check() refuses bad ones in one place, before any memory
// is allocated.
//
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/call_signature.h"
#include "families/family.h"
#include "parallel/plan.h"

namespace gangway {

struct Schedule;  // parallel/pipeline/schedule.h

enum class Strategy : int32_t {
  full_shard = 0,     // parameters are unsharded for each use
  shard_grad_op = 1,  // parameters stay unsharded from forward to backward
  no_shard = 2,       // plain data parallelism, as with replicate
};

struct DtypeRule {
  std::string pattern;  // of whole parameter names
  DType dtype;
};

struct ShardOptions {
  Strategy strategy = Strategy::full_shard;
  // 0 or 1; -1 stands for the strategy's value. k > 1: after forward the values stay sharded over k
  // consecutive ranks, from which backward gathers them; k divides the number of ranks of dp_shard x cp.
  // Where ranks share rows in memory, k > 1 acts as 1, because an unshard moves no bytes there.
  int reshard_after_forward = -1;
  DType param_dtype = DType{};   // of compute; none: the dtype of the master values
  DType reduce_dtype = DType{};  // of gradients in reductions; none: f32, or f64 for f64
  DType output_dtype = DType{};  // of the outputs of the wrapped module; none: as computed
  bool cast_forward_inputs = true;
  std::vector<DtypeRule> dtype_rules;  // override param_dtype by parameter name; the last match wins
  // Shards, their gradients and optimizer state stay in pinned host memory. Own rows are copied to the device
  // for each gather, and reduced gradients to the host. Not with NO_SHARD. It changes nothing on a device
  // whose memory is the host's.
  bool cpu_offload = false;
  int prefetch_forward = 1, prefetch_backward = 1;
  // 0 or 1; -1 stands for the strategy's value: FULL_SHARD reduces in every microbatch, the others accumulate
  // unsharded gradients and reduce once.
  int accumulate_unsharded = -1;
  double bucket_cap_mb = 25;  // with NO_SHARD
};

enum class RecomputeKind : int32_t { none = 0, full = 1, selective = 2, every = 3, ratio = 4 };

struct RecomputeOptions {
  RecomputeKind kind = RecomputeKind::none;
  int every = 2;       // with RecomputeKind::every: each k-th block is recomputed
  double ratio = 1.0;  // with RecomputeKind::ratio: the share of the blocks, rounded and spread evenly
};

// Tensor parallelism over the mesh axis tp.
struct TensorOptions {
  // The caller's rows. They take precedence over those of a custom module and of the model family's plan.
  std::vector<PlanRow> rows;
  FamilyPlanOptions family;  // of the plan of a decoder's model family
  // The number of chunks in which a sequence is gathered and reduced, so that each chunk overlaps with the
  // products next to it; 1: no overlap.
  int overlap_chunks = 1;
  bool operator==(const TensorOptions&) const = default;
};

enum class ContextMethod : uint8_t {
  ring,        // keys and values go from rank to rank while each rank computes with those it has
  all_gather,  // each rank gathers all keys and values
  all_to_all,  // each rank has the whole sequence of some heads (Ulysses)
};

// How the layers of a model are divided among the stages of a pipeline.
enum class StageSplit : int32_t {
  even = 0,     // the same number of layers, and one more for the first stages if it does not divide
  by_cost = 1,  // minimises the parameters of the largest stage, those of embedding and head included
  given = 2,    // by PipelineOptions::first_layers
};

// Pipeline parallelism, for meshes with pp > 1.
struct PipelineOptions {
  std::string schedule = "1f1b";  // a name of parallel/pipeline/generators.h
  // The caller's schedule, which replaces `schedule`. Communication and FSDP actions are added if it has
  // none.
  std::shared_ptr<const Schedule> own_schedule;
  int stages_per_rank = 0;  // 0: the schedule's default
  int microbatches = 0;     // of every step; 0: the step gives the number
  StageSplit split = StageSplit::even;
  std::vector<int64_t> first_layers;  // with StageSplit::given: the first layer of each stage; the first is 0
  int most_unsharded = 3;             // limit of stages per rank whose weights are unsharded at a time
};

struct ParallelOptions {
  TensorOptions tensor;
  ContextMethod context = ContextMethod::ring;  // over the mesh axis cp
  ShardOptions shard;
  RecomputeOptions recompute;
  // Activations that blocks save stay in pinned host memory until their backward (activation_offload.h). It
  // changes nothing on a device whose memory is the host's.
  bool activation_offload = false;
  PipelineOptions pipeline;
  uint64_t seed = 0;
  DType master_dtype = DType::f32;  // f32 or f64
};

// Throws INVALID_ARGUMENT for a value that an option cannot have. `master` is the dtype of the master values.
void check(const ShardOptions& options, DType master);
// INVALID_ARGUMENT: reshard_after_forward does not divide `shard_ranks`, the number of ranks of dp_shard x
// cp.
void check_reshard(const ShardOptions& options, int shard_ranks);
void check(const RecomputeOptions& options);
void check(const PipelineOptions& options);
void check_master(DType dtype);

// Adds the options that must be equal on all ranks, because they decide which collectives run and which
// numbers result.
void add_to_signature(const ShardOptions& options, CallSignature& signature);
void add_to_signature(const PipelineOptions& options, CallSignature& signature);

}  // namespace gangway
