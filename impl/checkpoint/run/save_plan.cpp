#include "checkpoint/run/save_plan.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "checkpoint/file_place.h"
#include "checkpoint/lora_files.h"
#include "checkpoint/named_tensors.h"
#include "checkpoint/run/bytes.h"
#include "checkpoint/run/state_places.h"
#include "checkpoint/writing_rank.h"

namespace gangway {
namespace {

constexpr size_t kAlignment = 64;  // of small rows in the host copy

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Returns the byte of its file at which the rows begin.
uint64_t position(const SavePlan& plan, const SavedRows& rows) {
  const TensorSetPlan::Place& place = plan.sets[rows.set].files->place(rows.name);
  const std::array<int64_t, kMaxDims> strides = row_major(place.spec.shape);
  int64_t elements = 0;
  for (size_t d = 0; d < rows.box.first.size(); ++d) elements += rows.box.first[d] * strides[d];
  return place.first + static_cast<uint64_t>(elements) * item_bytes(rows.dtype);
}

// A name is a folder's name in the checkpoint, so it may not lead out of it or look like one of its files.
void check_name(const std::string& name, const char* call) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  constexpr size_t kLongest = 100;
  if (name.size() > kLongest || !std::all_of(name.begin(), name.end(), is_plain))
    fail(Code::invalid_argument, call, ": a part's name is \"", name, "\"; it may have up to ", kLongest,
         " letters, digits, - and _");
}

void check_part(const CheckpointPart& part, const Gangs& gangs, const char* call) {
  check_name(part.name, call);
  if (part.model == nullptr) fail(Code::invalid_argument, call, ": part \"", part.name, "\" has no model");
  Model& model = *part.model;
  if (!model.materialized())
    fail(Code::invalid_state, call, ": the model of part \"", part.name,
         "\" has no storage yet; call parallelize or materialize first");
  if (model.device().kind() == DeviceKind::meta)
    fail(Code::invalid_argument, call, ": a meta device has no values");
  const Gang& root = *model.gangs().root();
  if (&root != gangs.root().get() && (root.size() != 1 || gangs.root()->size() != 1))
    fail(Code::invalid_argument, call, ": the model of part \"", part.name, "\" is on gang \"", root.name(),
         "\", but the checkpoints on \"", gangs.root()->name(), "\"; give both the same gangs");
  const auto same = [](const NamedParameter& a, const NamedParameter& b) {
    return a.parameter == b.parameter;
  };
  const auto& own = model.inspect().parameters();
  if (part.optimizer != nullptr && !std::equal(own.begin(), own.end(), part.optimizer->parameters().begin(),
                                               part.optimizer->parameters().end(), same))
    fail(Code::invalid_argument, call, ": the optimizer of part \"", part.name,
         "\" was made for the parameters of another model");
  if (part.optimizer != nullptr && part.optimizer->ema_swapped())
    fail(Code::invalid_state, call, ": the model of part \"", part.name,
         "\" has the averages of its parameters; swap them back first (gw_optimizer_swap_ema)");
  model.run().check_update();
}

void add_rows(SavePlan& plan, SavedRows rows) {
  if (!rows.rows || rows.box.shape.count() == 0) return;
  rows.set = plan.sets.size() - 1;
  plan.own.push_back(std::move(rows));
}

void add_parameter(SavePlan& plan, const Parameter& p, const FilePlace& place, Model& model, DType dtype) {
  const TensorSpecOnDisk own{place.name, stored_dtype(p, dtype), place.shape};
  const DType stored = plan.sets.back().tensors.emplace(place.name, own).first->second.dtype;
  if (writes_rows(p.layout, model.gangs()) && p.shard)
    add_rows(plan,
             {0, place.name, stored, place.in_file(p.box()), place.as_in_file(p.shard, p.box()), &model});
}

// Of a model whose adapters alone are trained, a checkpoint holds these, and not the base beside them.
void list_adapters(SavePlan& plan, const CheckpointPart& part, DType dtype) {
  const AdapterFiles files = adapter_files(*part.model);
  plan.sets.push_back({.stem = name_in_checkpoint(part.name, files.stem), .in_one_file = true});
  for (const PlacedParameter& placed : files.tensors)
    add_parameter(plan, *placed.parameter, placed.place, *part.model, dtype);
}

void list_model(SavePlan& plan, const CheckpointPart& part, DType dtype) {
  if (trains_adapters_alone(*part.model)) return list_adapters(plan, part, dtype);
  plan.sets.push_back({.stem = name_in_checkpoint(part.name, "model")});
  const FilePlaces places(part.model->root(), part.model->inspect().names());
  for (const NamedParameter& named : part.model->inspect().saved())
    add_parameter(plan, *named.parameter, places.of(named.name), *part.model, dtype);
}

void list_states(SavePlan& plan, const CheckpointPart& part) {
  plan.sets.push_back({.stem = name_in_checkpoint(part.name, "optimizer"), .is_optimizer = true});
  const Optimizer& optimizer = *part.optimizer;
  const StatePlaces places(*part.model, optimizer);
  for (size_t i = 0; i < optimizer.parameters().size(); ++i)
    for (const Optimizer::Slot& slot : optimizer.state(i)) {
      const FilePlace place = places.of(i, slot);
      plan.sets.back().tensors[place.name] = {place.name, slot.tensor.dtype(), place.shape};
      if (writes_rows(slot.layout, part.model->gangs()))
        add_rows(plan, {0, place.name, slot.tensor.dtype(), place.in_file(slot.box()),
                        place.as_in_file(slot.tensor, slot.box()), part.model});
    }
}

}  // namespace

