// Adapters against what PEFT computes in f64 (tests/data/lora): logits, loss, gradients and steps, on one rank
// and over each axis of the mesh.
#include <functional>
#include <set>

#include "base/philox.h"
#include "checkpoint/lora_testing.h"

namespace gangway::test {
namespace {

constexpr double kTolerance = 1e-10;

const LoraMesh kMeshes[] = {
    {"one rank"},
    {"one rank recomputing", {.dp_shard = 1}, false, Strategy::full_shard, RecomputeKind::full},
    {"tp 2", {.dp_shard = 1, .tp = 2}},
    {"tp 2 with sequences", {.dp_shard = 1, .tp = 2}, true},
    {"tp 2 with sequences in chunks",
     {.dp_shard = 1, .tp = 2},
     true,
     Strategy::full_shard,
     RecomputeKind::selective,
     2},
    {"dp shard 2", {.dp_shard = 2}},
    {"dp replicate 2", {.dp_replicate = 2, .dp_shard = 1}, false, Strategy::no_shard},
    {"cp 2", {.dp_shard = 1, .cp = 2}},
    {"pp 2", {.pp = 2, .dp_shard = 1}},
    {"pp 2 zero bubble",
     {.pp = 2, .dp_shard = 1},
     false,
     Strategy::full_shard,
     RecomputeKind::none,
     1,
     "zb-h1"},
    {"dp shard 2 x tp 2", {.dp_shard = 2, .tp = 2}},
    {"pp 2 x tp 2 with sequences", {.pp = 2, .dp_shard = 1, .tp = 2}, true},
};

class LoraParity : public testing::TestWithParam<LoraMesh> {
 protected:
  const LoraMesh mesh = GetParam();
  const TensorsOf reference{adapter_folder() + "/reference.safetensors"};
};

// With cp and pp a rank has a part of the logits, or none.
TEST_P(LoraParity, LogitsEqualTheReference) {
  if (mesh.degrees.cp > 1 || mesh.degrees.pp > 1) return;
  run_ranks(mesh.ranks(), [&](Gang& root) {
    const auto model = reference_model(root, mesh);
    EXPECT_LT(distance(logits_of(*model, reference), reference.values("logits")), kTolerance);
  });
}

// A step of plain SGD with rate 1 moves each parameter by its gradient, whatever the mesh.
TEST_P(LoraParity, LossAndEveryGradientEqualTheReference) {
  run_ranks(mesh.ranks(), [&](Gang& root) {
    const auto model = reference_model(root, mesh);
    std::map<std::string, std::vector<double>> before;
    for (const NamedParameter& p : model->inspect().parameters())
      before[p.name] = gathered(*model, *p.parameter);
    OptimizerOptions sgd;
    sgd.lr = 1;
    const auto optimizer = make_optimizer("sgd", model->inspect().parameters(), sgd, model->ops());
    const StepResult result = train_step(*model, optimizer.get(), reference_batch(*model, reference),
                                         mesh.step(), model->device().stream());
    EXPECT_NEAR(result.loss / reference.values("loss")[0], 1, kTolerance);
    for (const NamedParameter& p : model->inspect().parameters()) {
      std::vector<double> gradient = before.at(p.name);
      const std::vector<double> after = gathered(*model, *p.parameter);
      if (!is_adapter(*p.parameter)) {
        EXPECT_EQ(after, gradient) << p.name << " is frozen";
        continue;
      }
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] -= after[i];
      EXPECT_LT(distance(gradient, reference.values("grad." + peft_name(p.name))), kTolerance) << p.name;
    }
  });
}

TEST_P(LoraParity, FiveAdamWStepsEqualTheReference) {
  run_ranks(mesh.ranks(), [&](Gang& root) {
    const auto model = reference_model(root, mesh);
    OptimizerOptions adamw;
    adamw.lr = 1e-2;
    adamw.hyperparameters = {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}};
    adamw.weight_decay = 0.1;
    const auto optimizer = make_optimizer("adamw", model->inspect().parameters(), adamw, model->ops());
    const std::vector<double> losses = reference.values("adamw.losses");
    Stream& stream = model->device().stream();
    const Batch batch = reference_batch(*model, reference);
    for (size_t step = 0; step < 5; ++step)
      EXPECT_NEAR(train_step(*model, optimizer.get(), batch, mesh.step(), stream).loss / losses.at(step), 1,
                  kTolerance)
          << "step " << step;
    EXPECT_NEAR(eval_step(*model, batch, mesh.step(), stream).loss / losses.at(5), 1, kTolerance);
    for (const char* const factor : {"lora_A.weight", "lora_B.weight"}) {
      const std::string name = std::string("model.layers.0.self_attn.q_proj.") + factor;
      EXPECT_LT(distance(gathered(*model, *model->inspect().parameter(name).parameter),
                         reference.values("final." + peft_name(name))),
                kTolerance)
          << name;
    }
  });
}

