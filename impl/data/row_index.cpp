#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "data/document_rows.h"

namespace gangway::data {
namespace {

constexpr char kMagic[9] = "GWROWS1\n";
// The magic number, tokens, end of documents, sequence, regions; then the rows, 8 bytes for each region.
using Header = std::array<uint64_t, 5>;

Header header_of(const TokenFile& tokens, const RowOptions& options, uint64_t regions) {
  Header header = {0, tokens.count, static_cast<uint64_t>(options.document_end),
                   static_cast<uint64_t>(options.sequence), regions};
  std::memcpy(header.data(), kMagic, 8);
  return header;
}

std::pair<int64_t, int64_t> changed(const FileFacts& file) { return {file.changed_s, file.changed_ns}; }

bool is_newer(const std::string& path, const FileFacts& index) {
  return is_file(path) && changed(file_facts(path)) > changed(index);
}

bool write_all(int descriptor, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = write(descriptor, from, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    from += put;
    bytes -= static_cast<size_t>(put);
  }
  return true;
}

// A write beyond the limit of file sizes would end the process (SIGXFSZ).
bool is_allowed(size_t bytes) {
  struct rlimit limit {};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && (limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur);
}

}  // namespace

std::string row_index_path(const TokenFile& tokens, const RowOptions& options) {
  const std::string end = options.document_end >= 0 ? text("-end", options.document_end) : "";
  return text(tokens.file.path, ".rows", options.sequence, end);
}

std::vector<uint64_t> read_row_index(const TokenFile& tokens, const RowOptions& options, uint64_t regions) {
  const std::string path = row_index_path(tokens, options);
  if (!is_file(path)) return {};
  const FileFacts file = file_facts(path);
  std::vector<uint64_t> ends(static_cast<size_t>(regions));
  const Header wanted = header_of(tokens, options, regions);
  Header header{};
  if (file.bytes != sizeof header + ends.size() * 8 || is_newer(tokens.file.path, file) ||
      is_newer(documents_path(tokens.file.path), file))
    return {};
  OpenFiles files;
  files.read(file, 0, header.data(), sizeof header);
  if (header != wanted) return {};
  files.read(file, sizeof header, ends.data(), ends.size() * 8);
  for (size_t i = 0; i < ends.size(); ++i)
    if (ends[i] <= (i > 0 ? ends[i - 1] : 0)) return {};
  return ends;
}

bool keep_row_index(const TokenFile& tokens, const RowOptions& options, const std::vector<uint64_t>& ends) {
  const std::string path = row_index_path(tokens, options);
  const Header header = header_of(tokens, options, ends.size());
  if (!is_allowed(sizeof header + ends.size() * 8)) return false;
  // Ranks may do the same at the same time. Each writes a file of its own, and the last rename stays.
  std::string temporary = path + ".XXXXXX";
  const int descriptor = mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool written = fchmod(descriptor, 0644) == 0 && write_all(descriptor, header.data(), sizeof header) &&
                       write_all(descriptor, ends.data(), ends.size() * 8);
  const bool closed = close(descriptor) == 0;
  if (written && closed && rename(temporary.c_str(), path.c_str()) == 0) return true;
  unlink(temporary.c_str());
  return false;
}

}  // namespace gangway::data
