// Recomputation (activation checkpointing): it gives the same bits, and takes the bytes of a formula.
#include "parallel/recompute.h"

#include "parallel/parallel_testing.h"

namespace gangway::test {
namespace {

const Reference& llama() {
  static const Reference reference("llama_parity");
  return reference;
}

constexpr Strategy kStrategies[] = {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard};

struct Variant {
  RecomputeOptions options;
  uint64_t recomputed_of_eight;
  const char* what;
};
const Variant kVariants[] = {{{RecomputeKind::none, 2, 1}, 0, "none"},
                             {{RecomputeKind::full, 2, 1}, 8, "full"},
                             {{RecomputeKind::selective, 2, 1}, 0, "selective"},
                             {{RecomputeKind::every, 3, 1}, 2, "every third"},
                             {{RecomputeKind::ratio, 2, 0.6}, 5, "six tenths"}};
const Variant kEdges[] = {{{RecomputeKind::every, 1, 1}, 8, "every"},
                          {{RecomputeKind::every, 9, 1}, 0, "every ninth"},
                          {{RecomputeKind::ratio, 2, 0}, 0, "ratio 0"},
                          {{RecomputeKind::ratio, 2, 1}, 8, "ratio 1"}};

TEST(Recompute, GivesTheSameBits) {
  for (const Strategy strategy : kStrategies) {
    StepValues none;
    for (const Variant& variant : kVariants)
      run_ranks(2, [&](Gang& root) {
        ParallelOptions options;
        options.shard.strategy = strategy;
        options.recompute = variant.options;
        const auto model = make_model(llama(), mesh_of(root), options);
        const StepValues values = run_step(*model, llama(), 2);
        root.barrier();
        if (root.rank() == 0 && variant.options.kind == RecomputeKind::none) none = values;
        root.barrier();
        EXPECT_EQ(values.loss, none.loss) << variant.what;
        EXPECT_EQ(values.gradients, none.gradients) << variant.what;
      });
  }
}

// The bytes that a forward of T tokens saves, with e bytes per element and s per statistic. Letters as in
// nn/block.cpp.
struct Saved {
  uint64_t row, block, head;
};

Saved saved_bytes(const DecoderOptions& c, uint64_t tokens, uint64_t e, uint64_t s) {
  const auto tensor = [&](uint64_t width, uint64_t item) { return (tokens * width * item + 63) / 64 * 64; };
  const auto d = static_cast<uint64_t>(c.dim), f = static_cast<uint64_t>(c.ffn);
  const auto h = static_cast<uint64_t>(c.heads), g = static_cast<uint64_t>(c.kv_heads), k = d / h;
  Saved saved;
  saved.row = tensor(d, e);
  saved.block = 2 * tensor(d, e) + 2 * tensor(h * k, e) + 2 * tensor(g * k, e) + 2 * tensor(f, e) +
                2 * tensor(1, s) + tensor(h, s);
  // The norm's output and its statistic, the loss and the weight.
  saved.head = tensor(d, e) + tensor(1, s) + 2 * 64;
  return saved;
}

struct Dtypes {
  DType master, param;
  uint64_t element, statistic;
};

// A recomputed block saves only its output, and its backward needs the frame of one block. Selective
// recomputation also recomputes the norm of the head; blocks then save no less than without it.
void expect_formula(Gang& root, const Variant& variant, const Dtypes& d) {
  ParallelOptions options;
  options.master_dtype = d.master;
  options.shard.param_dtype = d.param;
  options.recompute = variant.options;
  const auto model = make_model(llama(), mesh_of(root), options);
  run_microbatches(*model, llama(), 2);
  const auto tokens = static_cast<uint64_t>(llama().batch() / 2 / root.size() * llama().sequence());
  const Saved saved = saved_bytes(*decoder_options(model->root()), tokens, d.element, d.statistic);
  const uint64_t again = variant.recomputed_of_eight;
  uint64_t expected = saved.row + (8 - again) * saved.block + again * saved.row + saved.head;
  if (again != 0) expected += saved.block;
  if (variant.options.kind == RecomputeKind::selective) expected -= saved.row;
  EXPECT_EQ(model->inspect().memory().activations, expected) << variant.what << " " << name(d.param);
}

TEST(Recompute, SavedBytesAreThoseOfTheFormula) {
  const Dtypes f32{DType::f32, DType{}, 4, 4}, f64{DType::f64, DType{}, 8, 8},
      bf16{DType::f32, DType::bf16, 2, 4};
  for (const Dtypes& d : {f32, f64, bf16})
    for (const Variant& variant : kVariants)
      run_ranks(2, [&](Gang& root) { expect_formula(root, variant, d); });
  for (const Variant& variant : kEdges) run_ranks(2, [&](Gang& root) { expect_formula(root, variant, f32); });
}

}  // namespace
}  // namespace gangway::test