std::string test_name(const testing::TestParamInfo<LoraMesh>& row) {
  std::string name = row.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(, LoraParity, testing::ValuesIn(kMeshes), test_name);

// --- files and merging over a mesh

class LoraFiles : public LoraParity {};

TEST_P(LoraFiles, AreSavedAsPeftHasThem) {
  const TemporaryFolder folder;
  run_ranks(mesh.ranks(), [&](Gang& root) {
    const auto model = reference_model(root, mesh, DType::f32);
    save_lora(*model, folder.path(), {});
  });
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"adapter_config.json", "adapter_model.safetensors"}));
  const TensorsOf theirs(adapter_folder() + "/adapter_model.safetensors"),
      ours(folder.path() + "/adapter_model.safetensors");
  ASSERT_EQ(ours.tensors().size(), theirs.tensors().size());
  for (const auto& [name, stored] : theirs.tensors()) {
    ASSERT_EQ(ours.tensors().count(name), 1u) << name;
    EXPECT_EQ(ours.tensors().at(name).shape, stored.shape) << name;
    EXPECT_EQ(ours.tensors().at(name).dtype, stored.dtype) << name;
    EXPECT_EQ(ours.get<float>(name), theirs.get<float>(name)) << name;
  }
  const auto json_of = [](const std::string& path) { return nlohmann::json::parse(read_all(path)); };
  const nlohmann::json config = json_of(folder.path() + "/adapter_config.json"),
                       peft = json_of(adapter_folder() + "/adapter_config.json");
  for (const auto& [key, value] : config.items()) {
    if (key == "base_model_name_or_path" || key == "target_modules") continue;
    EXPECT_EQ(value, peft.at(key)) << key;
  }
  const auto targets = [](const nlohmann::json& json) {
    const auto all = json.at("target_modules").get<std::vector<std::string>>();
    return std::set<std::string>(all.begin(), all.end());
  };
  EXPECT_EQ(targets(config), targets(peft));
  EXPECT_EQ(config.at("base_model_name_or_path"), base_folder());
}

TEST_P(LoraFiles, OfAMergedModelAreThoseOfAPlainOne) {
  const TemporaryFolder folder;
  std::vector<double> losses(2);
  run_ranks(mesh.ranks(), [&](Gang& root) {
    const auto model = reference_model(root, mesh);
    Stream& stream = model->device().stream();
    merge_lora(*model, stream);
    const Batch batch = reference_batch(*model, reference);
    const double off = eval_step(*model, batch, mesh.step(), stream).loss;
    EXPECT_NEAR(off / reference.values("loss")[0], 1, 1e-12);
    enable_lora(*model, true);  // B is zero
    EXPECT_EQ(eval_step(*model, batch, mesh.step(), stream).loss, off);
    enable_lora(*model, false);
    save_model(*model, folder.path(), {});
  });
  run_ranks(1, [&](Gang& root) {
    const auto plain = make_model(make_decoder(decoder_options_of_folder(folder.path())), make_gangs(root),
                                  parallel(Strategy::full_shard));
    load_model(*plain, folder.path());
    EXPECT_LT(distance(logits_of(*plain, reference), reference.values("logits")), kTolerance);
  });
}

INSTANTIATE_TEST_SUITE_P(, LoraFiles,
                         testing::Values(kMeshes[0], kMeshes[2], kMeshes[5], kMeshes[std::size(kMeshes) - 1]),
                         test_name);

