#include "base/new_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error_of.h"
#include "base/tracer.h"
#include "support/scratch.h"

namespace gangway {
namespace {

namespace fs = std::filesystem;

// A folder in which a link lies in the place of a file. Its target must keep its bytes.
class NewFile : public testing::Test {
 protected:
  NewFile() { std::ofstream(target()) << "whole"; }
  ~NewFile() override { EXPECT_EQ(text_of(target()), "whole"); }
  std::string target() const { return folder_ + "/target"; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  static std::string text_of(const std::string& path) {
    std::ifstream in(path);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

  template <typename Call>
  static void expect_refused(Call&& call) {
    const Error error = test::error_of(call);
    EXPECT_EQ(error.code(), Code::io);
    EXPECT_NE(error.message().find("a symbolic link is not followed"), std::string::npos) << error.message();
  }

  const Scratch scratch_;
  const std::string folder_ = scratch_.path();
};

TEST_F(NewFile, ReplacesOrContinuesAFile) {
  write_new_file("test: writing", path("a"), "first line\n");
  write_new_file("test: writing", path("a"), "second\n");
  EXPECT_EQ(text_of(path("a")), "second\n");
  const int file = open_new_file("test: opening", path("a"), O_APPEND);
  EXPECT_EQ(write(file, "third\n", 6), 6);
  close(file);
  EXPECT_EQ(text_of(path("a")), "second\nthird\n");
  write_new_file("test: writing", path("empty"), "");
  EXPECT_EQ(text_of(path("empty")), "");
}

TEST_F(NewFile, ALinkIsRefusedAndItsTargetKeepsItsBytes) {
  fs::create_symlink(target(), path("link"));
  fs::create_symlink(path("nothing"), path("dangling"));
  expect_refused([&] { write_new_file("test", path("link"), "evil"); });
  expect_refused([&] { open_new_file("test", path("link"), O_APPEND); });
  expect_refused([&] { write_new_file("test", path("dangling"), "evil"); });
  EXPECT_FALSE(fs::exists(path("nothing")));
}

TEST_F(NewFile, ATraceFollowsNoLink) {
  fs::create_symlink(target(), path("rank-3.json"));
  Tracer tracer;
  expect_refused([&] { tracer.begin(folder_, 1, 3, 4, 0); });
  EXPECT_FALSE(tracer.on());
  fs::remove(path("rank-3.json"));
  tracer.begin(folder_, 1, 3, 4, 0);
  tracer.end();
  EXPECT_NE(text_of(path("rank-3.json")), "");
}

}  // namespace
}  // namespace gangway
