#include "mesh/mesh.h"

#include <gtest/gtest.h>

#include <set>

#include "base/expect_error.h"

namespace gangway {
namespace {

using test::expect_error;
using Groups = std::vector<std::vector<int>>;

MeshOptions degrees(int pp, int rep, int shard, int cp, int tp) { return {pp, rep, shard, cp, tp}; }

TEST(Mesh, EightRanksWithTensorParallelTwo) {
  MeshOptions options;
  options.tp = 2;
  const Mesh mesh = Mesh::resolve(options, 8);
  EXPECT_EQ(mesh.groups(axis_bit(Axis::tp)), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(mesh.groups(kDataAxes), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(mesh.degree(Axis::dp_shard), 4);
}

TEST(Mesh, RanksFollowTheFormula) {
  const Mesh mesh = Mesh::resolve(degrees(2, 3, 2, 2, 3), 72);
  std::set<int> seen;
  for (int pp = 0; pp < 2; ++pp)
    for (int rep = 0; rep < 3; ++rep)
      for (int shard = 0; shard < 2; ++shard)
        for (int cp = 0; cp < 2; ++cp)
          for (int tp = 0; tp < 3; ++tp) {
            const int rank = (((pp * 3 + rep) * 2 + shard) * 2 + cp) * 3 + tp;
            EXPECT_EQ(mesh.rank({pp, rep, shard, cp, tp}), rank);
            EXPECT_EQ(mesh.coordinates(rank), (Coordinates{pp, rep, shard, cp, tp}));
            seen.insert(rank);
          }
  EXPECT_EQ(seen.size(), 72u);
}

TEST(Mesh, ProductsOfAxesKeepTheMeshsOrder) {
  const Mesh mesh = Mesh::resolve(degrees(1, 2, 2, 2, 1), 8);
  EXPECT_EQ(parse_axes("cp+dp_shard"), parse_axes("dp_shard+cp"));
  EXPECT_EQ(mesh.groups(parse_axes("cp+dp_shard")), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(mesh.groups(parse_axes("cp+dp_replicate")), (Groups{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(axes_text(parse_axes("cp+tp+pp")), "pp+cp+tp");
  EXPECT_EQ(parse_axes("dp"), parse_axes("dp_replicate+dp_shard"));
  EXPECT_EQ(parse_axes("sdp+rdp"), kDataAxes);
  EXPECT_EQ(mesh.without_trivial_axes(kAllAxes), parse_axes("dp+cp"));
}

TEST(Mesh, OneDegreeIsAuto) {
  EXPECT_EQ(Mesh::resolve(degrees(2, 1, -1, 1, 2), 8).degree(Axis::dp_shard), 2);
  EXPECT_EQ(Mesh::resolve(degrees(-1, 1, 2, 2, 2), 8).degree(Axis::pp), 1);
  EXPECT_EQ(Mesh::resolve(degrees(1, 1, 1, 1, -1), 7).degree(Axis::tp), 7);
  EXPECT_EQ(Mesh::resolve(MeshOptions{}, 1).size(), 1);
}

TEST(Mesh, RefusalsPrintTheWholeEquation) {
  const auto resolve = [](MeshOptions options, int size) {
    return [options, size] { Mesh::resolve(options, size); };
  };
  expect_error(Code::invalid_argument,
               "pp 2 x dp_replicate 1 x dp_shard 3 x cp 1 x tp 2 = 12, but the root gang has 8 ranks",
               resolve(degrees(2, 1, 3, 1, 2), 8));
  expect_error(
      Code::invalid_argument,
      "pp 1 x dp_replicate 1 x dp_shard auto x cp 1 x tp 3 = 3 x auto, but the root gang has 8 ranks",
      resolve(degrees(1, 1, -1, 1, 3), 8));
  expect_error(Code::invalid_argument,
               "pp 1 x dp_replicate 1 x dp_shard 1 x cp 1 x tp 1 = 1, but the root gang has 8 ranks",
               resolve(degrees(1, 1, 1, 1, 1), 8));
  expect_error(Code::invalid_argument, "mesh: at most one degree is auto, but dp_shard and tp are",
               resolve(degrees(1, 1, -1, 1, -1), 8));
  expect_error(Code::invalid_argument,
               "mesh: cp is 0, but a degree is at least 1, or -1 for what the others leave",
               resolve(degrees(1, 1, -1, 0, 1), 8));
  expect_error(Code::invalid_argument,
               "mesh: pp is -2, but a degree is at least 1, or -1 for what the others leave",
               resolve(degrees(-2, 1, -1, 1, 1), 8));
  const auto parse = [](const char* axes) { return [axes] { parse_axes(axes); }; };
  expect_error(Code::invalid_argument,
               "axis \"ep\" in \"dp_shard+ep\" is unknown (pp, dp_replicate, dp_shard, cp, tp; dp, rdp, sdp)",
               parse("dp_shard+ep"));
  expect_error(Code::invalid_argument, "axis \"cp\" in \"cp+tp+cp\" is named twice", parse("cp+tp+cp"));
  expect_error(Code::invalid_argument, "axis \"dp\" in \"dp_shard+dp\" is named twice", parse("dp_shard+dp"));
  for (const char* empty : {"", "cp+", "+cp"})
    expect_error(Code::invalid_argument,
                 "axis \"\" in \"" + std::string(empty) +
                     "\" is unknown (pp, dp_replicate, dp_shard, cp, tp; dp, rdp, sdp)",
                 parse(empty));
}

TEST(Mesh, HugeDegreesDoNotOverflow) {
  const int big = INT32_MAX;
  EXPECT_EQ(test::error_of([&] { Mesh::resolve(degrees(big, big, big, big, big), 8); }).code(),
            Code::invalid_argument);
}

}  // namespace
}  // namespace gangway
