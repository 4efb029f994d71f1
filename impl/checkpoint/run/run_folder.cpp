#include "checkpoint/run/run_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "base/error.h"
#include "checkpoint/folders.h"
#include "checkpoint/run/state.h"
#include "checkpoint/run/verify.h"

namespace gangway {
namespace {

constexpr std::string_view kComplete = "step-", kWriting = ".writing-", kRemoved = ".removed-",
                           kReplaced = ".replaced-";

std::string digits_of(int64_t step) {
  const std::string digits = std::to_string(step);
  return std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
}

// Returns the number behind `prefix`, up to the end or a '-'; -1 if the name is another one.
int64_t step_of(const std::string& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return -1;
  int64_t step = -1;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), last, step);
  return error == std::errc() && step >= 0 && (end == last || *end == '-') ? step : -1;
}

bool exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

// Returns ".writing-500-1a2b3c4d" and the like.
std::string hidden_name(std::string_view prefix, int64_t step) {
  uint32_t id = 0;
  if (getrandom(&id, sizeof id, 0) != static_cast<ssize_t>(sizeof id))
    fail_system(Code::internal, "run: random numbers", errno);
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", id);
  return std::string(prefix) + std::to_string(step) + "-" + digits;
}

std::string utc_time() {
  const time_t now = ::time(nullptr);
  tm parts{};
  gmtime_r(&now, &parts);
  char out[20];
  strftime(out, sizeof out, "%Y%m%dT%H%M%SZ", &parts);
  return out;
}

void remove(const std::string& path) {
  const int error = remove_tree(AT_FDCWD, path);
  if (error != 0) fail_file("run: removing", path, error);
}

// Makes two folders change places. Returns false if the file system cannot do that in one step.
bool exchange(const std::string& a, const std::string& b) {
  if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  fail_file("run: exchanging " + a + " and", b, errno);
}

// Names the steps that the optimizers of a checkpoint have made. Empty: it has no optimizer, or cannot be
// read.
std::string optimizer_steps_in(const std::string& checkpoint) {
  std::string made;
  try {
    for (const auto& [name, optimizer] : read_state(checkpoint).optimizers)
      made += text(name, " ", optimizer.steps, "\n");
  } catch (const Error&) {  // a damaged checkpoint is like no other
    made.clear();
  }
  return made;
}

}  // namespace

RunFolder::RunFolder(std::string path) : path_(absolute_path(path)), lease_(path_) {
  make_folders(path_);
  if (!is_folder(path_)) fail_file("run: opening", path_, ENOTDIR);
}

bool RunFolder::try_lease(const std::string& job, double stale_seconds) {
  if (!lease_.try_take(job, stale_seconds)) return false;
  put_replaced_back();
  return true;
}
void RunFolder::renew_lease() { lease_.renew(); }
void RunFolder::give_back_lease() { lease_.give_back(); }