// --- on one rank, and between meshes

LoraOptions query_and_value() {
  LoraOptions options;
  options.patterns = {"**.q_proj", "**.v_proj"};
  options.rank = 4;
  options.seed = 11;
  return options;
}

TEST(Lora, OnlyAdaptersHaveGradientsAndStates) {
  run_ranks(1, [&](Gang& root) {
    const auto model = adapted_model(root, kMeshes[0], query_and_value());
    const auto& all = model->inspect().parameters();
    const auto optimizer = make_optimizer("adamw", all, {}, model->ops());
    int64_t adapters = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const Parameter& p = *all[i].parameter;
      const bool adapter = is_adapter(p);
      adapters += adapter ? p.shape.count() : 0;
      EXPECT_EQ(p.shard_grad != nullptr, adapter) << all[i].name;
      EXPECT_EQ(!optimizer->state(i).empty(), adapter) << all[i].name;
    }
    EXPECT_EQ(adapters, 2 * (4 * 32 + 32 * 4 + 4 * 32 + 16 * 4));
    const auto bytes = static_cast<uint64_t>(adapters) * sizeof(double);
    EXPECT_LT(model->inspect().memory().gradient_shards, 2 * bytes);  // with padding
    EXPECT_LT(optimizer->state_bytes(), 3 * bytes);
  });
}

TEST(Lora, FirstValuesAreThoseOfTheFormulaOnEveryMesh) {
  const LoraOptions options = query_and_value();
  for (const LoraMesh& mesh : {kMeshes[0], kMeshes[2], kMeshes[5], kMeshes[8]})
    run_ranks(mesh.ranks(), [&](Gang& root) {
      const auto model = adapted_model(root, mesh, options);
      size_t factors = 0;
      for (const NamedParameter& p : model->inspect().parameters()) {
        if (!is_adapter(*p.parameter)) continue;
        ++factors;
        const std::vector<double> values = gathered(*model, *p.parameter);
        const uint64_t key = philox_key(options.seed, p.name);
        for (size_t i = 0; i < values.size(); ++i) {
          const double first = (2 * philox_uniform(key, i) - 1) * (1 / std::sqrt(32.0));
          ASSERT_EQ(values[i], p.parameter->name == "lora_A.weight" ? first : 0) << mesh.name << p.name;
        }
      }
      EXPECT_EQ(factors, 8u);
    });
}

TEST(Lora, SwitchedOffItHasTheBitsOfTheBase) {
  const TensorsOf reference(adapter_folder() + "/reference.safetensors");
  run_ranks(1, [&](Gang& root) {
    const auto model = reference_model(root, kMeshes[0]);
    const std::vector<double> on = logits_of(*model, reference);
    enable_lora(*model, false);
    const std::vector<double> off = logits_of(*model, reference);
    const auto plain = make_model(make_decoder(decoder_options_of_folder(base_folder())), make_gangs(root),
                                  parallel(Strategy::full_shard));
    load_model(*plain, base_folder());
    EXPECT_EQ(off, logits_of(*plain, reference));
    EXPECT_NE(on, off);
    enable_lora(*model, true);
    EXPECT_EQ(logits_of(*model, reference), on);
  });
}

// A backward belongs to its forward, also if the adapters were switched between the two.
TEST(Lora, ABackwardTakesTheAdaptersOfItsForward) {
  const TensorsOf reference(adapter_folder() + "/reference.safetensors");
  run_ranks(1, [&](Gang& root) {
    const auto model = reference_model(root, kMeshes[0]);
    const Batch batch = reference_batch(*model, reference);
    const Values inputs = {batch.inputs[0], batch.targets[0]};
    Context ctx = model->run().context(model->device().stream());
    ctx.training = true;
    double labels = 0;
    for (const int64_t label : reference.get<int64_t>("labels_shifted")) labels += label >= 0 ? 1 : 0;
    ctx.loss_scale = 1 / labels;
    Frame& frame = model->frame(0);
    model->run().set_is_last_backward(true);
    model->run().forward(ctx, inputs, &frame);
    enable_lora(*model, false);
    model->run().backward(ctx, {}, frame);
    frame.reset();
    model->run().finish_gradients(model->device().stream());
    for (const NamedParameter& p : model->inspect().parameters()) {
      if (!is_adapter(*p.parameter)) continue;
      EXPECT_LT(
          distance(gathered_gradient(*model, *p.parameter), reference.values("grad." + peft_name(p.name))),
          kTolerance)
          << p.name;
    }
  });
}

