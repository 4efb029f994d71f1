// Loading sharded models: any mesh, any floating dtype, piece by piece; refusals that change nothing.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "checkpoint/config_json.h"
#include "checkpoint/file_calls.h"
#include "checkpoint/model_io.h"
#include "checkpoint/safetensors.h"
#include "data/data_path.h"
#include "parallel/fsdp/fsdp_state.h"

namespace gangway::test {
namespace {

TEST(LoadModel, GoesFromAnyMeshToAnyMesh) {
  for (const bool tied : {false, true}) {
    const TemporaryFolder folder;
    std::vector<double> saved;
    run_ranks(3, [&](Gang& root) {
      const auto model = llama(root, seeded(7), small_llama(tied));
      save_model(*model, folder.path(), {});
      const std::vector<double> values = all_values(*model);
      if (root.rank() == 0) saved = values;
    });
    EXPECT_EQ(read_plainly(folder.path() + "/model.safetensors").count("lm_head.weight"), tied ? 0u : 1u);
    for (const int ranks : {1, 2, 4})
      for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
        run_ranks(ranks, [&](Gang& root) {
          ParallelOptions options = seeded(8, DType::f32, strategy);
          options.shard.cpu_offload = ranks == 2 && strategy == Strategy::full_shard;
          const auto model = llama(root, options, small_llama(tied));
          EXPECT_NE(all_values(*model), saved);
          load_model(*model, folder.path() + (ranks == 2 ? "/model.safetensors" : ""));
          EXPECT_EQ(all_values(*model), saved) << ranks;
        });
  }
}

// Counted: neither call moves rows between ranks, and what either takes besides the own rows is one piece.
TEST(LoadModel, NoRankHoldsTheWholeModel) {
  constexpr uint64_t kPiece = 1 << 20;
  const auto wide = [] {
    return make_sequential({make_linear(512, 2048, false), make_linear(2048, 512, false)});
  };
  for (const int ranks : {2, 3, 4})
    for (const DType stored : {DType{}, DType::bf16}) {
      const TemporaryFolder folder;
      run_ranks(ranks, [&](Gang& root) {
        const auto model = make_model(wide(), make_gangs(root), seeded(7));
        const GangPtr& shards = model->gangs().fsdp_gang();
        uint64_t whole = 0;
        for (const NamedParameter& p : model->inspect().parameters())
          whole += static_cast<uint64_t>(p.parameter->shape.count()) * item_bytes(p.parameter->dtype);
        ASSERT_GT(whole / static_cast<uint64_t>(ranks), kPiece) << "own rows are over a piece";
        const MemoryUse before = model->inspect().memory();
        const uint64_t moved = shards->traffic().bytes_moved;
        SaveOptions options;
        options.dtype = stored;
        save_model(*model, folder.path(), options);
        load_model(*model, folder.path());
        const MemoryUse after = model->inspect().memory();
        EXPECT_EQ(after.total() - after.temporaries, before.total() - before.temporaries);
        EXPECT_LE(after.temporaries, kPiece);
        EXPECT_LT(shards->traffic().bytes_moved - moved, 64u * 1024) << "paths and verdicts, no rows";
        EXPECT_LE(after.master + after.region_rows, whole / static_cast<uint64_t>(ranks) + 2 * 2048 * 4)
            << "own rows, rounded up to whole ones";
      });
    }
}

TEST(LoadModel, ConvertsBetweenFloatingDtypes) {
  for (const DType stored : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    const TemporaryFolder folder;
    run_ranks(2, [&](Gang& root) {
      const auto source = llama(root, seeded(9, DType::f64));
      SaveOptions options;
      options.dtype = stored;
      save_model(*source, folder.path(), options);
      const auto target = llama(root, seeded(10, DType::f32));
      load_model(*target, folder.path());
      const std::vector<double> from = all_values(*source), to = all_values(*target);
      for (size_t i = 0; i < from.size(); ++i) {
        const auto narrow = static_cast<float>(from[i]);
        const float expected = stored == DType::bf16  ? to_f32(to_bf16(narrow))
                               : stored == DType::f16 ? to_f32(to_f16(narrow))
                                                      : narrow;
        ASSERT_EQ(to[i], expected) << name(stored);
      }
    });
  }
}

// A loaded value must reach the copy that compute reads.
TEST(LoadModel, BfloatComputeSeesTheLoadedValues) {
  const TemporaryFolder folder;
  double losses[2] = {};
  for (const bool load : {false, true})
    run_ranks(2, [&](Gang& root) {
      ParallelOptions options = seeded(load ? 12 : 11);
      options.shard.param_dtype = DType::bf16;
      const auto model = llama(root, options);
      if (load)
        load_model(*model, folder.path());
      else
        save_model(*model, folder.path(), {});
      std::vector<int64_t> ids = {1, 2, 3, 4, 5, 6};
      Batch batch;
      batch.inputs = {tensor_of(*model, DType::i64, Shape{1, 6}, ids.data())};
      const double loss = eval_step(*model, batch, {}, model->device().stream()).loss;
      if (root.rank() == 0) losses[load ? 1 : 0] = loss;
    });
  EXPECT_EQ(losses[0], losses[1]);
}

// Writes the tensors of `model` as they are, after `change` has had its way with the header.
template <typename Change>
void write_changed(Model& model, const std::string& path, Change&& change) {
  SafetensorsHeader header;
  for (const NamedParameter& named : model.inspect().parameters())
    header.tensors[named.name] = {DType::f32, named.parameter->shape, 0, 0};
  change(header);
  const std::string head = make_safetensors_header(header);
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : header.tensors) bytes = std::max(bytes, tensor.last);
  std::ofstream(path, std::ios::binary) << head << std::string(bytes, '\0');
}

TEST(LoadModel, RefusalsAreAgreedAndChangeNothing) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model.safetensors";
  struct Row {
    void (*change)(SafetensorsHeader&);
    Code code;
    const char* words;
  };
  const Row table[] = {
      {[](SafetensorsHeader& h) { h.tensors.erase("model.norm.weight"); }, Code::not_found,
       "has no tensor model.norm.weight"},
      {[](SafetensorsHeader& h) { h.tensors["model.norm.weight"].shape = Shape{25}; }, Code::invalid_argument,
       "model.norm.weight has shape [25] in"},
      {[](SafetensorsHeader& h) { h.tensors["model.norm.weight"].dtype = DType::i32; },
       Code::invalid_argument, "model.norm.weight is i32 in"},
      {[](SafetensorsHeader& h) {
         h.tensors["extra"] = {DType::u8, Shape{3}, 0, 0};
       },
       Code::invalid_argument, "\"extra\" that the model does not have"},
  };
  for (const Row& row : table)
    run_ranks(2, [&](Gang& root) {
      const auto model = llama(root, seeded(16));
      const std::vector<double> before = all_values(*model);
      if (root.rank() == 0) write_changed(*model, path, row.change);
      root.barrier();
      const Error error = error_of([&] { load_model(*model, path); });
      EXPECT_EQ(error.code(), row.code) << error.message();
      EXPECT_NE(error.message().find(row.words), std::string::npos) << error.message();
      EXPECT_EQ(all_values(*model), before);
      // One rank's file alone is bad: all refuse, and none has changed.
      const Error one =
          error_of([&] { load_model(*model, root.rank() == 1 ? folder.path() + "/absent" : path); });
      EXPECT_NE(one.code(), Code::ok);
      EXPECT_EQ(all_values(*model), before);
    });
}

