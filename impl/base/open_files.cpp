#include "base/open_files.h"

#include <errno.h>
#include <sys/resource.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace gangway {
namespace {

constexpr size_t kSpare = 16;  // for what the process opens itself meanwhile

size_t open_now() {
  namespace fs = std::filesystem;
  std::error_code error;
  size_t count = 0;
  for (fs::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error))
    ++count;
  return count;
}

}  // namespace

void check_open_files(size_t needed, const std::string& who, const std::string& what_for) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const size_t open = open_now(), least = open + needed + kSpare;
  if (least <= limit.rlim_cur) return;
  limit.rlim_cur = limit.rlim_max;  // which a process may do
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && (limit.rlim_cur == RLIM_INFINITY || least <= limit.rlim_cur))
    return;
  Error error(Code::io,
              text(who, " may have ", limit.rlim_cur, " open files and connections and has ", open, ", but ",
                   what_for, " need ", needed, " more: raise the limit to ", least, " (ulimit -n)"));
  error.system_error = EMFILE;
  throw std::move(error);
}

}  // namespace gangway