// One stage, or one rank's rows, may have nothing to train.
TEST(Lora, OneAdaptedLayerTrainsAlikeOnEveryMesh) {
  const TensorsOf reference(adapter_folder() + "/reference.safetensors");
  LoraOptions options;
  options.patterns = {"model.layers.1.mlp.down_proj"};
  options.rank = 1;
  options.alpha = 3;
  options.rank_stabilized = true;
  std::vector<double> expected;
  for (const LoraMesh& mesh : {kMeshes[0], kMeshes[2], kMeshes[5], kMeshes[8], kMeshes[10]})
    run_ranks(mesh.ranks(), [&](Gang& root) {
      const auto model = adapted_model(root, mesh, options);
      OptimizerOptions adamw;
      adamw.lr = 1e-2;
      const auto optimizer = make_optimizer("adamw", model->inspect().parameters(), adamw, model->ops());
      StepOptions step = mesh.step();
      step.max_grad_norm = 0.1;
      std::vector<double> values;
      for (int i = 0; i < 3; ++i)
        values.push_back(train_step(*model, optimizer.get(), reference_batch(*model, reference), step,
                                    model->device().stream())
                             .loss);
      for (const NamedParameter& p : model->inspect().parameters())
        if (is_adapter(*p.parameter))
          for (const double x : gathered(*model, *p.parameter)) values.push_back(x);
      if (root.rank() != 0) return;
      if (expected.empty()) expected = values;
      EXPECT_LT(distance(values, expected), 1e-12) << mesh.name;
    });
}

// One set of bits: column and row layers, parts of the sequence and of the width, chunks, both halves of a
// backward, recomputation.
TEST(Lora, DropoutDropsTheSameNumbersOnEveryMesh) {
  const TensorsOf reference(adapter_folder() + "/reference.safetensors");
  LoraOptions options = lora_options_of_folder(adapter_folder());
  std::vector<double> expected;
  for (const double dropout : {0.3, 0.0})
    for (const LoraMesh& mesh : kMeshes) {
      if (dropout == 0 && &mesh != &kMeshes[0]) continue;
      options.dropout = dropout;
      run_ranks(mesh.ranks(), [&](Gang& root) {
        const auto model = adapted_model(root, mesh, options);
        OptimizerOptions adamw;
        adamw.lr = 1e-2;
        const auto optimizer = make_optimizer("adamw", model->inspect().parameters(), adamw, model->ops());
        std::vector<double> losses;
        for (int i = 0; i < 4; ++i)
          losses.push_back(train_step(*model, optimizer.get(), reference_batch(*model, reference),
                                      mesh.step(), model->device().stream())
                               .loss);
        if (root.rank() != 0) return;
        if (expected.empty()) expected = losses;
        if (dropout == 0)
          EXPECT_GT(distance(losses, expected), 1e-6) << "the dropout does nothing";
        else
          EXPECT_LT(distance(losses, expected), 1e-11) << mesh.name;
      });
    }
}

TEST(Lora, ABaseInBf16TrainsCloseToTheReference) {
  const TensorsOf reference(adapter_folder() + "/reference.safetensors");
  run_ranks(1, [&](Gang& root) {
    ParallelOptions options = parallel(Strategy::full_shard, DType::f32);
    options.shard.param_dtype = DType::bf16;
    const auto model =
        make_model(adapted(lora_options_of_folder(adapter_folder())), make_gangs(root), options);
    load_model(*model, base_folder());
    load_lora(*model, adapter_folder());
    OptimizerOptions adamw;
    adamw.lr = 1e-2;
    const auto optimizer = make_optimizer("adamw", model->inspect().parameters(), adamw, model->ops());
    const StepResult result =
        train_step(*model, optimizer.get(), reference_batch(*model, reference), {}, model->device().stream());
    EXPECT_NEAR(result.loss / reference.values("loss")[0], 1, 5e-3);
  });
}

