// Large pieces go past the page cache, and whatever the file system refuses, the file has the bytes.
#include "checkpoint/run/direct_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/expect_error.h"
#include "checkpoint/file_calls.h"
#include "checkpoint/run/small_checkpoint.h"

namespace gangway::test {
namespace {

constexpr size_t kPage = kDirectAlignment, kLarge = kLeastDirectBytes + 2 * kPage;

class Direct : public ::testing::Test {
 protected:
  Direct() {
    for (size_t i = 0; i < kLarge + kPage; ++i) memory_.get()[i] = static_cast<char>(i * 7 + i / 251);
  }
  ~Direct() override { set_before_call(nullptr); }

  // Writes `bytes` bytes at `offset` from memory that is `shift` bytes off the place in the file. Returns the
  // offsets of the system's writes, in their order.
  std::vector<int64_t> write(uint64_t offset, size_t bytes, size_t shift, int64_t fails_at = -1,
                             int error = 0) {
    std::vector<int64_t> offsets;
    write_all(path_, "");
    set_before_call([&](const std::string& call, int64_t at) {
      if (call == "pwrite") offsets.push_back(at);
      return call == "pwrite" && at == fails_at && error != 0 && std::exchange(fails_at, -1) >= 0 ? error : 0;
    });
    DirectFile file;
    file.open(path_);
    const char* const from = memory_.get() + offset % kPage + shift;
    file.write(offset, from, bytes);
    file.sync();
    file.close();
    set_before_call(nullptr);
    EXPECT_TRUE(read_all(path_) == (bytes == 0 ? "" : std::string(offset, '\0') + std::string(from, bytes)));
    return offsets;
  }
  bool is_possible() const {
    write_all(path_, "");
    const int file = open(path_.c_str(), O_WRONLY | O_DIRECT);
    if (file >= 0) close(file);
    return file >= 0;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/file";
  const std::unique_ptr<char, void (*)(void*)> memory_{
      static_cast<char*>(std::aligned_alloc(kPage, kLarge + 2 * kPage)), std::free};
};

using Offsets = std::vector<int64_t>;

TEST_F(Direct, ALargePieceIsOneWriteAndItsTwoEnds) {
  if (!is_possible()) GTEST_SKIP() << "this file system has no direct writes";
  EXPECT_EQ(write(100, kLarge, 0), (Offsets{kPage, 100, 100 + kLarge - (100 + kLarge) % kPage}));
}

TEST_F(Direct, WhatIsNotAlignedOrIsSmallGoesThroughThePageCache) {
  EXPECT_EQ(write(100, kLarge, 1), Offsets{100});
  EXPECT_EQ(write(100, kLeastDirectBytes, 0), Offsets{100});
  EXPECT_EQ(write(4097, 1, 0), Offsets{4097});
  EXPECT_EQ(write(0, 0, 0), Offsets{});
}

TEST_F(Direct, AFileSystemThatRefusesIsWrittenThroughThePageCache) {
  if (!is_possible()) GTEST_SKIP() << "this file system has no direct writes";
  EXPECT_EQ(write(100, kLarge, 0, kPage, EINVAL), (Offsets{kPage, 100}));
}

TEST_F(Direct, AFullDiskIsAnError) {
  if (!is_possible()) GTEST_SKIP() << "this file system has no direct writes";
  const Error error = error_of([&] { write(100, kLarge, 0, kPage, ENOSPC); });
  EXPECT_EQ(error.code(), Code::io);
  EXPECT_EQ(error.system_error, ENOSPC);
}

}  // namespace
}  // namespace gangway::test
