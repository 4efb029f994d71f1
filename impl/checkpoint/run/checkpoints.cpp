#include "checkpoint/run/checkpoints.h"

#include <unistd.h>

#include "base/error.h"
#include "base/philox.h"
#include "checkpoint/lora_files.h"
#include "checkpoint/run/base_hash.h"
#include "checkpoint/run/describe_save.h"
#include "checkpoint/run/host_copy.h"
#include "checkpoint/run/restore.h"
#include "checkpoint/run/writer_thread.h"
#include "gang/agreement.h"
#include "parallel/collective_call.h"

namespace gangway {
namespace {

void check(const CheckpointsOptions& options, const Gang& root) {
  const auto refuse = [](const char* option, auto value, const char* why) {
    fail(Code::invalid_argument, "checkpoints: ", option, " = ", value, why);
  };
  if (root.rank() == 0 && options.folder.empty())
    fail(Code::invalid_argument, "checkpoints: the folder's name is empty");
  if (options.keep < 0) refuse("keep", options.keep, " is below 0");
  if (options.every < 0) refuse("every", options.every, " is below 0");
  if (options.timeout_ms < 1) refuse("timeout_ms", options.timeout_ms, " is below 1");
  if (options.model_dtype != DType{} && !is_floating(options.model_dtype))
    refuse("model_dtype", name(options.model_dtype), " is not floating");
  if (root.size() > 1 && !root.has_peers())
    fail(Code::not_supported, "checkpoints: the gang of ", root.size(),
         " ranks is a fake one, whose peers have no rows to write");
}

std::string signature_of(const CheckpointsOptions& options) {
  CallSignature signature("checkpoints");
  signature.add("keep", options.keep);
  signature.add("every", options.every);
  signature.add("synchronous", options.synchronous);
  signature.add("max_file_bytes", options.max_file_bytes);
  signature.add("model_dtype", options.model_dtype == DType{} ? "the masters'" : name(options.model_dtype));
  signature.add("timeout_ms", options.timeout_ms);
  return signature.text();
}

std::string this_process() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return text(host, ", process ", getpid());
}

// Ranks write at offsets of headers that each made itself, so the headers must be equal.
std::string signature_of(const SavePlan& plan) {
  uint64_t hash = 0;
  for (const SavedSet& set : plan.sets)
    if (set.files)
      for (const TensorSetPlan::File& file : set.files->files())
        hash = philox_key(hash, file.name + "\n" + file.header);
  return text("checkpoint\nfiles ", hash);
}

}  // namespace

struct Checkpoints::Impl {
  std::shared_ptr<Gangs> gangs;
  // The writer's thread shares these.
  std::shared_ptr<HeldFolder> folder = std::make_shared<HeldFolder>();
  std::shared_ptr<Meeting> meeting;
  HostCopy copy;
  std::shared_ptr<const void> counted;  // the copy's bytes, in the memory use of a model
  WriterThread thread;
};

Checkpoints::Checkpoints(std::shared_ptr<Gangs> gangs, CheckpointsOptions options)
    : options_(std::move(options)), impl_(std::make_unique<Impl>()) {
  Gang& root = *gangs->root();
  const CollectiveCall call(*gangs, "checkpoints");
  std::string arguments;
  // Rank 0 may have to wait for the lease, longer than the gang lets the other ranks wait for rank 0. So it
  // waits in short rounds, after each of which the ranks meet.
  for (bool is_open = false; !is_open;)
    is_open = call.check(
                  [&] {
                    arguments = signature_of(options_);
                    check(options_, root);
                    const std::string job = options_.job.empty() ? this_process() : options_.job;
                    const bool opened = root.rank() != 0 || impl_->folder->try_open(options_.folder, job);
                    return static_cast<int>(opened);
                  },
                  arguments)[0] != 0;
  call.run(
      [&] { impl_->meeting = std::make_shared<Meeting>(root.duplicate(text(root.name(), ".checkpoints"))); });
  impl_->gangs = std::move(gangs);
}

Checkpoints::~Checkpoints() = default;

const std::shared_ptr<Gangs>& Checkpoints::gangs() const { return impl_->gangs; }
uint64_t Checkpoints::buffer_bytes() const { return impl_->copy.bytes(); }

void Checkpoints::save(const std::vector<CheckpointPart>& parts, CheckpointState state) {
  Impl& me = *impl_;
  const CollectiveCall call(*me.gangs, "checkpoint");
  const auto job = std::make_shared<SaveJob>();
  std::string arguments;
  call.check(
      [&] {
        me.thread.finish();
        if (const std::optional<Error> broken = me.meeting->gang().error()) throw *broken;
        if (state.step < 0) fail(Code::invalid_argument, "checkpoint: step = ", state.step, " is below 0");
        check_parts(parts, *me.gangs, "checkpoint");
        job->plan = list_tensors(parts, options_.model_dtype);
        job->keep = options_.keep;
        arguments = facts_of_save(parts, state);
      },
      arguments);
  const std::vector<std::string> known = call.run([&] {
    for (const CheckpointPart& part : parts) {
      part.model->run().finish_gradients(part.model->device().stream());
      if (trains_adapters_alone(*part.model)) base_hash(*part.model);
    }
    return me.gangs->root()->agreement().all_gather_bytes(Channel::control, known_states(job->plan));
  });
  call.check(
      [&] {
        for (const std::string& of_rank : known) add_states(job->plan, of_rank);
        plan_files(job->plan, options_.max_file_bytes);
        place_rows(job->plan);
        arguments = signature_of(job->plan);
        describe_save(*job, parts, std::move(state));
        static_cast<void>(to_json(job->state));  // refuses what cannot be written
        if (options_.synchronous) return;
        me.copy.reserve(job->plan);
        me.thread.prepare();
        me.counted = parts.front().model->inspect().count_host(me.copy.bytes());
      },
      arguments);

  const Deadline deadline = Deadline::after_ms(options_.timeout_ms);
  me.meeting->set_deadline(deadline);
  if (options_.synchronous) {
    RowBlocks blocks;
    job->write = [&](const SavedRows& rows, TensorSetWriter& writer) {
      blocks.each(rows, [&](const Box& box, const void* data) { writer.write(rows.name, box, data); });
    };
    call.check([&] { write_checkpoint(*job, *me.folder, *me.meeting); });
    return;
  }
  call.run([&] {
    me.copy.fill(job->plan);
    for (SavedRows& rows : job->plan.own)
      rows.rows = Tensor();  // the model may go before the writer has ended
    const char* const data = me.copy.bytes() > 0 ? me.copy.data() : nullptr;
    job->write = [memory = me.copy.memory(), data](const SavedRows& rows, TensorSetWriter& writer) {
      writer.write(rows.name, rows.box, data + rows.at);
    };
    me.thread.start(
        [job, folder = me.folder, meeting = me.meeting] { write_checkpoint(*job, *folder, *meeting); },
        deadline);
  });
}

void Checkpoints::wait() {
  CollectiveCall(*impl_->gangs, "checkpoints").check([&] { impl_->thread.finish(); });
}

std::optional<RestoreReport> Checkpoints::restore(const std::vector<CheckpointPart>& parts,
                                                  const RestoreOptions& options) {
  CollectiveCall(*impl_->gangs, "restore").check([&] { impl_->thread.finish(); });
  return restore_checkpoint(*impl_->gangs, *impl_->folder, parts, options);
}

}  // namespace gangway
