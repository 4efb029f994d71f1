// Loading sharded models: any mesh, any floating dtype, piece by piece; refusals that change nothing.
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/interrupt.h"
#include "checkpoint/model_io.h"
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
          const auto model = llama(root, seeded(8, DType::f32, strategy), small_llama(tied));
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
        for (const NamedParameter& p : model->parameters())
          whole += static_cast<uint64_t>(p.parameter->shape.count()) * item_bytes(p.parameter->dtype);
        ASSERT_GT(whole / static_cast<uint64_t>(ranks), kPiece) << "own rows are over a piece";
        const MemoryUse before = model->memory();
        const uint64_t moved = shards->traffic().bytes_moved;
        SaveOptions options;
        options.dtype = stored;
        save_model(*model, folder.path(), options);
        load_model(*model, folder.path());
        const MemoryUse after = model->memory();
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
      batch.inputs = batch.targets = {tensor_of(*model, DType::i64, Shape{1, 6}, ids.data())};
      const double loss = eval_step(*model, batch, {}, model->device().stream()).loss;
      if (root.rank() == 0) losses[load ? 1 : 0] = loss;
    });
  EXPECT_EQ(losses[0], losses[1]);
}

// Splits a saved file in two by hand, with an index.
void make_sharded(const std::string& folder) {
  const std::string path = folder + "/model.safetensors";
  const SafetensorsFile whole(path);
  nlohmann::json index;
  std::ofstream files[2] = {std::ofstream(folder + "/model-00001-of-00002.safetensors", std::ios::binary),
                            std::ofstream(folder + "/model-00002-of-00002.safetensors", std::ios::binary)};
  for (size_t part = 0; part < 2; ++part) {
    SafetensorsHeader header;
    size_t i = 0;
    for (const auto& [name, tensor] : whole.tensors())
      if (i++ % 2 == part) {
        header.tensors[name] = tensor;
        index["weight_map"][name] = text("model-0000", part + 1, "-of-00002.safetensors");
      }
    files[part] << make_safetensors_header(header);
    for (const auto& [name, tensor] : header.tensors) {
      const StoredTensor& from = whole.tensors().at(name);
      std::vector<char> bytes(from.last - from.first);
      whole.read(from, 0, bytes.size(), bytes.data());
      files[part].write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  }
  index["metadata"]["total_size"] = 1;
  std::ofstream(path + ".index.json") << index.dump();
  unlink(path.c_str());
}

TEST(LoadModel, ReadsAFolderOfShards) {
  const TemporaryFolder folder;
  std::vector<double> saved;
  run_ranks(1, [&](Gang& root) {
    const auto model = llama(root, seeded(13));
    save_model(*model, folder.path(), {});
    saved = all_values(*model);
  });
  make_sharded(folder.path());
  run_ranks(3, [&](Gang& root) {
    const auto model = llama(root, seeded(14));
    load_model(*model, folder.path());
    EXPECT_EQ(all_values(*model), saved);
  });
}

TEST(LoadModel, AnIndexCannotLeaveItsFolderOrLie) {
  struct Row {
    const char* index;
    const char* words;
  };
  const Row table[] = {
      {"", "is not JSON"},
      {"[]", "has no object weight_map"},
      {R"({"weight_map": 3})", "has no object weight_map"},
      {R"({"weight_map": {"a": 3}})", "weight_map.\"a\" is not text"},
      {R"({"weight_map": {"a": "../model.safetensors"}})", "not a file of this folder"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "not a file of this folder"},
      {R"({"weight_map": {"a": ".."}})", "not a file of this folder"},
      {R"({"weight_map": {"a": ""}})", "not a file of this folder"},
      {R"({"weight_map": {"a": "x\u0000y"}})", "not a file of this folder"},
      {R"({"weight_map": {"a": "f", "a": "g"}})", "\"a\" stands there twice"},
      {R"({"weight_map": {"a": "f"}, "x": [[[[[[[[[[[[1]]]]]]]]]]]]})", "nested over 8 deep"},
  };
  for (const Row& row : table) {
    const TemporaryFolder folder;
    std::ofstream(folder.path() + "/model.safetensors.index.json") << row.index;
    run_ranks(2, [&](Gang& root) {
      const auto model = llama(root, seeded(15));
      const Error error = error_of([&] { load_model(*model, folder.path()); });
      EXPECT_EQ(error.code(), Code::corrupt) << row.index;
      EXPECT_NE(error.message().find(row.words), std::string::npos) << error.message();
    });
  }
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/model.safetensors.index.json")
      << R"({"weight_map": {"a": "absent.safetensors"}})";
  run_ranks(1, [&](Gang& root) {
    EXPECT_EQ(error_of([&] { load_model(*llama(root, seeded(15)), folder.path()); }).code(), Code::io);
  });
}

// Writes the tensors of `model` as they are, after `change` has had its way with the header.
template <typename Change>
void write_changed(Model& model, const std::string& path, Change&& change) {
  SafetensorsHeader header;
  for (const NamedParameter& named : model.parameters())
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
       Code::invalid_argument, "\"extra\" that the model lacks"},
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
          error_of([&] { load_model(*model, root.rank() == 1 ? folder.path() + "/absent" : path, false); });
      EXPECT_NE(one.code(), Code::ok);
      EXPECT_EQ(all_values(*model), before);
    });
}

