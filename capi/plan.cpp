#include <gangway/plan.h>

#include "decoder_options.h"
#include "fp8_options.h"
#include "lora_options.h"
#include "optimizer_options.h"
#include "parallel_options.h"
#include "plan/model_plan.h"
#include "sized_structs.h"

using namespace gangway;
using namespace gangway::capi;

void gw_plan_options_init(gw_plan_options* options, size_t size) {
  gw_plan_options d{};
  d.ranks = 1;
  d.rows = 1;
  d.moment_dtype = GW_F32;
  init_struct(options, size, d);
}

gw_status gw_plan_memory(const gw_plan_options* options, gw_memory_use* memory, int32_t* out_rank) {
  return guarded([&] {
    if (out_rank != nullptr) *out_rank = 0;
    check_out_struct(memory, "memory");
    const gw_plan_options o = read_struct(options, gw_plan_options_init, "options");
    if (o.ranks < 1) fail(Code::invalid_argument, "options.ranks is ", o.ranks, ", below 1");
    const gw_mesh_options m = read_struct(o.mesh, gw_mesh_options_init, "options.mesh");
    ModelPlanRequest request;
    request.decoder = decoder_options_of(
        read_struct(&required(o.decoder, "options.decoder"), gw_decoder_options_init, "options.decoder"));
    request.ranks = o.ranks;
    request.rows = o.rows;
    request.sequence = o.sequence > 0 ? o.sequence : request.decoder.max_positions;
    request.microbatches = o.microbatches;
    request.options = parallel_options_of(o.parallel);
    request.moment_dtype = dtype_of(o.moment_dtype);
    request.one_host = o.one_host != 0;
    if (o.lora != nullptr) request.lora = lora_options_of(o.lora, "options.lora");
    if (o.fp8 != nullptr) request.fp8 = fp8_options_of(o.fp8, "options.fp8");
    if (o.optimizer != nullptr) {
      request.optimizer = o.optimizer;
      request.optimizer_options =
          optimizer_options_of(o.optimizer, o.option_names, o.option_values, o.option_count);
    }
    const MeshOptions degrees =
        Mesh::resolve({m.pp, m.dp_replicate, m.dp_shard, m.cp, m.tp}, o.ranks).options();
    const MeshPlan plan = plan_mesh(request, degrees);
    if (!plan.refusal.empty()) fail(Code::invalid_argument, plan.refusal);
    if (out_rank != nullptr) *out_rank = plan.rank;
    const MemoryUse& u = plan.use;
    write_struct(memory, gw_memory_use{0, nullptr, u.master, u.region_rows, u.gradient_shards, u.gathered,
                                       u.full_gradients, u.activations, u.gradients, u.temporaries, u.copies,
                                       u.optimizer, u.host});
  });
}
