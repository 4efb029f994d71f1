// Rows as text, the files that a run continues, and the picture of the losses.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "metrics/log_files.h"
#include "metrics/loss_curve.h"
#include "metrics/loss_svg.h"
#include "metrics/row.h"

namespace gangway {
namespace {

namespace fs = std::filesystem;
using Format = LogFile::Format;

class MetricsFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("gangway-metrics-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return folder_ / name; }
  static std::string contents(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  static MetricsRow row(int64_t step, double loss) {
    MetricsRow r;
    r.step = step;
    r.loss = loss;
    return r;
  }
  static std::vector<LogFile::Point> points(const LogFile& file) {
    std::vector<LogFile::Point> all;
    file.for_each_point([&](const LogFile::Point& point) { all.push_back(point); });
    return all;
  }
  static std::vector<int64_t> steps(const LogFile& file) {
    std::vector<int64_t> all;
    for (const LogFile::Point& point : points(file)) all.push_back(point.step);
    return all;
  }
  fs::path folder_;
};

TEST_F(MetricsFiles, AJsonLineLeavesOutAbsentValues) {
  MetricsRow r = row(3, 0.1);
  r.lr = 3e-4;
  const std::string line = json_line(r);
  EXPECT_EQ(line.find("{\"step\": 3, \"tokens\": 0, \"samples\": 0, \"loss\": 0.1, \"lr\": 0.0003, "), 0u)
      << line;
  EXPECT_EQ(line.find("validation_loss"), std::string::npos);
}

TEST_F(MetricsFiles, ALossThatIsNotFiniteIsNull) {
  EXPECT_NE(json_line(row(3, std::nan(""))).find("\"loss\": null, "), std::string::npos);
}

TEST_F(MetricsFiles, ALinkIsRefusedAndItsTargetKeepsItsBytes) {
  for (const Format format : {Format::json_lines, Format::csv}) {
    std::ofstream(path("target")) << "no line break";
    fs::create_symlink(path("target"), path("link"));
    EXPECT_THROW(LogFile(path("link"), format), Error);
    EXPECT_EQ(contents(path("target")), "no line break");
    fs::remove(path("link"));
  }
}

TEST_F(MetricsFiles, AFifoIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(path("a.jsonl").c_str(), 0600), 0);
  EXPECT_THROW(LogFile(path("a.jsonl"), Format::json_lines), Error);
}

// A cut reads the file from its end, in blocks of 64 KiB: here lines lie across their bounds.
TEST_F(MetricsFiles, ACutOfALongFileRemovesTheLaterLinesAlone) {
  for (const Format format : {Format::json_lines, Format::csv}) {
    const std::string name = path(format == Format::csv ? "long.csv" : "long.jsonl");
    std::string whole;
    {
      LogFile file(name, format);
      for (int64_t step = 1; step <= 3000; ++step) {
        file.append(row(step, 1.0 / static_cast<double>(step)));
        if (step == 700) whole = contents(name);
      }
      EXPECT_EQ(file.last_step(), 3000);
    }
    std::ofstream(name, std::ios::app) << "a line that a kill cut short";
    LogFile file(name, format);
    file.cut_after(700);
    EXPECT_EQ(contents(name), whole);
    EXPECT_EQ(file.last_step(), 700);
    file.cut_after(0);
    EXPECT_EQ(file.last_step(), -1);
  }
}

TEST_F(MetricsFiles, ANumberOfALineHasAllItsBits) {
  LogFile file(path("a.jsonl"), Format::json_lines);
  const double third = 1.0 / 3, small = 1e-300;
  file.append(row(1, third));
  file.append(row(2, small));
  ASSERT_EQ(points(file).size(), 2u);
  EXPECT_EQ(points(file)[0].loss, third);
  EXPECT_EQ(points(file)[1].loss, small);
}

TEST_F(MetricsFiles, AContinuedFileHasNoStepTwiceAndNoGap) {
  for (const Format format : {Format::json_lines, Format::csv}) {
    const std::string name = path(format == Format::csv ? "b.csv" : "b.jsonl");
    {
      LogFile file(name, format);
      for (int64_t s = 1; s <= 9; ++s) file.append(row(s, 1));
    }
    LogFile again(name, format);
    again.append(row(7, 2));
    again.append(row(8, 2));
    EXPECT_EQ(steps(again), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(points(again)[6].loss, 2);
  }
}

TEST_F(MetricsFiles, ALineThatAKillCutShortIsRemoved) {
  const std::string name = path("c.jsonl");
  { LogFile(name, Format::json_lines).append(row(1, 1)); }
  { std::ofstream(name, std::ios::app) << "{\"step\": 2, \"lo"; }
  LogFile again(name, Format::json_lines);
  again.append(row(2, 3));
  EXPECT_EQ(steps(again), (std::vector<int64_t>{1, 2}));
}

TEST_F(MetricsFiles, LinesOfOthersKeepTheirBytes) {
  const std::string name = path("d.jsonl");
  { std::ofstream(name) << "# a note\n{\"step\": 1}\n{\"step\": 5}\n"; }
  LogFile file(name, Format::json_lines);
  file.cut_after(2);
  EXPECT_EQ(contents(name), "# a note\n{\"step\": 1}\n");
}

TEST_F(MetricsFiles, ACsvFileHasOneHead) {
  const std::string name = path("e.csv");
  { LogFile(name, Format::csv).append(row(1, 1)); }
  { LogFile(name, Format::csv).append(row(2, 1)); }
  const std::string text = contents(name);
  EXPECT_EQ(text.find("step,tokens,samples,loss,"), 0u);
  EXPECT_EQ(text.find("step,", 1), std::string::npos);
}

TEST_F(MetricsFiles, AFolderThatIsMissingIsNamed) {
  try {
    LogFile(path("none/f.jsonl"), Format::json_lines);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
    EXPECT_NE(std::string(error.what()).find("none/f.jsonl: No such file"), std::string::npos)
        << error.what();
  }
}

TEST(LossCurve, HasTheStepsOfAShortRunOneByOne) {
  LossCurve curve;
  EXPECT_TRUE(curve.points().empty());
  for (int64_t s = 1; s <= 2048; ++s) curve.add({s, 1.0 / static_cast<double>(s), s == 7 ? 3 : kNoValue});
  const std::vector<LogFile::Point> points = curve.points();
  ASSERT_EQ(points.size(), 2048u);
  for (int64_t s = 1; s <= 2048; ++s) {
    const LogFile::Point& point = points[static_cast<size_t>(s - 1)];
    EXPECT_EQ(point.step, s);
    EXPECT_EQ(point.loss, 1.0 / static_cast<double>(s));
    EXPECT_EQ(std::isfinite(point.validation_loss), s == 7);
  }
}

TEST(LossCurve, OfALongRunHasMeansThatTakeABoundedNumberOfPoints) {
  LossCurve curve;
  constexpr int64_t kSteps = 1'000'001;
  for (int64_t s = 1; s <= kSteps; ++s)
    curve.add({s, s == 500 ? kNoValue : static_cast<double>(s),
               s % 1000 == 0 ? static_cast<double>(-s) : kNoValue});
  const std::vector<LogFile::Point> points = curve.points();
  EXPECT_LE(points.size(), LossCurve::kMostPoints);
  EXPECT_GE(points.size(), LossCurve::kMostPoints / 2 - 1);
  for (const LogFile::Point& point : points) {
    EXPECT_NEAR(point.loss, static_cast<double>(point.step), 1.1);
    if (std::isfinite(point.validation_loss)) {
      EXPECT_NEAR(point.validation_loss, -static_cast<double>(point.step), 1024);
    }
  }
  EXPECT_EQ(curve.last_step(), kSteps);
  curve.cut_after(kSteps / 2);
  EXPECT_LE(curve.last_step(), kSteps / 2);
  EXPECT_GT(curve.last_step(), kSteps / 2 - 2048);
  curve.cut_after(0);
  EXPECT_EQ(curve.last_step(), -1);
}

TEST_F(MetricsFiles, ThePictureHasRoundTicksAndOnePointAColumn) {
  std::vector<LogFile::Point> points;
  for (int64_t s = 1; s <= 100000; ++s)
    points.push_back({s, 2 + 1.0 / static_cast<double>(s), s % 1000 == 0 ? 2.5 : kNoValue});
  const std::string svg = draw_losses(points);
  EXPECT_NE(svg.find(">2.5</text>"), std::string::npos);
  EXPECT_NE(svg.find(">20000</text>"), std::string::npos);
  EXPECT_NE(svg.find("validation"), std::string::npos);
  EXPECT_LT(svg.size(), 40000u);
}

TEST_F(MetricsFiles, ThePictureOfNoPointsAndOfOneIsWhole) {
  for (const std::vector<LogFile::Point>& points :
       {std::vector<LogFile::Point>{}, {{1, 2.0, kNoValue}}, {{1, kNoValue, kNoValue}}}) {
    const std::string svg = draw_losses(points);
    EXPECT_NE(svg.find("</svg>"), std::string::npos);
    EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
  }
}

}  // namespace
}  // namespace gangway