TEST(LoadModel, AUnitUnshardedOnOneRankIsRefusedOnAll) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    const auto model = llama(root, seeded(20));
    save_model(*model, folder.path(), {});
    Stream& stream = model->device().stream();
    ParamGroup& unit = *model->domain().units().front();
    if (root.rank() == 1) unit.unshard(stream);
    const Error error = error_of([&] { load_model(*model, folder.path()); });
    EXPECT_EQ(error.code(), Code::invalid_state) << error.message();
    EXPECT_NE(error.message().find("is still unsharded"), std::string::npos) << error.message();
    unit.reshard();
    load_model(*model, folder.path());
  });
}

// Rank 1's own file ends early once its head was read: its interrupt hook, asked while it waits for rank 0 in
// the check, cuts it.
TEST(LoadModel, AReadThatFailsOnOneRankIsToldToAllAndTheGangWorksOn) {
  const TemporaryFolder folder, own;
  struct Cut {
    std::string path;
    std::atomic<bool> done{false};
  } cut{own.path() + "/model.safetensors"};
  run_ranks(2, [&](Gang& root) {
    const auto model = llama(root, seeded(21));
    const std::vector<double> values = all_values(*model);
    save_model(*model, folder.path(), {});
    save_model(*model, own.path(), {});
    if (root.rank() == 1) {
      set_interrupt(
          [](void* user) {
            Cut& its = *static_cast<Cut*>(user);
            if (its.done) return 0;
            EXPECT_EQ(truncate(its.path.c_str(), 4096), 0);
            its.done = true;
            return 0;
          },
          &cut, nullptr);
    } else {
      while (!cut.done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const Error error = error_of([&] { load_model(*model, root.rank() == 1 ? own.path() : folder.path()); });
    set_interrupt(nullptr, nullptr, nullptr);
    EXPECT_EQ(error.code(), Code::io) << error.message();
    EXPECT_EQ(error.rank, 1);
    EXPECT_NE(error.message().find("ends at byte "), std::string::npos) << error.message();
    load_model(*model, folder.path());
    EXPECT_EQ(all_values(*model), values);
  });
}

TEST(LoadModel, AnIndexThatIsAFifoIsRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder.path() + "/model.safetensors.index.json").c_str(), 0600), 0);
  run_ranks(1, [&](Gang& root) {
    const Error error = error_of([&] { load_model(*llama(root, seeded(21)), folder.path()); });
    EXPECT_EQ(error.code(), Code::io) << error.message();
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
    load_model(*model, path, /*strict=*/false);
    for (const double x : all_values(*model)) EXPECT_EQ(x, 0);
  });
}

}  // namespace
}  // namespace gangway::test
