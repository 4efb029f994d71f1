#include "checkpoint/run/lease.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/folders.h"
#include "checkpoint/input_file.h"
#include "checkpoint/output_file.h"

namespace gangway {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeaseTries = 100;
constexpr auto kLeasePause = std::chrono::milliseconds(10);  // while another job removes a stale lease
const std::string kName = "/.lease";

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

// The right to remove a stale lease, which only one job has at a time: otherwise a slow job could remove the
// lease that a faster one has made in its place.
class Takeover {
 public:
  // Tries to get the right. It is void if its holder has ended, or is older than the moment that it needs.
  Takeover(const std::string& folder, const std::string& path, const LeaseHolder& own, double now)
      : path_(path) {
    const std::optional<FoundLease> found = read_lease(folder, path_);
    const bool ended = found && found->holder && state_of(*found->holder, own) == HolderState::ended;
    if (ended || (found && age_of(*found, now) > kMostSeconds)) unlink(path_.c_str());
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
void remove_stale(const FoundLease& stale, const std::string& folder, const std::string& path,
                  const std::string& aside) {
  std::optional<FoundLease> found = read_lease(folder, path);
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

bool Lease::try_take(const std::string& job, double stale_seconds) {
  if (!token_.empty()) fail(Code::invalid_state, "run: this object already holds the lease of ", folder_);
  const LeaseHolder own = own_holder(job);
  const std::string mine = path() + "-" + own.token;
  const TemporaryName remove_at_end(mine);
  const std::string json = json_of(own);
  if (!write_if_missing(mine, json)) fail_file("run: making", mine, EEXIST);
  // Both time stamps are those of the file system, whose clock may differ from this host's.
  const double now = seconds_of(InputFile(mine).opened());
  for (int i = 0; i < kLeaseTries; ++i) {
    if (put_into_place(mine, json)) {
      token_ = own.token;
      process_ = getpid();
      sync_folder(folder_);
      remove_leftovers(now, stale_seconds);
      return true;
    }
    const std::optional<FoundLease> found = read_lease(folder_, path());
    if (!found) continue;  // it was given back meanwhile
    if (!is_void(*found, own, now, stale_seconds)) return false;
    const Takeover takeover(folder_, path() + "-takeover", own, now);
    if (takeover.held())
      remove_stale(*found, folder_, path(), mine + "-stale");
    else
      std::this_thread::sleep_for(kLeasePause);
  }
  fail(Code::invalid_state, "run: the lease of ", folder_, " has changed hands ", kLeaseTries,
       " times meanwhile; several jobs want the folder");
}

// The age by time stamps is wrong if a clock was set; a lease that this object has seen unchanged for
// `stale_seconds` is stale, too, so that every wait ends.
bool Lease::is_void(const FoundLease& found, const LeaseHolder& own, double now, double stale_seconds) {
  const HolderState state = found.holder ? state_of(*found.holder, own) : HolderState::unknown;
  const double age = age_of(found, now);
  if (state == HolderState::ended || age >= stale_seconds) return true;
  const auto shown = [](double seconds) { return std::max(0., std::round(seconds * 10) / 10); };
  const std::string sign = text(describe(found), ", whose last sign is ", shown(age), " s old");
  const bool is_renewed = seen_ && (seen_->text != found.text || !(seen_->stamp == found.stamp));
  if (state == HolderState::runs || is_renewed)
    fail(Code::invalid_state, "run: ", folder_, " is in use by ", sign,
         "; end that job, or choose another folder");
  if (seen_) return Clock::now() - seen_since_ >= std::chrono::duration<double>(stale_seconds);
  seen_ = found;
  seen_since_ = Clock::now();
  log(LogLevel::warning,
      text("run: ", folder_, " is in use by ", sign, "; waiting up to ",
           shown(std::min(stale_seconds - age, stale_seconds)), " s until its lease ends or is renewed"));
  return false;
}

void Lease::check() const {
  if (token_.empty()) fail(Code::invalid_state, "run: ", folder_, ": take the lease first");
  const std::optional<FoundLease> found = read_lease(folder_, path());
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
  const std::optional<FoundLease> found = read_lease(folder_, path());
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
