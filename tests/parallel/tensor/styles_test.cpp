// Each style of a plan, on trees of modules, gives the results of one device: the output, the gradient of the
// input and every gradient of a parameter.
#include "nn/fp8.h"
#include "nn/lora.h"
#include "parallel/tensor/styled_trees.h"

namespace gangway::test {
namespace {

TEST(TensorStyles, EachGivesTheNumbersOfOneDevice) {
  for (const StyledTree& tree : styled_trees())
    for (const int tp : {1, 2, 4}) {
      const Numbers want = on_one_device(tree);
      run_ranks(tp, [&](Gang& root) {
        const auto model = styled_model(root, tree, tp);
        expect_equal(run(*model, tree), want, text(tree.name, " tp ", tp));
      });
    }
}

TEST(TensorStyles, FsdpSplitsTheLocalPieces) {
  for (const StyledTree& tree : styled_trees()) {
    const Numbers want = on_one_device(tree, 2);
    run_ranks(4, [&](Gang& root) {
      const auto model = styled_model(root, tree, 2);
      expect_equal(run(*model, tree), want, tree.name);
    });
  }
}

// B is not zero, so that the output and the gradient of the input have the dropout, too.
ModulePtr adapted(ModulePtr root) {
  LoraOptions options;
  options.rank = 2;
  options.dropout = 0.5;
  apply_lora(root, options);
  for (const NamedParameter& p : named_parameters(*root))
    if (p.parameter->name == "lora_B.weight") p.parameter->init = Init::normal(0.5);
  return root;
}

ModulePtr adapted_norm_and_mlp() { return adapted(norm_and_mlp()); }
ModulePtr adapted_norms_and_linears() { return adapted(norms_and_linears()); }
ModulePtr adapted_norms_and_linears_in_fp8() {
  ModulePtr root = adapted_norms_and_linears();
  apply_fp8(root, {.patterns = {}, .scaling = Fp8Scaling::row});
  return root;
}

constexpr const char* kSequencePlan =
    "0 -> sequence_parallel, input Replicate\n1 -> colwise, input Shard(1)\n"
    "2 -> rowwise, output Shard(1)\n3 -> sequence_parallel, output Replicate\n";

// The linear layers get parts of the width or of the sequence: by rows of their own, by that of a module
// around them, by a row inside of that module, and by a sequence that travels.
std::vector<StyledTree> adapted_trees() {
  return {{"columns and rows",
           adapted_norm_and_mlp,
           "1.gate_proj -> colwise\n1.up_proj -> colwise\n1.down_proj -> rowwise\n",
           {3, 4, 8}},
          {"a module of parts of the sequence",
           adapted_norm_and_mlp,
           "0 -> sequence_parallel, input Replicate\n1 -> sequence_parallel\n"
           "2 -> sequence_parallel, output Replicate\n",
           {3, 4, 8}},
          {"a row inside of such a module",
           adapted_norm_and_mlp,
           "0 -> sequence_parallel, input Replicate\n1 -> sequence_parallel\n"
           "1.down_proj -> rowwise, input Shard(1), output Shard(1)\n"
           "2 -> sequence_parallel, output Replicate\n",
           {3, 4, 8}},
          {"a sequence that travels", adapted_norms_and_linears, kSequencePlan, {3, 8, 8}},
          {"a sequence that travels, in FP8", adapted_norms_and_linears_in_fp8, kSequencePlan, {3, 8, 8}}};
}

TEST(TensorStyles, AdaptersDropTheSameNumbersOverRanks) {
  for (const StyledTree& tree : adapted_trees()) {
    const int most_chunks = tree.plan == kSequencePlan ? 2 : 1;
    Numbers want;
    for (const int tp : {1, 2, 4})
      for (int chunks = 1; chunks <= most_chunks; ++chunks)
        run_ranks(tp, [&](Gang& root) {
          const auto model = styled_model(root, tree, tp, Strategy::full_shard, chunks);
          const Numbers got = run(*model, tree);
          if (tp == 1 && chunks == 1)
            want = got;
          else
            expect_equal(got, want, text(tree.name, " tp ", tp, " chunks ", chunks));
        });
  }
}

// The last linear layer has a part of the sequence in the plan that is refused, and the whole in the other.
TEST(TensorStyles, APlanThatWasRefusedLeavesNoParts) {
  const std::vector<StyledTree> trees = adapted_trees();
  const StyledTree &tree = trees.at(0), &other = trees.at(1);
  run_ranks(2, [&](Gang& root) {
    const Numbers want = run(*styled_model(root, tree, 2), tree);
    MeshOptions mesh;
    mesh.tp = 2;
    Model model(tree_of(tree), create_gangs(root.shared_from_this(), mesh));
    ParallelOptions options;
    options.tensor.rows = plan_from_text(other.plan);
    options.master_dtype = DType::f64;
    options.seed = 5;
    // The rule is checked only after everything is wrapped.
    options.shard.dtype_rules = {{"1.up_proj.weight", DType::bf16}};
    expect_refusal(Code::invalid_argument, [&] { model.build().parallelize(options); }, {"up_proj"});
    options.tensor.rows = plan_from_text(tree.plan);
    options.shard.dtype_rules.clear();
    model.build().parallelize(options);
    expect_equal(run(model, tree), want, tree.name);
  });
}

// Runs a forward, then the input half of the backward, and its weight half later.
TEST(TensorStyles, DeferredWeightHalvesGiveTheSameNumbers) {
  for (const StyledTree& tree : styled_trees()) {
    const Numbers want = on_one_device(tree);
    run_ranks(2, [&](Gang& root) {
      const auto model = styled_model(root, tree, 2, Strategy::shard_grad_op);
      expect_equal(run(*model, tree, /*defers=*/true), want, tree.name);
    });
  }
}

// The row-wise layer's addend is a temporary: a frame keeps what one device keeps, less what is split.
TEST(TensorStyles, AFrameKeepsNoPartialSum) {
  const StyledTree tree = styled_trees()[0];  // a Linear 6 to 8, and a Linear 8 to 6
  run_ranks(2, [&](Gang& root) {
    const auto model = styled_model(root, tree, 2);
    Context ctx = model->run().context(model->device().stream());
    Frame& frame = model->frame(0);
    const Tensor x = make(model->device(), DType::f64, tree.input, random_vector(48, 1));
    model->run().forward(ctx, {&x, 1}, &frame);
    const size_t hidden = 2 * 4 * 4 * 8, output = 2 * 4 * 6 * 8;  // in bytes, multiples of 64
    EXPECT_EQ(frame.saved_bytes(), hidden + output);
    frame.reset();
    model->run().reshard();
  });
}

// A gathered input is not kept, but gathered again in backward.
TEST(TensorStyles, AFrameKeepsPartsOfTheSequence) {
  const StyledTree tree = {"",
                           [] {
                             return make_sequential({make_linear(8, 8, false), make_linear(8, 8, false)});
                           },
                           "0 -> colwise, input Shard(1)\n1 -> rowwise, output Shard(1)\n"
                           "-> prepare_input(Replicate, Shard(1))\n",
                           {2, 4, 8}};
  run_ranks(2, [&](Gang& root) {
    const auto model = styled_model(root, tree, 2);
    Context ctx = model->run().context(model->device().stream());
    Frame& frame = model->frame(0);
    const Tensor x = make(model->device(), DType::f64, tree.input, random_vector(64, 1));
    model->run().forward(ctx, {&x, 1}, &frame);
    const size_t part = 2 * 2 * 8 * 8, hidden = 2 * 4 * 4 * 8;  // in bytes
    EXPECT_EQ(frame.saved_bytes(), part + hidden + part) << "input, hidden, output";
    frame.reset();
    model->run().reshard();
  });
}

TEST(TensorStyles, WeightTasksRunWhileABoundaryTravels) {
  run_ranks(2, [](Gang& root) {
    const StyledTree tree = styled_trees()[0];
    const auto model = styled_model(root, tree, 2);
    Context ctx = model->run().context(model->device().stream());
    Frame& frame = model->frame(0);
    const Tensor x = make(model->device(), DType::f64, tree.input, random_vector(48, 1));
    const Tensor y = model->run().forward(ctx, {&x, 1}, &frame)[0];
    // Runs the modules below the wrapper of fully_shard, which would run the remaining weight gradients.
    Module& chain = unwrapped(model->root());
    ctx.training = true;
    for (const auto& group : model->fsdp().groups()) {
      group->unshard(ctx.stream);
      group->gradients().acquire(ctx.stream);
    }
    const Tensor dy = frame.allocate_gradient(DType::f64, y.shape());
    put(dy, random_vector(48, 2));
    Module& second = chain.child(1).child(0);  // inside its own wrapper of fully_shard
    Module& first = chain.child(0).child(0);
    const Tensor middle = second.backward_one(ctx, dy, frame);
    EXPECT_EQ(frame.pending_weight(), 1u) << "its own; nothing travels after it";
    first.backward_one(ctx, middle, frame);
    EXPECT_EQ(frame.pending_weight(), 0u) << "both ran while the gradient of the input was summed";
    frame.reset();
    model->run().reshard();
  });
}

}  // namespace
}  // namespace gangway::test
