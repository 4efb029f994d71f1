// Options of parallelism: plain data. check() refuses wrong ones in one place, before any memory is taken.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/facts.h"
#include "families/family.h"
#include "parallel/plan.h"

namespace gangway {

struct Schedule;  // parallel/pipeline/schedule.h

enum class Strategy : int32_t {
  full_shard = 0,     // unshard per use
  shard_grad_op = 1,  // keep after forward
  no_shard = 2,       // plain data parallel, the same code as replicate
};

struct DtypeRule {
  std::string pattern;  // whole parameter names
  DType dtype;
};

struct ShardOptions {
  Strategy strategy = Strategy::full_shard;
  // -1: the strategy's; 0; 1. k over 1: after forward, values stay split over k consecutive ranks, from which backward
  // gathers them. k is a factor of the ranks of dp_shard x cp. Where ranks share rows in memory nothing
  // moves, as with 1.
  int reshard_after_forward = -1;
  DType param_dtype = DType{};   // compute dtype; none: the master's
  DType reduce_dtype = DType{};  // of gradients while they are reduced; none: f32 (f64 for f64)
  DType output_dtype = DType{};  // of the parameter group's outputs; none: as computed
  bool cast_forward_inputs = true;
  std::vector<DtypeRule> dtype_rules;  // override param_dtype by name; last match wins
  // Shards, their gradients and their optimizer state lie in pinned memory of the host. A rank's own rows are
  // copied to the device for each gather, and sums of gradients are copied to the host. Not with NO_SHARD. It
  // changes nothing where the device's memory is the host's.
  bool cpu_offload = false;
  int prefetch_forward = 1, prefetch_backward = 1;
  // -1: the strategy's (FULL_SHARD reduces every microbatch; the others accumulate unsharded and reduce
  // once); 0, 1.
  int accumulate_unsharded = -1;
  double bucket_cap_mb = 25;  // NO_SHARD
};

enum class RecomputeKind : int32_t { none = 0, full = 1, selective = 2, every = 3, ratio = 4 };

struct RecomputeOptions {
  RecomputeKind kind = RecomputeKind::none;
  int every = 2;       // every: each k-th block is recomputed
  double ratio = 1.0;  // ratio: share of the blocks, rounded; spread evenly
};

// Over the axis tp of the mesh.
struct TensorOptions {
  std::vector<PlanRow> rows;  // of the caller; a row wins over those of a module's or the family's plan
  FamilyPlanOptions family;   // of the plan of a decoder's model family
  // A sequence is gathered and summed in so many chunks while the products next to it run; 1: it travels
  // whole.
  int overlap_chunks = 1;
  bool operator==(const TensorOptions&) const = default;
};

enum class ContextMethod : uint8_t {
  ring,        // keys and values travel from rank to rank while each computes with those at hand
  all_gather,  // each rank gathers all keys and values
  all_to_all,  // each rank has the whole sequence of some heads (Ulysses)
};

// How the layers of a model are divided into the stages of a pipeline.
enum class StageSplit : int32_t {
  even = 0,     // the same number of layers; the first stages have one more where it does not divide
  by_cost = 1,  // so that the largest stage has as few parameters as possible, embedding and head included
  given = 2,    // first_layers
};

// For meshes with pp over 1.
struct PipelineOptions {
  std::string schedule = "1f1b";  // a name of parallel/pipeline/generators.h
  std::shared_ptr<const Schedule>
      own_schedule;         // instead of the name; sends and FSDP's actions are added if it has none
  int stages_per_rank = 0;  // 0: the schedule's own
  int microbatches = 0;     // of every step; 0: as many as the step says
  StageSplit split = StageSplit::even;
  std::vector<int64_t> first_layers;  // given: the layer that each stage begins with; the first is 0
  int most_unsharded = 3;             // stages of one rank whose weights are unsharded at a time
};

struct ParallelOptions {
  TensorOptions tensor;
  ContextMethod context = ContextMethod::ring;  // over the axis cp
  ShardOptions shard;
  RecomputeOptions recompute;
  // What blocks save lies in pinned memory of the host until their backward (activation_offload.h). It
  // changes nothing where the device's memory is the host's.
  bool activation_offload = false;
  PipelineOptions pipeline;
  uint64_t seed = 0;
  DType master_dtype = DType::f32;  // f32 or f64
};

// Throw INVALID_ARGUMENT, or NOT_SUPPORTED for an option's value that is not built. `master`: the dtype of
// the values that the optimizer steps.
void check(const ShardOptions& options, DType master);
// For parameter groups over so many ranks of dp_shard x cp. INVALID_ARGUMENT: reshard_after_forward is no
// factor of that number.
void check_reshard(const ShardOptions& options, int shard_ranks);
void check(const RecomputeOptions& options);
void check(const PipelineOptions& options);
void check_master(DType dtype);

// Add those options that all ranks must have alike, because they decide which collectives run and what
// numbers result.
void add_facts(const ShardOptions& options, Facts& facts);
void add_facts(const PipelineOptions& options, Facts& facts);

}  // namespace gangway
