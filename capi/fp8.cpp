// Linear layers in FP8.
#include <gangway/fp8.h>

#include "fp8_options.h"
#include "patterns.h"

using namespace gangway;
using namespace gangway::capi;

static_assert(static_cast<int>(Fp8Scaling::tensor) == GW_FP8_TENSOR);
static_assert(static_cast<int>(Fp8Scaling::delayed) == GW_FP8_DELAYED);
static_assert(static_cast<int>(Fp8Scaling::row) == GW_FP8_ROW);

Fp8Options capi::fp8_options_of(const gw_fp8_options* options, const char* name) {
  const gw_fp8_options o = read_struct(options, gw_fp8_options_init, name);
  Fp8Options f;
  f.patterns = patterns_of(o.patterns, name);
  f.scaling = static_cast<Fp8Scaling>(o.scaling);
  f.history = o.history;
  return f;
}

void gw_fp8_options_init(gw_fp8_options* options, size_t size) {
  const Fp8Options defaults;
  gw_fp8_options o{};
  o.scaling = GW_FP8_TENSOR;
  o.history = defaults.history;
  init_struct(options, size, o);
}

gw_status gw_fp8_apply(gw_module* model, const gw_fp8_options* options) {
  return guarded([&] {
    const Fp8Options f = fp8_options_of(options, "options");
    apply_fp8(whole_description(model, "FP8"), f);
  });
}