TEST(LoadModel, AParameterGroupUnshardedOnOneRankIsRefusedOnAll) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    const auto model = llama(root, seeded(20));
    save_model(*model, folder.path(), {});
    Stream& stream = model->device().stream();
    ParameterGroup& group = *model->fsdp().groups().front();
    if (root.rank() == 1) group.unshard(stream);
    const Error error = error_of([&] { load_model(*model, folder.path()); });
    EXPECT_EQ(error.code(), Code::invalid_state) << error.message();
    EXPECT_NE(error.message().find("is still unsharded"), std::string::npos) << error.message();
    group.reshard();
    load_model(*model, folder.path());
  });
}

// What is behind a header is read when every rank has opened and checked the file.
TEST(LoadModel, AFileThatChangesWhileItIsReadIsReportedToAllAndTheGangsWorkOn) {
  struct Row {
    void (*change)(const std::string& path);
    const char* words;
  };
  const Row table[] = {
      {[](const std::string& path) { EXPECT_EQ(truncate(path.c_str(), 4096), 0); }, "ends at byte "},
      {[](const std::string& path) {  // the same size and header, other values in its second half
         const std::string bytes = read_all(path);
         std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
         const auto half = static_cast<std::streamoff>(bytes.size() / 2);
         file.seekp(half).write(bytes.data() + 4096, static_cast<std::streamoff>(bytes.size()) - half);
       },
       "was changed while it was read"},
  };
  for (const Row& row : table) {
    const TemporaryFolder folder, whole;
    std::once_flag once;
    run_ranks(2, [&](Gang& root) {
      const auto model = llama(root, seeded(21));
      const std::vector<double> values = all_values(*model);
      save_model(*model, folder.path(), {});
      save_model(*model, whole.path(), {});
      if (root.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the change has another time
        set_before_call([&](const std::string& call, int64_t offset) {
          if (call == "pread" && offset > 8)
            std::call_once(once, [&] { row.change(folder.path() + "/model.safetensors"); });
          return 0;
        });
      }
      root.barrier();
      const Error error = error_of([&] { load_model(*model, folder.path()); });
      root.barrier();
      if (root.rank() == 0) set_before_call(nullptr);
      EXPECT_EQ(error.code(), Code::io) << row.words;
      EXPECT_NE(error.message().find(row.words), std::string::npos) << error.message();
      EXPECT_FALSE(root.error().has_value());
      load_model(*model, whole.path());
      EXPECT_EQ(all_values(*model), values);
    });
  }
}