std::vector<int64_t> RunFolder::steps() const {
  std::vector<int64_t> all;
  for (const std::string& name : sorted_names(path_)) {
    const int64_t step = step_of(name, kComplete);
    if (step >= 0 && path_ + "/" + name == path_of(step) && is_folder(path_of(step))) all.push_back(step);
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::string RunFolder::path_of(int64_t step) const {
  return path_ + "/" + std::string(kComplete) + digits_of(step);
}

void RunFolder::rename(const std::string& from, const std::string& to) const {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_file("run: renaming " + from + " to", to, errno);
}

// A process may have been killed between the two renames of a commit that had to rename the old checkpoint
// aside.
void RunFolder::put_replaced_back() const {
  bool changed = false;
  for (const std::string& name : sorted_names(path_)) {
    const int64_t step = step_of(name, kReplaced);
    if (step < 0 || exists(path_of(step))) continue;
    rename(path_ + "/" + name, path_of(step));
    changed = true;
  }
  if (changed) sync_folder(path_);
}

void RunFolder::remove_leftovers() const {
  for (const std::string& name : sorted_names(path_))
    for (const std::string_view prefix : {kWriting, kRemoved, kReplaced})
      if (step_of(name, prefix) >= 0) remove(path_ + "/" + name);
}

std::string RunFolder::begin(int64_t step) {
  if (step < 0) fail(Code::invalid_argument, "run: step = ", step, " is negative");
  lease_.check();
  put_replaced_back();
  remove_leftovers();
  const std::string writing = path_ + "/" + hidden_name(kWriting, step);
  if (mkdir(writing.c_str(), 0777) != 0) fail_file("run: making", writing, errno);
  return writing;
}

void RunFolder::commit(int64_t step, const std::string& writing) {
  sync_tree(writing);
  if (!exists(writing + "/" + kStateName))
    fail(Code::invalid_state, "run: ", writing, " has no ", kStateName, " yet, so it is not complete");
  lease_.check();
  const std::string target = path_of(step);
  std::string replaced;
  if (!exists(target)) {
    rename(writing, target);  // the commit
  } else if (exchange(writing, target)) {
    replaced = writing;
  } else {
    replaced = path_ + "/" + hidden_name(kReplaced, step);
    rename(target, replaced);
    if (::rename(writing.c_str(), target.c_str()) != 0) {
      const int error = errno;
      ::rename(replaced.c_str(), target.c_str());
      fail_file("run: renaming " + writing + " to", target, error);
    }
  }
  sync_folder(path_);
  // The checkpoint is complete, whether or not the old one can be removed now; the next begin() tries again.
  if (!replaced.empty()) remove_tree(AT_FDCWD, replaced);
}

// Returns the steps of the complete checkpoints that are not among the `keep` newest ones that count. Of
// several with the same steps of the optimizers the newest counts. The oldest of them stays beside it,
// because skipped steps may have damaged what they do change, such as the buffers of a module.
std::vector<int64_t> RunFolder::old_steps(int keep) const {
  const std::vector<int64_t> all = steps();
  std::vector<int64_t> old;
  if (keep < 1 || all.size() <= static_cast<size_t>(keep)) return old;
  std::vector<std::string> made;
  for (const int64_t step : all) made.push_back(optimizer_steps_in(path_of(step)));
  const auto alike = [&](size_t i, size_t k) { return !made[i].empty() && made[i] == made[k]; };
  int counted = 0;
  for (size_t i = all.size(); i-- > 0;) {
    const bool is_newest = i + 1 == all.size() || !alike(i, i + 1);
    const bool is_oldest = i == 0 || !alike(i, i - 1);
    if (is_newest) ++counted;
    if (counted > keep || !(is_newest || is_oldest)) old.insert(old.begin(), all[i]);
  }
  return old;
}

void RunFolder::remove_old(int keep) {
  lease_.check();
  for (const int64_t step : old_steps(keep)) {
    const std::string removed = path_ + "/" + hidden_name(kRemoved, step);
    rename(path_of(step), removed);
    sync_folder(path_);
    remove(removed);
  }
}

std::vector<std::string> RunFolder::move_aside_newer_than(int64_t step) {
  lease_.check();
  std::vector<int64_t> all = steps();
  const std::string aside = path_ + "/aside-" + utc_time() + "-";
  std::vector<std::string> moved;
  for (; !all.empty() && all.back() > step; all.pop_back()) {
    std::string to = aside + digits_of(all.back());
    for (int i = 2; exists(to); ++i) to = aside + digits_of(all.back()) + "-" + std::to_string(i);
    rename(path_of(all.back()), to);
    moved.insert(moved.begin(), to);
  }
  if (!moved.empty()) sync_folder(path_);
  return moved;
}

void RunFolder::abandon(const std::string& writing) noexcept {
  try {
    if (writing.starts_with(path_ + "/" + std::string(kWriting))) remove_tree(AT_FDCWD, writing);
  } catch (...) {  // the next begin() removes it
  }
}

}  // namespace gangway
