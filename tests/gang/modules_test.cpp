// Modules that are not of this build are refused, and nothing of them stays.
#include "gang/modules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <gangway_build_id.h>
#include "base/error_of.h"
#include "gang/gang.h"
#include "gang/launchers.h"
#include "support/placed.h"

namespace gangway::test {
namespace {

namespace fs = std::filesystem;

// A folder that the library takes modules from; as if a launcher of Open MPI had started this process.
class Modules : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    char path[] = "/tmp/gangway_modules_XXXXXX";
    folder = mkdtemp(path);
    forget_launchers();
    setenv("GANGWAY_MODULES", folder.c_str(), 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  }
  static void TearDownTestSuite() { fs::remove_all(folder); }
  void TearDown() override { fs::remove(module()); }

  static std::string module() { return folder + "/libgangway_openmpi.so"; }
  static void put(const std::string& file) {
    fs::copy_file(file, module() + ".new");
    fs::rename(module() + ".new", module());
  }
  static Error refusal() {
    GangOptions options;
    options.engine = "mpi";
    options.rank = 0;
    options.size = 2;
    return error_of([&] { Gang::create(options); });
  }

  static inline std::string folder;
};

TEST_F(Modules, OneOfAnotherBuildIsRefusedInOneLineWithBothIds) {
  put(placed("@build@/tests/gang/libmodule_one.so"));
  const Error error = refusal();
  EXPECT_EQ(error.code(), Code::invalid_state);
  EXPECT_EQ(error.message(), "engine \"mpi\": " + module() +
                                 " is of build build-one, but this library of build " + kBuildId +
                                 "; install both from one build");
}

TEST_F(Modules, OneThatIsPutInThePlaceOfARefusedOneIsSeen) {
  put(placed("@build@/tests/gang/libmodule_one.so"));
  EXPECT_NE(refusal().message().find("build-one"), std::string::npos);
  put(placed("@build@/tests/gang/libmodule_two.so"));
  EXPECT_NE(refusal().message().find("build-two"), std::string::npos) << refusal().message();
}

TEST_F(Modules, ALibraryThatIsNoModuleIsNotSupported) {
  put(placed("@build@/tests/gang/libmodule_none.so"));
  const Error error = refusal();
  EXPECT_EQ(error.code(), Code::not_supported);
  EXPECT_NE(error.message().find(module() + " is no module of gangway"), std::string::npos)
      << error.message();
}

TEST_F(Modules, AMissingOneIsNotSupportedAndNamed) {
  const Error error = refusal();
  EXPECT_EQ(error.code(), Code::not_supported);
  EXPECT_NE(error.message().find(module()), std::string::npos) << error.message();
}

TEST_F(Modules, EachIsDescribedInOneLine) {
  put(placed("@build@/tests/gang/libmodule_one.so"));
  const std::string lines = describe_modules();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3) << lines;
  EXPECT_NE(lines.find("libgangway_openmpi.so: engine \"mpi\": " + module() + " is of build build-one"),
            std::string::npos)
      << lines;
  EXPECT_NE(lines.find("libgangway_mpich.so: "), std::string::npos) << lines;
  EXPECT_NE(lines.find("libgangway_fabric.so: "), std::string::npos) << lines;
}

}  // namespace
}  // namespace gangway::test