// What was read is compared between replicas. Rank 3 spoils a value that it has read while it reads the others.
TEST(LoadModel, ReplicasThatDifferAfterwardsAreReported) {
  const TemporaryFolder folder;
  run_ranks(4, [&](Gang& root) {
    const auto model = llama(root, seeded(24), small_llama(), 2);
    save_model(*model, folder.path(), {});
    load_model(*model, folder.path());
    const Tensor first = model->inspect().parameters().front().parameter->shard;
    if (root.rank() == 3)
      set_before_call([&, self = std::this_thread::get_id()](const std::string& call, int64_t offset) {
        if (call != "pread" || offset <= 8 || std::this_thread::get_id() != self) return 0;
        HostMemory values(first);
        values.data<float>()[1] = 77;
        values.write();
        return 0;
      });
    root.barrier();
    const Error error = error_of([&] { load_model(*model, folder.path()); });
    root.barrier();
    if (root.rank() == 3) set_before_call(nullptr);
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    EXPECT_NE(error.message().find("load: replicas differ: "), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("77 on rank 3"), std::string::npos) << error.message();
    EXPECT_FALSE(root.error().has_value());
    load_model(*model, folder.path());
  });
}

TEST(LoadModel, RanksThatOpenDifferentFilesGetBothNames) {
  const TemporaryFolder folders[2];
  run_ranks(2, [&](Gang& root) {
    for (const TemporaryFolder& folder : folders) save_model(*llama(root, seeded(22)), folder.path(), {});
    const auto model = llama(root, seeded(23));
    const std::vector<double> before = all_values(*model);
    const Error error = error_of([&] { load_model(*model, folders[root.rank()].path()); });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    EXPECT_NE(error.message().find("rank 1 opened config.json ("), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("), rank 0 config.json ("), std::string::npos) << error.message();
    EXPECT_EQ(all_values(*model), before);
    load_model(*model, folders[0].path());
    EXPECT_NE(all_values(*model), before);
  });
}

