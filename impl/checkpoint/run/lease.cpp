#include "checkpoint/run/lease.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "base/process.h"
#include "checkpoint/folders.h"
#include "checkpoint/header_json.h"
#include "checkpoint/input_file.h"
#include "checkpoint/json_scalars.h"
#include "checkpoint/json_text.h"
#include "checkpoint/output_file.h"
#include "checkpoint/run/state_text.h"

namespace gangway {
namespace {

constexpr int kTries = 100;
constexpr auto kPause = std::chrono::milliseconds(10);  // while another job removes a stale lease
constexpr uint64_t kLeaseLimit = 1 << 16;               // bytes
const std::string kName = "/.lease";

// Who holds a lease. `boot` and `processes` identify the host and its space of process ids; a process is
// identified by its id and start, since ids are used again.
struct Holder {
  std::string job, token, host, boot, processes;
  int64_t process = 0, start = 0;
};

struct Found {
  std::string text;
  FileStamp stamp;
  std::optional<Holder> holder;  // absent: the text is not that of a lease
};

double seconds_of(const FileStamp& stamp) {
  return static_cast<double>(stamp.seconds) + 1e-9 * static_cast<double>(stamp.nanoseconds);
}

std::string random_token() {
  uint64_t numbers[2];
  if (getrandom(numbers, sizeof numbers, 0) != static_cast<ssize_t>(sizeof numbers))
    fail_system(Code::internal, "run: random numbers", errno);
  return hex(numbers[0]) + hex(numbers[1]);
}

Holder own_holder(const std::string& job) {
  char host[HOST_NAME_MAX + 1] = "";
  gethostname(host, sizeof host - 1);
  struct stat space {};
  const bool known = stat("/proc/self/ns/pid", &space) == 0;
  return {job,
          random_token(),
          host,
          hex(boot_time().boot),
          known ? std::to_string(space.st_ino) : "",
          getpid(),
          process_start(getpid())};
}

std::string json_of(const Holder& holder) {
  try {
    JsonObject json(2);
    json.add("job", json_scalar(holder.job));
    json.add("token", json_scalar(holder.token));
    json.add("host", json_scalar(holder.host));
    json.add("boot", json_scalar(holder.boot));
    json.add("processes", json_scalar(holder.processes));
    json.add("process", std::to_string(holder.process));
    json.add("start", std::to_string(holder.start));
    return std::move(json).close() + "\n";
  } catch (const nlohmann::json::exception&) {
    fail(Code::invalid_argument, "run: the job's name ", printable(holder.job), " is not UTF-8");
  }
}

std::optional<Holder> parse(const std::string& json) {
  try {
    const JsonScalars scalars = read_json_scalars(json, "lease");
    const auto at = [&](const char* key) -> const JsonValue& { return scalars.at({key, ""}); };
    return Holder{at("job").text,       at("token").text,      at("host").text,    at("boot").text,
                  at("processes").text, at("process").integer, at("start").integer};
  } catch (const std::out_of_range&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Returns nothing if there is no lease. A folder that is gone is IO.
std::optional<Found> read_lease(const std::string& folder, const std::string& path) {
  try {
    const InputFile file(path);
    Found found{file.read_all(kLeaseLimit), file.opened(), {}};
    found.holder = parse(found.text);
    return found;
  } catch (const Error& error) {
    // ESTALE: a network file system has found the file replaced.
    if (error.system_error != ENOENT && error.system_error != ESTALE) throw;
  }
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) fail_file("run: reading", folder, errno);
  return std::nullopt;
}

// Returns whether the holder was a process of this host that has ended. If that cannot be known, it has not.
bool has_ended(const Holder& holder, const Holder& own) {
  if (holder.boot != own.boot || holder.processes != own.processes || own.processes.empty()) return false;
  const auto process = static_cast<pid_t>(holder.process);
  if (process <= 0) return false;
  const int64_t start = process_start(process);
  if (start == 0) {  // there is no such process, or the kernel hides it
    const int found = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
    if (found < 0) return errno == ESRCH;
    close(found);
    return false;
  }
  // A process that has ended but whose parent has not yet asked for its status has no memory.
  constexpr int kVirtualMemory = 23;
  return (holder.start != 0 && start != holder.start) || process_stat(process, kVirtualMemory) == 0;
}

std::string describe(const Found& found) {
  if (!found.holder) return "an unknown job (its lease cannot be read)";
  return text("job ", printable(found.holder->job), " (process ", found.holder->process, " of host ",
              found.holder->host, ")");
}

// A file that is removed at the end of a scope.
class TemporaryName {
 public:
  explicit TemporaryName(std::string path) : path_(std::move(path)) {}
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;
  ~TemporaryName() { unlink(path_.c_str()); }

 private:
  std::string path_;
};

// Writes a new file. Returns false if there is one of this name.
bool write_if_missing(const std::string& path, const std::string& bytes) {
  OutputFile file;
  try {
    file.open(path, O_WRONLY | O_CREAT | O_EXCL);
  } catch (const Error& error) {
    if (error.system_error == EEXIST) return false;
    throw;
  }
  file.write(0, bytes.data(), bytes.size());
  file.sync();
  file.close();
  return true;
}

bool means_no_hard_links(int error) { return error == EPERM || error == EOPNOTSUPP || error == ENOSYS; }

double age_of(const Found& found, double now) { return now - seconds_of(found.stamp); }

// The right to remove a stale lease, which only one job has at a time: otherwise a slow job could remove the
// lease that a faster one has made in its place.
class Takeover {
 public:
  // Tries to get the right. It is void if its holder has ended, or is older than the moment that it needs.
  Takeover(const std::string& folder, const std::string& path, const Holder& own, double now) : path_(path) {
    const std::optional<Found> found = read_lease(folder, path_);
    if (found && ((found->holder && has_ended(*found->holder, own)) || age_of(*found, now) > kMostSeconds))
      unlink(path_.c_str());
    held_ = write_if_missing(path_, json_of(own));
  }
  Takeover(const Takeover&) = delete;
  Takeover& operator=(const Takeover&) = delete;
  ~Takeover() {
    if (held_) unlink(path_.c_str());
  }
  bool held() const { return held_; }

 private:
  static constexpr double kMostSeconds = 5;

  std::string path_;
  bool held_ = false;
};

// Renames a stale lease away and removes it. If it is another one after all, puts it back.
void remove_stale(const Found& stale, const std::string& folder, const std::string& path,
                  const std::string& aside) {
  std::optional<Found> found = read_lease(folder, path);
  if (!found || found->text != stale.text || !(found->stamp == stale.stamp)) return;
  if (::rename(path.c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return;
    fail_file("run: removing the stale lease", path, errno);
  }
  const TemporaryName moved(aside);
  found = read_lease(folder, aside);
  if (!found || found->text == stale.text) return;
  if (linkat(AT_FDCWD, aside.c_str(), AT_FDCWD, path.c_str(), 0) == 0 || errno == EEXIST) return;
  if (!means_no_hard_links(errno) || ::rename(aside.c_str(), path.c_str()) != 0)
    fail_file("run: putting back the lease", path, errno);
}

}  // namespace

Lease::~Lease() {
  try {
    give_back();
  } catch (...) {  // the lease becomes stale by itself
  }
}

std::string Lease::path() const { return folder_ + kName; }

bool Lease::put_into_place(const std::string& mine, const std::string& text) const {
  if (linkat(AT_FDCWD, mine.c_str(), AT_FDCWD, path().c_str(), 0) == 0) return true;
  const int error = errno;
  // A network file system may have lost its answer to a link that it made; then the file has two names.
  struct stat status {};
  if (stat(mine.c_str(), &status) == 0 && status.st_nlink == 2) return true;
  if (error == EEXIST) return false;
  if (means_no_hard_links(error)) return write_if_missing(path(), text);
  fail_file("run: making the lease", path(), error);
}

void Lease::take(const std::string& job, double stale_seconds) {
  if (!token_.empty()) fail(Code::invalid_state, "run: this object already holds the lease of ", folder_);
  const Holder own = own_holder(job);
  const std::string mine = path() + "-" + own.token;
  const TemporaryName remove_at_end(mine);
  const std::string json = json_of(own);
  if (!write_if_missing(mine, json)) fail_file("run: making", mine, EEXIST);
  // Both time stamps are those of the file system, whose clock may differ from this host's.
  const double now = seconds_of(InputFile(mine).opened());
  for (int i = 0; i < kTries; ++i) {
    if (put_into_place(mine, json)) {
      token_ = own.token;
      process_ = getpid();
      sync_folder(folder_);
      return remove_leftovers(now, stale_seconds);
    }
    const std::optional<Found> found = read_lease(folder_, path());
    if (!found) continue;  // it was given back meanwhile
    const double age = age_of(*found, now);
    if (age < stale_seconds && !(found->holder && has_ended(*found->holder, own)))
      fail(Code::invalid_state, "run: ", folder_, " is in use by ", describe(*found), ", whose last sign is ",
           std::max(0., std::round(age * 10) / 10), " s old; end that job, or choose another folder (after ",
           stale_seconds, " s without a sign the lease is void)");
    const Takeover takeover(folder_, path() + "-takeover", own, now);
    if (takeover.held())
      remove_stale(*found, folder_, path(), mine + "-stale");
    else
      std::this_thread::sleep_for(kPause);
  }
  fail(Code::invalid_state, "run: the lease of ", folder_, " has changed hands ", kTries,
       " times meanwhile; several jobs want the folder");
}

void Lease::check() const {
  if (token_.empty()) fail(Code::invalid_state, "run: ", folder_, ": take the lease first");
  const std::optional<Found> found = read_lease(folder_, path());
  if (!found)
    fail(Code::invalid_state, "run: the lease of ", folder_,
         " is gone; another job has taken it and given it back, or somebody removed it");
  if (!found->holder || found->holder->token != token_)
    fail(Code::invalid_state, "run: ", describe(*found), " has taken the lease of ", folder_,
         "; this job did not renew it in time and must not write there any more");
}

void Lease::renew() {
  check();
  if (utimensat(AT_FDCWD, path().c_str(), nullptr, 0) != 0)
    fail_file("run: renewing the lease", path(), errno);
}

void Lease::give_back() {
  if (token_.empty()) return;
  const std::string token = std::exchange(token_, "");
  if (process_ != getpid()) return;  // a forked child
  const std::optional<Found> found = read_lease(folder_, path());
  if (!found || !found->holder || found->holder->token != token) return;
  if (unlink(path().c_str()) != 0 && errno != ENOENT) fail_file("run: giving back the lease", path(), errno);
}

// Removes what processes left that were killed while they took a lease.
void Lease::remove_leftovers(double now, double seconds) const {
  for (const std::string& name : sorted_names(folder_)) {
    if (!name.starts_with(kName.substr(1) + "-")) continue;
    const std::string left = folder_ + "/" + name;
    struct stat status {};
    if (stat(left.c_str(), &status) == 0 && now - static_cast<double>(status.st_mtim.tv_sec) > seconds)
      unlink(left.c_str());
  }
}

}  // namespace gangway
