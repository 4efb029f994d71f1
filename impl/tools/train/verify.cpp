#include "tools/train/verify.h"

#include <gangway/verify.h>

#include <cinttypes>
#include <cstdio>

#include "tools/train/build.h"
#include "tools/train/data.h"

namespace gangway::train {
namespace {

struct Recipe {
  const Settings& settings;
  const gw_decoder_options& decoder;
};

gw_status build(void* user, gw_module** out_model) {
  const Recipe& recipe = *static_cast<const Recipe*>(user);
  gw_module* model = nullptr;
  gw_status status = gw_decoder_create(&recipe.decoder, &model);
  if (status == GW_OK && has_adapters(recipe.settings)) {
    const gw_lora_options lora = lora_of(recipe.settings);
    status = gw_lora_apply(model, &lora);
  }
  if (status != GW_OK) gw_error_set(gw_last_error_text());
  if (status == GW_OK)
    *out_model = model;
  else
    gw_module_release(model);
  return status;
}

}  // namespace

Exit verify(const Settings& s) {
  const GangsHandle gangs = make_gangs(s);
  const gw_decoder_options decoder = decoder_of(s);
  Data data(s, gangs.get(), decoder.vocab);
  const Parallel parallel(s);
  Recipe recipe{s, decoder};
  auto options = fresh(gw_verify_options_init);
  options.parallel = &parallel.options;
  options.microbatches = data.microbatches();
  auto result = fresh(gw_verify_result_init);
  check(gw_verify(gangs.get(), build, &recipe, data.next().batch, &options, &result));
  gw_gang* root = nullptr;
  check(gw_gangs_get(gangs.get(), "root", &root));
  const GangHandle handle(root);
  if (gw_gang_rank(root) == 0)
    std::printf("verified: the loss is %.12g and %.12g on one rank, %" PRId64 " gradients are equal\n",
                result.mesh_loss, result.loss, result.parameters);
  check(gw_gangs_shutdown(gangs.get(), -1));
  return Exit::done;
}

}  // namespace gangway::train
