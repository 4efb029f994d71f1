#include "checkpoint/run/direct_file.h"

#include <fcntl.h>

#include <cerrno>

#include "base/error.h"

namespace gangway {

void DirectFile::open(const std::string& path) {
  path_ = path;
  file_.open(path, O_WRONLY);
}

void DirectFile::write(uint64_t offset, const void* data, size_t bytes) {
  const char* const from = static_cast<const char*>(data);
  const uint64_t first = (offset + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
  const uint64_t last = (offset + bytes) / kDirectAlignment * kDirectAlignment;
  const bool is_aligned = (reinterpret_cast<uintptr_t>(data) - offset) % kDirectAlignment == 0;
  if (!is_aligned || last < first + kLeastDirectBytes ||
      !write_directly(first, from + (first - offset), last - first))
    return file_.write(offset, data, bytes);
  file_.write(offset, data, first - offset);
  file_.write(last, from + (last - offset), offset + bytes - last);
}

// Returns false, and from then on always, if the file system refuses direct writes.
bool DirectFile::write_directly(uint64_t offset, const void* data, size_t bytes) {
  if (!may_be_direct_) return false;
  try {
    if (direct_.descriptor() < 0) direct_.open(path_, O_WRONLY | O_DIRECT);
    direct_.write(offset, data, bytes);
  } catch (const Error& error) {
    if (error.system_error != EINVAL && error.system_error != EOPNOTSUPP) throw;
    may_be_direct_ = false;
  }
  return may_be_direct_;
}

void DirectFile::close() {
  if (direct_.descriptor() >= 0) direct_.close();
  file_.close();
}

}  // namespace gangway
