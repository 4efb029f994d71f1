// The commands list and verify.
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/cores.h"
#include "base/error.h"
#include "checkpoint/run/run_folder.h"
#include "checkpoint/run/verify.h"
#include "tools/checkpoint_commands.h"
#include "tools/progress_line.h"

namespace gangway {
namespace {

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Checks that the folder exists, since RunFolder makes a missing one.
void check_folder(const std::string& path) {
  if (!is_folder(path)) fail(Code::not_found, path, " is no folder");
}

uint64_t bytes_in(const CheckpointState& state) {
  uint64_t bytes = 0;
  for (const StoredFile& file : state.files) bytes += file.bytes;
  return bytes;
}

std::string time_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return "?";
  tm parts{};
  gmtime_r(&status.st_mtim.tv_sec, &parts);
  char out[24];
  strftime(out, sizeof out, "%Y-%m-%d %H:%M:%SZ", &parts);
  return out;
}

// A share of one file. The smaller the tasks, the less damage hides behind other damage.
struct Task {
  const CheckpointState* file;  // a state that has only this file
  size_t share, shares;
};

std::vector<CheckpointState> states_of_files(const CheckpointState& state) {
  std::vector<CheckpointState> all(state.files.size());
  for (size_t i = 0; i < all.size(); ++i) all[i].files = {state.files[i]};
  return all;
}

std::vector<Task> tasks_of(const std::vector<CheckpointState>& files) {
  constexpr size_t kBlocks = 64;  // of a task
  std::vector<Task> tasks;
  for (const CheckpointState& file : files) {
    const size_t shares = 1 + file.files[0].blocks.size() / kBlocks;
    for (size_t share = 0; share < shares; ++share) tasks.push_back({&file, share, shares});
  }
  return tasks;
}

// Threads take tasks until none is left.
std::set<std::string> damage_of(const std::string& folder, const CheckpointState& state, size_t threads) {
  const std::vector<CheckpointState> files = states_of_files(state);
  const std::vector<Task> tasks = tasks_of(files);
  ProgressLine line(folder, bytes_in(state));
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::set<std::string> damage;
  const auto work = [&] {
    for (size_t i = next++; i < tasks.size(); i = next++) {
      const Task& task = tasks[i];
      try {
        verify_checkpoint(folder, *task.file, task.share, task.shares,
                          [&](uint64_t bytes) { line.add(bytes); });
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        damage.insert(error.what());
      }
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(threads, tasks.size()); ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  return damage;
}

bool verify_one(const std::string& folder, size_t threads) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const CheckpointState state = read_state(folder);
  const std::set<std::string> damage = damage_of(folder, state, threads);
  for (const std::string& problem : damage) std::fprintf(stderr, "%s\n", problem.c_str());
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("%s: %zu files, %s, %.1f s: %s\n", folder.c_str(), state.files.size() + 1,
              size_text(bytes_in(state)).c_str(), seconds, damage.empty() ? "whole" : "DAMAGED");
  return damage.empty();
}

}  // namespace

bool list_checkpoints(const std::string& path) {
  check_folder(path);
  const RunFolder run(path);
  bool whole = true;
  std::printf("%12s%16s%12s  %-22s%s\n", "step", "tokens", "size", "written", "mesh");
  for (const int64_t step : run.steps()) {
    const std::string folder = run.path_of(step);
    try {
      const CheckpointState state = read_state(folder);
      std::printf("%12lld%16lld%12s  %-22s%s\n", static_cast<long long>(step),
                  static_cast<long long>(state.tokens), size_text(bytes_in(state)).c_str(),
                  time_of(folder + "/" + kStateName).c_str(), state.mesh.c_str());
    } catch (const Error& error) {
      whole = false;
      std::printf("%12lld  DAMAGED: %s\n", static_cast<long long>(step), error.what());
    }
  }
  return whole;
}

bool is_there(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

std::string checkpoint_in(const std::string& folder) {
  struct stat status {};
  const bool is_run = stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                      stat((folder + "/" + kStateName).c_str(), &status) != 0;
  if (!is_run) return folder;
  const RunFolder run(folder);
  const std::vector<int64_t> steps = run.steps();
  return steps.empty() ? folder : run.path_of(steps.back());
}

bool verify_folder(const VerifyCommand& command) {
  check_folder(command.folder);
  const size_t threads = command.threads > 0 ? static_cast<size_t>(command.threads)
                                             : std::clamp<size_t>(static_cast<size_t>(usable_cores()), 1, 8);
  std::vector<int64_t> steps;
  const RunFolder run(command.folder);
  struct stat status {};
  if (stat((command.folder + "/" + kStateName).c_str(), &status) != 0) steps = run.steps();
  if (steps.empty()) return verify_one(command.folder, threads);
  if (!command.all) steps = {steps.back()};
  bool whole = true;
  for (const int64_t step : steps) {
    try {
      whole = verify_one(run.path_of(step), threads) && whole;
    } catch (const Error& error) {
      whole = false;
      std::fprintf(stderr, "%s\n", error.what());
      std::printf("%s: DAMAGED\n", run.path_of(step).c_str());
    }
  }
  return whole;
}

}  // namespace gangway
