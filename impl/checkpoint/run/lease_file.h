// The file .lease of a run's folder: what it says, and whether its holder still runs.
//
// Thread rule: pure functions and values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/input_file.h"

namespace gangway {

// Who holds a lease. `attempt` tells the attempts of one job apart: a random id, and the launcher's count of
// restarts if there is one. `boot` and `processes` identify the host and its space of process ids; a process
// is identified by its id and start, since ids are used again.
struct LeaseHolder {
  std::string job, attempt, token, host, boot, processes;
  int64_t process = 0, start = 0;
};

struct FoundLease {
  std::string text;
  FileStamp stamp;
  std::optional<LeaseHolder> holder;  // absent: the text is not that of a lease
};

// Describes this process as a holder, with a new random token.
LeaseHolder own_holder(const std::string& job);
// Returns the text of a lease. INVALID_ARGUMENT: the job's name is not UTF-8.
std::string json_of(const LeaseHolder& holder);
// Returns nothing if there is no lease. IO, also if the folder is gone.
std::optional<FoundLease> read_lease(const std::string& folder, const std::string& path);

// What this process can know about a holder: nothing if it is a process of another host or container.
enum class HolderState : uint8_t { unknown, runs, ended };
HolderState state_of(const LeaseHolder& holder, const LeaseHolder& own);

// Returns the seconds since the lease was renewed; `now` is a time of the same file system.
double age_of(const FoundLease& found, double now);
double seconds_of(const FileStamp& stamp);

// Names job, attempt, process and host.
std::string describe(const FoundLease& found);

}  // namespace gangway
