// The system calls by which files are changed or read, as seen by the code under test: a program with
// file_calls.cpp has its own, which ask a hook first.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace gangway::test {

// Asked before each of mkdir, mkdirat, linkat, symlinkat, rename, renameat, renameat2, unlink, unlinkat,
// fsync, fallocate, pwrite and pread (with its offset, else 0), on any thread. Not 0: the call fails with
// that errno. Null: none.
using BeforeCall = std::function<int(const std::string& call, int64_t offset)>;
void set_before_call(BeforeCall hook);

}  // namespace gangway::test
