#include "checkpoint/run/save_job.h"

#include <map>

#include "base/refusal.h"
#include "checkpoint/run/bytes.h"
#include "checkpoint/run/plain_files.h"

namespace gangway {
namespace {

using Files = std::map<std::string, StoredFile>;  // by name

// Rank 0: makes the folder and all files but state.json. `path` is set as soon as there is something to
// remove.
Files make_files(const SaveJob& job, HeldFolder& folder, std::string& path) {
  path = folder.use([&](RunFolder& run) { return run.begin(job.state.step); });
  Files files;
  const auto add = [&](StoredFile file) {
    const std::string name = file.name;
    files[name] = std::move(file);
  };
  for (const SavedSet& set : job.plan.sets) {
    if (!set.files) continue;
    for (StoredFile& file : create_files(*set.files, path)) add(std::move(file));
  }
  for (const auto& [name, contents] : job.texts) add(write_file(path, name, contents));
  for (const auto& [name, from] : job.carried) add(copy_file(from, path, name));
  return files;
}

// Writes this rank's rows and returns the records of their blocks, as bytes.
std::string write_rows(const SaveJob& job, const std::string& path) {
  std::map<size_t, TensorSetWriter> writers;
  for (const SavedRows& rows : job.plan.own) {
    const auto at = writers.try_emplace(rows.set, *job.plan.sets[rows.set].files, path).first;
    job.write(rows, at->second);
  }
  BytesOut out;
  for (auto& [set, writer] : writers) {
    writer.sync();
    for (const auto& [file, blocks] : writer.blocks()) {
      out.add(file);
      out.add(blocks.size());
      for (const StoredBlock& block : blocks) {
        out.add(block.tensor);
        out.add(block.box);
        out.add(block.hash);
      }
    }
  }
  return out.take();
}

void add_blocks(Files& files, const std::string& records) {
  for (BytesIn in(records); !in.empty();) {
    StoredFile& file = files.at(in.text());
    for (uint64_t count = in.number(); count > 0; --count) {
      StoredBlock block;
      block.tensor = in.text();
      block.box = in.box();
      block.hash = in.number();
      file.blocks.push_back(std::move(block));
    }
  }
}

// Rank 0: writes state.json, which has the records of all ranks, and makes the checkpoint visible.
void commit(SaveJob& job, Files files, const std::vector<std::string>& records, HeldFolder& folder,
            const std::string& path) {
  for (const std::string& of_rank : records) add_blocks(files, of_rank);
  for (auto& [name, file] : files) job.state.files.push_back(std::move(file));
  write_file(path, kStateName, to_json(job.state));
  // A run that saves an earlier step than the folder's newest has not gone on from that one. Its own
  // checkpoint must be the newest when it is visible, for the next restore and for remove_old.
  folder.use([&](RunFolder& run) { run.move_aside_newer_than(job.state.step); });
  folder.use([&](RunFolder& run) { run.commit(job.state.step, path); });
  try {
    folder.use([&](RunFolder& run) { run.remove_old(job.keep); });
  } catch (const Error& error) {
    throw Error(error.code(), text("checkpoint: step ", job.state.step,
                                   " is saved, but older ones stay: ", error.message()));
  }
}

}  // namespace

void write_checkpoint(SaveJob& job, HeldFolder& folder, Meeting& meeting) {
  const bool first = meeting.gang().rank() == 0;
  Files files;
  std::string path, own;  // own: of the folder that this rank made
  try {
    std::optional<Error> refusal = error_thrown_by([&] {
      if (first) files = make_files(job, folder, own);
    });
    path = meeting.exchange(refusal, own)[0];

    std::string records;
    refusal = error_thrown_by([&] { records = write_rows(job, path); });
    const std::vector<std::string> all = meeting.exchange(refusal, records);

    refusal = error_thrown_by([&] {
      if (first) commit(job, std::move(files), all, folder, path);
    });
    meeting.exchange(refusal, {});
  } catch (...) {
    if (!own.empty()) folder.use([&](RunFolder& run) { run.abandon(own); });
    throw;
  }
}

}  // namespace gangway
