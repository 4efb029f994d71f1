// Letters: R rank of the adapter, I inputs, O outputs.
#include "parallel/model/lora.h"

#include "parallel/collective_call.h"

namespace gangway {
namespace {

struct Factors {
  LoraLayer layer;
  Tensor a_RI, b_OR;  // whole
};

// Adds B A to this rank's rows of the weight, which may lie in memory of the host that products do not reach.
void add_product(Model& model, const Factors& f, Stream& stream) {
  const Parameter& weight = *f.layer.weight;
  if (!weight.shard || weight.shard.count() == 0) return;
  const Box box = weight.box();
  Ops& ops = model.ops();
  const StackScope scope(model.temporaries());
  const Tensor rows = weight.is_offloaded
                          ? model.temporaries().allocate(weight.shard.dtype(), weight.shard.shape())
                          : weight.shard;
  if (weight.is_offloaded) ops.cast(weight.shard, rows, stream);
  ops.gemm({.a = f.b_OR.slice(0, box.first[0], box.last(0)),
            .b = f.a_RI.slice(1, box.first[1], box.last(1)),
            .c = rows,
            .bias = {},
            .accumulate = true},
           stream);
  if (weight.is_offloaded) ops.cast(rows, weight.shard, stream);
}

void make_zero(Model& model, const Parameter& parameter, Stream& stream) {
  if (!parameter.shard || parameter.shard.count() == 0) return;
  const StackScope scope(model.temporaries());
  const Tensor zeros = model.temporaries().allocate(parameter.shard.dtype(), parameter.shard.shape());
  model.ops().fill(zeros, 0, stream);
  model.ops().cast(zeros, parameter.shard, stream);
}

}  // namespace

std::shared_ptr<LoraSettings> lora_of(Model& model, const char* call) {
  if (!model.materialized())
    fail(Code::invalid_state, call, ": the model has no storage yet; call parallelize or materialize first");
  auto settings = lora_settings(model.inspect().parameters());
  if (settings == nullptr)
    fail(Code::invalid_state, call, ": the model has no adapters; lora_apply comes before parallelize");
  return settings;
}

void enable_lora(Model& model, bool on) {
  std::shared_ptr<LoraSettings> settings;
  CollectiveCall(model.gangs(), "lora_enable")
      .check([&] { settings = lora_of(model, "lora_enable"); }, text("lora_enable ", on));
  settings->enabled = on;
}

void merge_lora(Model& model, Stream& stream) {
  std::shared_ptr<LoraSettings> settings;
  const CollectiveCall call(model.gangs(), "lora_merge");
  call.check([&] {
    settings = lora_of(model, "lora_merge");
    if (!settings->enabled)
      fail(Code::invalid_state,
           "lora_merge: the adapters are off, as after a merge; lora_enable(1) comes before another one");
    model.run().check_update();
  });
  std::vector<Factors> all;
  for (const LoraLayer& layer : lora_layers(model.inspect().parameters()))
    all.push_back(
        {layer, model.inspect().gather(*layer.a, stream), model.inspect().gather(*layer.b, stream)});
  call.run([&] {
    model.run().begin_update(stream);
    for (const Factors& f : all) {
      model.ops().scale(f.b_OR, settings->options.scale(), stream);
      add_product(model, f, stream);
      make_zero(model, *f.layer.b, stream);
    }
    model.run().end_update(stream);
  });
  settings->enabled = false;
  model.origin().base_hash.reset();
}

}  // namespace gangway