// Both names stand in some tied checkpoints, with the same values.
TEST(LoadModel, ATiedModelTakesOneValueUnderBothNamesAndRefusesTwo) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/model.safetensors";
    run_ranks(3, [&](Gang& root) {
      const auto untied = llama(root, seeded(24), small_llama());
      const auto tied = llama(root, seeded(25), small_llama(/*tied=*/true));
      const std::vector<double> before = all_values(*tied);
      SaveOptions options;
      options.dtype = dtype;
      save_model(*untied, folder.path(), options);
      const Error error = error_of([&] { load_model(*tied, path); });
      EXPECT_EQ(error.code(), Code::invalid_argument) << error.message();
      EXPECT_NE(error.message().find("another lm_head.weight than model.embed_tokens.weight ("),
                std::string::npos)
          << error.message();
      EXPECT_NE(error.message().find(" as element 0)"), std::string::npos) << error.message();
      EXPECT_EQ(all_values(*tied), before);
      load_model(*tied, path, {.ignore_extra = true});
      EXPECT_EQ(gathered(*tied, *tied->inspect().parameter("lm_head.weight").parameter),
                gathered(*tied, *tied->inspect().parameter("model.embed_tokens.weight").parameter));
      const Tensor embedding = untied->inspect().gather(
          *untied->inspect().parameter("model.embed_tokens.weight").parameter, untied->device().stream());
      untied->inspect().assign(*untied->inspect().parameter("lm_head.weight").parameter, embedding,
                               untied->device().stream());
      save_model(*untied, folder.path(), options);
      load_model(*tied, path);
    });
  }
}

// Each row's model has the names and shapes of the saved one, or nearly so.
TEST(LoadModel, AFolderOfAnotherFunctionIsRefusedWithBothValues) {
  struct Row {
    void (*change)(DecoderOptions&);
    const char* words;
  };
  const Row table[] = {
      {[](DecoderOptions& c) { c.rope.theta = 500000; },
       "says rope_theta = 10000.0, but the model has 500000.0"},
      {[](DecoderOptions& c) { c.eps = 1e-6; }, "says rms_norm_eps = 1e-05, but the model has 1e-06"},
      {[](DecoderOptions& c) { c.rope.factor = 8; },
       "says the factor of rope_scaling = 1.0, but the model has 8.0"},
      {[](DecoderOptions& c) { c.heads = 2, c.kv_heads = 1, c.head_dim = 12; },
       "says num_attention_heads = 4, but the model has 2"},
      {[](DecoderOptions& c) { c.layers = 3; }, "says num_hidden_layers = 2, but the model has 3"},
      {[](DecoderOptions& c) { c.tied = true; }, "says tie_word_embeddings = false, but the model has true"},
  };
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    save_model(*llama(root, seeded(26)), folder.path(), {});
    for (const Row& row : table) {
      DecoderOptions config = small_llama();
      row.change(config);
      const auto model = llama(root, seeded(27), config);
      const std::vector<double> before = all_values(*model);
      const Error error = error_of([&] { load_model(*model, folder.path()); });
      EXPECT_EQ(error.code(), Code::invalid_argument) << row.words;
      EXPECT_NE(error.message().find(row.words), std::string::npos) << error.message();
      EXPECT_EQ(all_values(*model), before);
      if (config.layers == 2 && !config.tied) load_model(*model, folder.path(), {.ignore_config = true});
    }
    // What only bounds or starts a model may differ.
    DecoderOptions longer = small_llama();
    longer.max_positions = 99;
    longer.deviation = 1;
    load_model(*llama(root, seeded(27), longer), folder.path());
  });
}

TEST(LoadModel, ExtraNamesAreForgivenWhenNotStrictAndRotaryTablesAlways) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model.safetensors";
  run_ranks(1, [&](Gang& root) {
    const auto model = llama(root, seeded(17), small_llama(/*tied=*/true));
    write_changed(*model, path, [](SafetensorsHeader& h) {
      h.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {DType::f32, Shape{3}, 0, 0};
      h.tensors["lm_head.weight"] = h.tensors["model.embed_tokens.weight"];  // the tied one under both names
    });
    load_model(*model, path);
    write_changed(*model, path, [](SafetensorsHeader& h) {
      h.tensors["lm_head.weight"] = h.tensors["model.embed_tokens.weight"];
      h.tensors.erase("model.embed_tokens.weight");  // only under its alias
      h.tensors["extra"] = {DType::u8, Shape{3}, 0, 0};
    });
    EXPECT_EQ(error_of([&] { load_model(*model, path); }).code(), Code::invalid_argument);
    load_model(*model, path, {.ignore_extra = true});
    for (const double x : all_values(*model)) EXPECT_EQ(x, 0);
  });
}

}  // namespace
}  // namespace gangway::test
