// Save and load of models that are cut into stages: one file for every mesh.
#include "checkpoint/model_io.h"
#include "gang/agreement.h"
#include "train/pipeline.h"

namespace gangway::test {
namespace {

DecoderOptions four_layers(bool tied) {
  DecoderOptions config = small_llama(tied);
  config.layers = 4;
  return config;
}

const std::vector<PipelineCase> kMeshes = {
    {"1f1b", 2, 2}, {"zbv", 2, 2, 2}, {"interleaved-1f1b", 2, 2, 1, 2}, {"gpipe", 3, 2}};

TEST(PipelineModel, EveryMeshWritesTheFileOfOneDeviceAndReadsIt) {
  for (const bool tied : {false, true}) {
    const DecoderOptions config = four_layers(tied);
    const TemporaryFolder one;
    std::vector<double> values;
    run_ranks(1, [&](Gang& root) {
      const auto model = llama(root, seeded(7), config);
      save_model(*model, one.path(), {});
      values = all_values(*model);
    });
    for (const PipelineCase& c : kMeshes) {
      SCOPED_TRACE(c.text());
      const TemporaryFolder folder;
      run_ranks(c.ranks(), [&](Gang& root) {
        ParallelOptions options = c.options(DType::f32);
        options.seed = 7;
        const auto model = make_model(make_decoder(config), make_gangs(root, c), options);
        save_model(*model, folder.path(), {});
      });
      for (const char* file : {"/model.safetensors", "/config.json"})
        EXPECT_EQ(read_all(folder.path() + file), read_all(one.path() + file)) << file;
      run_ranks(c.ranks(), [&](Gang& root) {
        ParallelOptions options = c.options(DType::f32);
        options.seed = 8;
        const auto model = make_model(make_decoder(config), make_gangs(root, c), options);
        EXPECT_NE(all_values(*model), values);
        load_model(*model, one.path());
        EXPECT_EQ(all_values(*model), values);
        StepOptions step;  // the copy of a tied embedding was loaded, too
        step.microbatches = c.microbatches;
        std::vector<int64_t> ids(4 * 6, 3);
        Batch batch;
        batch.inputs = {tensor_of(*model, DType::i64, Shape{4, 6}, ids.data())};
        const double loss = eval_step(*model, batch, step, model->device().stream()).loss;
        EXPECT_NEAR(loss, model->gangs().root()->agreement().all_sum(Channel::user, loss) / root.size(),
                    1e-12);
      });
    }
  }
}

}  // namespace
}  // namespace gangway::test
