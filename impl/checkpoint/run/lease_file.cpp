#include "checkpoint/run/lease_file.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <stdexcept>

#include "base/error.h"
#include "base/json.h"
#include "base/json_scalars.h"
#include "base/line.h"
#include "base/process.h"
#include "checkpoint/run/state_text.h"

namespace gangway {
namespace {

constexpr uint64_t kLeaseLimit = 1 << 16;  // bytes

std::string random_token() {
  uint64_t numbers[2];
  if (getrandom(numbers, sizeof numbers, 0) != static_cast<ssize_t>(sizeof numbers))
    fail_system(Code::internal, "run: random numbers", errno);
  return hex(numbers[0]) + hex(numbers[1]);
}

// Returns how often the launcher has restarted the job: gangrun's count, or torchrun's; "" if there is none.
std::string restart_count() {
  for (const char* const name : {"GANGWAY_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"}) {
    const char* const count = std::getenv(name);
    if (count == nullptr) continue;
    const std::string digits = count;
    return digits.find_first_not_of("0123456789") == std::string::npos ? digits : "";
  }
  return "";
}

std::optional<LeaseHolder> parse(const std::string& json) {
  try {
    const JsonScalars scalars = find_json_scalars(json).value_or(JsonScalars());
    const auto at = [&](const char* key) -> const JsonValue& { return scalars.at({key, ""}); };
    return LeaseHolder{at("job").text,  at("attempt").text,   at("token").text,      at("host").text,
                       at("boot").text, at("processes").text, at("process").integer, at("start").integer};
  } catch (const std::out_of_range&) {
    return std::nullopt;
  }
}

}  // namespace

double seconds_of(const FileStamp& stamp) {
  return static_cast<double>(stamp.seconds) + 1e-9 * static_cast<double>(stamp.nanoseconds);
}
double age_of(const FoundLease& found, double now) { return now - seconds_of(found.stamp); }

LeaseHolder own_holder(const std::string& job) {
  char host[HOST_NAME_MAX + 1] = "";
  gethostname(host, sizeof host - 1);
  struct stat space {};
  const bool known = stat("/proc/self/ns/pid", &space) == 0;
  LeaseHolder own;
  own.job = job;
  own.token = random_token();
  constexpr size_t kAttemptDigits = 8;  // enough to tell attempts apart, and short enough to read
  const std::string restart = restart_count();
  own.attempt = own.token.substr(0, kAttemptDigits) + (restart.empty() ? "" : ", restart " + restart);
  own.host = host;
  own.boot = hex(boot_time().boot);
  own.processes = known ? std::to_string(space.st_ino) : "";
  own.process = getpid();
  own.start = process_start(getpid());
  return own;
}

std::string json_of(const LeaseHolder& holder) {
  try {
    JsonObject json(2);
    json.add("job", json_scalar(holder.job));
    json.add("attempt", json_scalar(holder.attempt));
    json.add("token", json_scalar(holder.token));
    json.add("host", json_scalar(holder.host));
    json.add("boot", json_scalar(holder.boot));
    json.add("processes", json_scalar(holder.processes));
    json.add("process", std::to_string(holder.process));
    json.add("start", std::to_string(holder.start));
    return std::move(json).close() + "\n";
  } catch (const NotUtf8&) {
    fail(Code::invalid_argument, "run: the job's name ", printable(holder.job), " is not UTF-8");
  }
}

std::optional<FoundLease> read_lease(const std::string& folder, const std::string& path) {
  try {
    const InputFile file(path);
    FoundLease found{file.read_all(kLeaseLimit), file.opened(), {}};
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

HolderState state_of(const LeaseHolder& holder, const LeaseHolder& own) {
  if (holder.boot != own.boot || holder.processes != own.processes || own.processes.empty())
    return HolderState::unknown;
  const auto process = static_cast<pid_t>(holder.process);
  if (process <= 0) return HolderState::unknown;
  const int64_t start = process_start(process);
  if (start == 0) {  // there is no such process, or the kernel hides it
    const int found = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
    if (found < 0) return errno == ESRCH ? HolderState::ended : HolderState::unknown;
    close(found);
    return HolderState::unknown;
  }
  // A process that has ended but whose parent has not yet asked for its status has no memory.
  constexpr int kVirtualMemory = 23;
  if ((holder.start != 0 && start != holder.start) || process_stat(process, kVirtualMemory) == 0)
    return HolderState::ended;
  return holder.start == 0 ? HolderState::unknown : HolderState::runs;
}

std::string describe(const FoundLease& found) {
  if (!found.holder) return "an unknown job (its lease cannot be read)";
  const LeaseHolder& holder = *found.holder;
  return text("job ", printable(holder.job), " (attempt ", holder.attempt, "; process ", holder.process,
              " of host ", holder.host, ")");
}

}  // namespace gangway