// --- refusals

TEST(LoraRefusal, OfOptionsAndPatterns) {
  const auto refuse = [](Code code, const LoraOptions& options, const char* part) {
    expect_refused(code, [&] { adapted(options); }, {part});
  };
  const auto with = [](auto&& change) {
    LoraOptions options = query_and_value();
    change(options);
    return options;
  };
  refuse(Code::invalid_argument, with([](auto& o) { o.rank = 0; }), "rank is 0");
  refuse(Code::invalid_argument, with([](auto& o) { o.alpha = 0; }), "alpha is 0");
  refuse(Code::invalid_argument, with([](auto& o) { o.alpha = INFINITY; }), "alpha is inf");
  refuse(Code::invalid_argument, with([](auto& o) { o.dropout = 1; }), "dropout is 1, outside [0, 1)");
  refuse(Code::not_found, with([](auto& o) { o.patterns = {"q_proj"}; }), "no module matches \"q_proj\"");
  refuse(Code::invalid_argument, with([](auto& o) { o.patterns = {"model.norm"}; }),
         "matches model.norm, a RMSNorm");
  refuse(Code::invalid_argument, with([](auto& o) { o.patterns = {"lm_head"}; }),
         "matches lm_head, whose weight");
}

TEST(LoraRefusal, OfASecondSetOfAdapters) {
  const ModulePtr module = adapted(query_and_value());
  expect_refused(Code::invalid_state, [&] { apply_lora(module, query_and_value()); }, {"adapters already"});
}

TEST(LoraRefusal, OfFilesThatDoNotFit) {
  const TemporaryFolder folder;
  run_ranks(1, [&](Gang& root) {
    LoraOptions narrow = lora_options_of_folder(adapter_folder());
    narrow.rank = 2;
    narrow.alpha = 4;  // of the same scale
    const auto other = adapted_model(root, kMeshes[0], narrow);
    expect_refused(Code::invalid_argument, [&] { load_lora(*other, adapter_folder()); },
                   {"[4, 32]", "[2, 32]"});
    narrow.alpha = 8;
    const auto scaled = adapted_model(root, kMeshes[0], narrow);
    expect_refused(Code::invalid_argument, [&] { load_lora(*scaled, adapter_folder()); },
                   {"alpha 8, rank 4", "alpha 8, rank 2"});
    LoraOptions few = query_and_value();
    few.alpha = 8;
    const auto fewer = adapted_model(root, kMeshes[0], few);
    expect_refused(Code::invalid_argument, [&] { load_lora(*fewer, adapter_folder()); },
                   {"has a tensor", "that the model does not have"});
    save_lora(*fewer, folder.path(), {});
    const auto more = reference_model(root, kMeshes[0]);
    const std::vector<double> before = all_values(*more);
    expect_refused(Code::not_found, [&] { load_lora(*more, folder.path()); },
                   {"has no tensor base_model.model."});
    expect_refused(Code::io, [&] { load_lora(*more, folder.path() + "/none"); }, {"none"});
    EXPECT_EQ(all_values(*more), before);
  });
}

TEST(LoraRefusal, OfCallsWithoutAdapters) {
  const TemporaryFolder folder;
  run_ranks(1, [&](Gang& root) {
    const auto plain = llama(root, seeded(3));
    Stream& stream = plain->device().stream();
    for (const std::function<void()>& call : std::initializer_list<std::function<void()>>{
             [&] { enable_lora(*plain, false); }, [&] { merge_lora(*plain, stream); },
             [&] { save_lora(*plain, folder.path(), {}); }})
      expect_refused(Code::invalid_state, call, {"no adapters"});
    const auto model = reference_model(root, kMeshes[0]);
    expect_refused(Code::invalid_state, [&] { save_model(*model, folder.path(), {}); },
                   {"lora_merge adds them"});
    enable_lora(*model, false);
    expect_refused(Code::invalid_state, [&] { merge_lora(*model, model->device().stream()); }, {"are off"});
  });
  EXPECT_TRUE(folder.names().empty());
}

