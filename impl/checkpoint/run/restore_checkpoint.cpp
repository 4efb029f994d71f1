// A restore from top to bottom: the ranks agree on a checkpoint, verify it, and find a place for everything
// in it. Then values change.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/interrupt.h"
#include "checkpoint/run/base_hash.h"
#include "checkpoint/run/model_record.h"
#include "checkpoint/run/optimizer_record.h"
#include "checkpoint/run/restore.h"
#include "checkpoint/run/verify.h"
#include "gang/agreement.h"
#include "parallel/collective_call.h"
#include "parallel/fsdp/replica_check.h"

namespace gangway {
namespace {

// What the checkpoint has for one part.
struct FoundPart {
  const CheckpointPart* part = nullptr;
  std::optional<ModelValues> values;
  const StoredOptimizer* record = nullptr;
  std::optional<OptimizerStates> states;
};

std::string signature_of(const std::vector<CheckpointPart>& parts, const RestoreOptions& options) {
  CallSignature signature("restore");
  signature.add("verify", options.verify);
  signature.add("strict", options.strict);
  signature.add("step", options.step);
  for (const CheckpointPart& part : parts) {
    signature.add("part", part.name);
    if (part.optimizer != nullptr) signature.add("optimizer", part.optimizer->kind());
  }
  return signature.text();
}

// Rank 0: the path of the checkpoint; "" if there is none at all.
std::string choose(const RunFolder& run, int64_t wanted) {
  const std::vector<int64_t> steps = run.steps();
  if (wanted < 0) return steps.empty() ? "" : run.path_of(steps.back());
  if (std::find(steps.begin(), steps.end(), wanted) != steps.end()) return run.path_of(wanted);
  std::string there;
  for (const int64_t step : steps) there += text(there.empty() ? "" : ", ", step);
  fail(Code::not_found, "restore: there is no complete checkpoint of step ", wanted,
       there.empty() ? "; there is none at all" : "; there are those of steps ", there);
}

// An optimizer without states has no files.
bool has_files(const CheckpointState& state, const std::string& stem) {
  return std::any_of(state.files.begin(), state.files.end(), [&](const StoredFile& file) {
    return file.name.starts_with(stem + ".") || file.name.starts_with(stem + "-");
  });
}

std::string quoted(const std::string& part) { return "part \"" + part + "\""; }

ModelValues find_values(const CheckpointPart& part, const std::string& folder, const std::string& record,
                        LeftOut& left_out) {
  const std::optional<std::string> base = stored_base(record);
  if (!base) return ModelValues(*part.model, folder, left_out);
  if (lora_settings(part.model->inspect().parameters()) == nullptr)
    fail(Code::invalid_argument, "restore: ", folder,
         " has adapters, and not the base that they belong to; give the model adapters and load the base "
         "first, or make one model of both with gw-checkpoint merge");
  if (*base != base_text(*part.model))
    left_out.add(Code::invalid_argument, text("the adapters were trained over another base (its hash is ",
                                              *base, ", that of this one ", base_text(*part.model),
                                              "); load the values of the base that they were trained over"));
  return ModelValues::of_adapters(*part.model, folder, left_out);
}

FoundPart find(const CheckpointPart& part, const std::string& path, const CheckpointState& state,
               LeftOut& left_out) {
  FoundPart found;
  found.part = &part;
  if (state.models.count(part.name) == 0) {
    left_out.add(Code::not_found, "the checkpoint has no model for " + quoted(part.name));
    return found;
  }
  found.values.emplace(find_values(part, part.name.empty() ? path : path + "/" + part.name,
                                   state.models.at(part.name), left_out));
  if (part.optimizer == nullptr) return found;
  const auto record = state.optimizers.find(part.name);
  if (record == state.optimizers.end()) {
    left_out.add(Code::not_found, "the checkpoint has no optimizer for " + quoted(part.name));
    return found;
  }
  if (const std::string other = other_kind(record->second, *part.optimizer, part.name); !other.empty()) {
    left_out.add(Code::invalid_argument, other);
    return found;
  }
  found.record = &record->second;
  const std::string stem = name_in_checkpoint(part.name, "optimizer");
  found.states.emplace(*part.model, *part.optimizer,
                       has_files(state, stem) ? Source::open(path, stem) : Source(), left_out);
  return found;
}

// Reads the values of all parts. Every rank reaches each end_update, also after a failed read, so that the
// version gates close and the gangs stay usable.
void read(const CollectiveCall& call, const std::vector<FoundPart>& parts) {
  std::optional<Error> unread;
  for (const FoundPart& found : parts) {
    Model& model = *found.part->model;
    Stream& stream = model.device().stream();
    call.run([&] { model.run().begin_update(stream); });
    call.run([&] {
      if (!unread)
        unread = error_thrown_by([&] {
          if (found.values) found.values->read(stream);
          if (found.states) found.states->read(stream);
        });
    });
    call.run([&] { model.run().end_update(stream); });
  }
  call.check([&] {
    if (unread) throw *unread;
  });
  for (const FoundPart& found : parts)
    check_replicas(found.part->model->fsdp(), "restore", found.part->model->device().stream());
}

void resume_all(const std::vector<FoundPart>& parts, RestoreReport& report) {
  for (const FoundPart& found : parts) {
    const CheckpointPart& part = *found.part;
    if (found.values) compare_model(report.state.models.at(part.name), part, report.differences);
    if (found.record == nullptr) continue;
    resume(*found.record, *part.optimizer, part.name, report.differences);
    for (const size_t fresh : found.states->without_states())
      part.optimizer->set_first_step(fresh, found.record->steps);
  }
}

}  // namespace

std::optional<RestoreReport> restore_checkpoint(Gangs& gangs, HeldFolder& folder,
                                                const std::vector<CheckpointPart>& parts,
                                                const RestoreOptions& options) {
  const Gang& root = *gangs.root();
  const CollectiveCall call(gangs, "restore");
  std::string path, arguments;
  call.check(
      [&] {
        arguments = signature_of(parts, options);
        check_parts(parts, gangs, "restore");
        if (folder.is_here())
          path = folder.use([&](const RunFolder& run) { return choose(run, options.step); });
      },
      arguments);
  path = gangs.root()->agreement().broadcast_bytes(Channel::control, path, 0);
  if (path.empty()) return std::nullopt;

  RestoreReport report;
  call.check(
      [&] {
        report.state = read_state(path);
        arguments = "restore\n" + to_json(report.state);
      },
      arguments);
  if (options.verify)
    call.check([&] {
      verify_checkpoint(path, report.state, static_cast<size_t>(root.rank()),
                        static_cast<size_t>(root.size()), [](uint64_t) { poll_interrupt_throttled(); });
    });
  std::vector<FoundPart> found;
  call.run([&] {
    for (const CheckpointPart& part : parts) {
      const auto record = report.state.models.find(part.name);
      const bool compares = record != report.state.models.end() && stored_base(record->second);
      if (compares && lora_settings(part.model->inspect().parameters()) != nullptr) base_hash(*part.model);
    }
  });
  call.check([&] {
    LeftOut left_out(report.left_out, options.strict);
    for (const CheckpointPart& part : parts) found.push_back(find(part, path, report.state, left_out));
    if (folder.is_here())
      report.moved_aside =
          folder.use([&](RunFolder& run) { return run.move_aside_newer_than(report.state.step); });
  });

  read(call, found);
  call.check([&] { resume_all(found, report); });
  return report;
}

}  // namespace gangway