std::string name_in_checkpoint(const std::string& part, const std::string& file) {
  return part.empty() ? file : part + "/" + file;
}

void check_parts(const std::vector<CheckpointPart>& parts, const Gangs& gangs, const char* call) {
  if (parts.empty()) fail(Code::invalid_argument, call, ": there is no part");
  std::set<std::string> names;
  for (const CheckpointPart& part : parts) {
    check_part(part, gangs, call);
    if (!names.insert(part.name).second)
      fail(Code::invalid_argument, call, ": two parts have the name \"", part.name, "\"");
  }
}

SavePlan list_tensors(const std::vector<CheckpointPart>& parts, DType model_dtype) {
  SavePlan plan;
  for (const CheckpointPart& part : parts) {
    list_model(plan, part, model_dtype);
    if (part.optimizer != nullptr) list_states(plan, part);
  }
  return plan;
}

std::string known_states(const SavePlan& plan) {
  BytesOut out;
  for (size_t set = 0; set < plan.sets.size(); ++set) {
    if (!plan.sets[set].is_optimizer) continue;
    for (const auto& [name, spec] : plan.sets[set].tensors) {
      out.add(set);
      out.add(name);
      out.add(static_cast<uint64_t>(spec.dtype));
      out.add(spec.shape);
    }
  }
  return out.take();
}

void add_states(SavePlan& plan, const std::string& known) {
  for (BytesIn in(known); !in.empty();) {
    const size_t set = in.number();
    TensorSpecOnDisk spec;
    spec.name = in.text();
    spec.dtype = static_cast<DType>(in.number());
    spec.shape = in.shape();
    const auto [at, fresh] = plan.sets.at(set).tensors.emplace(spec.name, spec);
    if (!fresh && (at->second.dtype != spec.dtype || !(at->second.shape == spec.shape)))
      fail(Code::mismatch, "checkpoint: state ", spec.name, " is ", name(at->second.dtype), " ",
           at->second.shape.text(), " on one rank, ", name(spec.dtype), " ", spec.shape.text(),
           " on another");
  }
}

void plan_files(SavePlan& plan, uint64_t max_file_bytes) {
  for (SavedSet& set : plan.sets) {
    if (set.tensors.empty()) continue;
    std::vector<TensorSpecOnDisk> tensors;
    for (const auto& [name, spec] : set.tensors) tensors.push_back(spec);
    set.files.emplace(set.stem, std::move(tensors), set.in_one_file ? 0 : max_file_bytes,
                      std::map<std::string, std::string>());
  }
}

void place_rows(SavePlan& plan) {
  plan.copy_bytes = 0;
  for (SavedRows& rows : plan.own) {
    rows.at = rows.bytes() < kLeastDirectBytes
                  ? round_up(plan.copy_bytes, kAlignment)
                  : round_up(plan.copy_bytes, kDirectAlignment) + position(plan, rows) % kDirectAlignment;
    plan.copy_bytes = rows.at + rows.bytes();
  }
}

}  // namespace gangway