TEST(LoraRefusal, OfRanksThatSwitchDifferently) {
  run_ranks(2, [&](Gang& root) {
    const auto model = adapted_model(root, kMeshes[5], query_and_value());
    expect_refused(Code::mismatch, [&] { enable_lora(*model, root.rank() == 0); }, {"lora_enable"});
  });
}

// --- adapter_config.json

std::string config_with(const char* key, const char* value) {
  nlohmann::json json = nlohmann::json::parse(read_all(adapter_folder() + "/adapter_config.json"));
  json[key] = nlohmann::json::parse(value);
  return json.dump();
}

TEST(LoraConfig, IsReadAsPeftWroteIt) {
  const LoraOptions options = lora_options_of_folder(adapter_folder());
  EXPECT_EQ(options.rank, 4);
  EXPECT_EQ(options.alpha, 8);
  EXPECT_EQ(options.dropout, 0);
  EXPECT_FALSE(options.rank_stabilized);
  EXPECT_EQ(options.patterns.size(), 7u);
  EXPECT_EQ(options.patterns[0], "**.up_proj");
  EXPECT_TRUE(parse_adapter_config(config_with("target_modules", "\"all-linear\""), "f").patterns.empty());
}

TEST(LoraConfig, HasTheDropoutOfTheAdapters) {
  const TemporaryFolder folder;
  const LoraOptions options = parse_adapter_config(config_with("lora_dropout", "0.05"), "f");
  EXPECT_EQ(options.dropout, 0.05);
  run_ranks(1, [&](Gang& root) {
    save_lora(*adapted_model(root, kMeshes[0], options, DType::f32), folder.path(), {});
  });
  EXPECT_EQ(lora_options_of_folder(folder.path()).dropout, 0.05);
}

TEST(LoraConfig, ThatChangesTheMathematicsIsRefused) {
  const auto refuse = [](Code code, const char* key, const char* value) {
    expect_refused(code, [&] { parse_adapter_config(config_with(key, value), "f"); }, {key});
  };
  refuse(Code::not_supported, "peft_type", "\"IA3\"");
  refuse(Code::not_supported, "use_dora", "true");
  refuse(Code::not_supported, "bias", "\"all\"");
  refuse(Code::not_supported, "rank_pattern", "{\"q_proj\": 8}");
  refuse(Code::not_supported, "layers_to_transform", "[0]");
  refuse(Code::not_supported, "modules_to_save", "[\"lm_head\"]");
  refuse(Code::not_supported, "init_lora_weights", "\"pissa\"");
  refuse(Code::not_supported, "target_modules", "\".*q_proj\"");
  refuse(Code::not_supported, "a_key_of_tomorrow", "3");
  refuse(Code::corrupt, "r", "0");
  refuse(Code::corrupt, "r", "2.5");
  refuse(Code::corrupt, "lora_alpha", "\"8\"");
  refuse(Code::corrupt, "use_rslora", "1");
  refuse(Code::corrupt, "lora_dropout", "1");
  refuse(Code::corrupt, "lora_dropout", "-0.1");
  expect_refused(Code::corrupt, [] { parse_adapter_config("{", "f"); }, {"f"});
  expect_refused(Code::corrupt, [] { parse_adapter_config("{\"peft_type\": \"LORA\"}", "f"); },
                 {"r is missing"});
}

TEST(LoraConfig, NamesWholePathsWhereOtherModulesEndAlike) {
  const TemporaryFolder folder;
  run_ranks(1, [&](Gang& root) {
    LoraOptions options;
    options.patterns = {"model.layers.1.mlp.up_proj"};
    const auto model = adapted_model(root, kMeshes[0], options, DType::f32);
    save_lora(*model, folder.path(), {});
    const LoraOptions again = lora_options_of_folder(folder.path());
    EXPECT_EQ(again.patterns, std::vector<std::string>{"**.model.layers.1.mlp.up_proj"});
    EXPECT_EQ(again.scale(), options.scale());
    EXPECT_NO_THROW(adapted(again));
  });
}

}  // namespace
}  // namespace gangway::test
