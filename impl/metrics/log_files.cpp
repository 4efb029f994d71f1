#include "metrics/log_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json_scalars.h"
#include "base/new_file.h"

namespace gangway {
namespace {

namespace fs = std::filesystem;

// Calls use(line) for each line that has a line break.
template <typename Use>
void for_each_line(const std::string& path, Use&& use) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return;
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_file("metrics: reading", path, errno);
  for (std::string line; std::getline(in, line);)
    if (!in.eof()) use(line);
}

double number_of(std::string_view text) {
  return text.empty() ? kNoValue : std::strtod(std::string(text).c_str(), nullptr);
}

size_t column(const char* name) {
  const auto fields = metrics_fields();
  return static_cast<size_t>(
      std::find_if(fields.begin(), fields.end(),
                   [&](const MetricsField& f) { return std::string(f.name) == name; }) -
      fields.begin());
}

std::string_view cell(std::string_view line, size_t index) {
  for (; index > 0 && !line.empty(); --index)
    line.remove_prefix(std::min(line.size(), std::min(line.find(','), line.size()) + 1));
  return line.substr(0, line.find(','));
}

bool read_csv_point(const std::string& line, LogFile::Point& point) {
  static const size_t loss = column("loss"), validation_loss = column("validation_loss");
  const std::string_view step = cell(line, 0);
  if (step.empty() || step.find_first_not_of("0123456789") != std::string_view::npos) return false;
  point = {std::strtoll(line.c_str(), nullptr, 10), number_of(cell(line, loss)),
           number_of(cell(line, validation_loss))};
  return true;
}

// The lines that json_line() writes, which a run of weeks has by the million: a parser would take minutes.
bool read_own_json(const std::string& line, LogFile::Point& point) {
  constexpr std::string_view kStart = "{\"step\": ";
  if (!line.starts_with(kStart) || line.back() != '}' ||
      std::isdigit(static_cast<unsigned char>(line[kStart.size()])) == 0)
    return false;
  const auto number = [&](std::string_view key) {
    const size_t at = line.find(key);
    if (at == std::string::npos) return kNoValue;
    char* end = nullptr;
    const double value = std::strtod(line.c_str() + at + key.size(), &end);
    return end == line.c_str() + at + key.size() ? kNoValue : value;
  };
  point = {std::strtoll(line.c_str() + kStart.size(), nullptr, 10), number(", \"loss\": "),
           number(", \"validation_loss\": ")};
  return true;
}

bool read_json_point(const std::string& line, LogFile::Point& point) {
  if (read_own_json(line, point)) return true;
  const JsonScalars json = find_json_scalars(line).value_or(JsonScalars());
  const JsonValue* const step = find_scalar(json, "step");
  if (step == nullptr || step->kind != JsonValue::Kind::integer) return false;
  const auto number = [&](const char* name) {
    const JsonValue* const value = find_scalar(json, name);
    return value != nullptr && value->is_number() ? value->real : kNoValue;
  };
  point = {step->integer, number("loss"), number("validation_loss")};
  return true;
}

// Reads a line; false: it is not one of ours, as the head of a CSV file.
bool read_point(const std::string& line, LogFile::Format format, LogFile::Point& point) {
  return format == LogFile::Format::csv ? read_csv_point(line, point) : read_json_point(line, point);
}

// The lines of a file from its end, so that what a resume reads does not grow with the run.
class LinesFromEnd {
 public:
  // A file that is not there, or not a regular one, has no lines.
  explicit LinesFromEnd(const std::string& path) : path_(path) {
    std::error_code none;
    if (!fs::is_regular_file(path, none)) return;
    file_.reset(std::fopen(path.c_str(), "rbe"));
    if (file_ == nullptr) fail_file("metrics: reading", path, errno);
    first_ = fs::file_size(path, none);
    skip_broken_line();
  }
  // The byte behind the last line break.
  uint64_t end() const { return end_; }
  // A line, and the place of its first byte in the file. next() gives the last line first.
  struct Line {
    uint64_t first;
    std::string text;
  };
  std::optional<Line> next() {
    if (end_ == 0) return std::nullopt;
    size_t before = std::string::npos;
    // The last byte is the line's own break.
    while ((before = text_.rfind('\n', text_.size() - 2)) == std::string::npos || text_.size() < 2)
      if (!read_more()) break;
    const size_t from = text_.size() < 2 || before == std::string::npos ? 0 : before + 1;
    Line line{end_ - (text_.size() - from), text_.substr(from, text_.size() - from - 1)};
    text_.resize(from);
    end_ = line.first;
    if (text_.empty() && end_ > 0) read_more();
    return line;
  }

 private:
  bool read_more() {
    constexpr uint64_t kBlock = 1 << 16;
    const uint64_t count = std::min(kBlock, first_);
    if (count == 0) return false;
    first_ -= count;
    std::string block(count, '\0');
    if (std::fseek(file_.get(), static_cast<long>(first_), SEEK_SET) != 0 ||
        std::fread(block.data(), 1, count, file_.get()) != count)
      fail_file("metrics: reading", path_, errno != 0 ? errno : EIO);
    text_ = block + text_;
    return true;
  }
  void skip_broken_line() {
    size_t at = std::string::npos;
    while ((at = text_.rfind('\n')) == std::string::npos && read_more()) {
    }
    text_.resize(at == std::string::npos ? 0 : at + 1);
    end_ = first_ + text_.size();
  }

  struct Close {
    void operator()(FILE* file) const { std::fclose(file); }
  };
  const std::string path_;
  std::unique_ptr<FILE, Close> file_;
  std::string text_;  // [first_, end_) of the file
  uint64_t first_ = 0, end_ = 0;
};

}  // namespace

LogFile::LogFile(const std::string& path, Format format) : path_(path), format_(format) {
  open();
  // A line without its end is the rest of a killed run, and reading leaves it out.
  std::error_code none;
  const LinesFromEnd lines(path_);
  if (fs::is_regular_file(path_, none) && fs::file_size(path_, none) != lines.end())
    static_cast<void>(!ftruncate(file_, static_cast<off_t>(lines.end())));
  begin();
}

LogFile::~LogFile() { close(); }

void LogFile::open() { file_ = open_new_file("metrics: opening", path_, O_APPEND); }

void LogFile::close() noexcept {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

void LogFile::begin() {
  std::error_code none;
  if (format_ == Format::csv && fs::file_size(path_, none) == 0) write(csv_header() + "\n");
}

void LogFile::write(const std::string& text) {
  if (file_ < 0) {
    open();
    begin();
  }
  std::error_code none;
  const auto before = fs::file_size(path_, none);
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t wrote = ::write(file_, rest.data(), rest.size());
    if (wrote >= 0) {
      rest.remove_prefix(static_cast<size_t>(wrote));
    } else if (errno != EINTR) {
      // What was written of the line goes, so that the next one begins a line of its own.
      const int error = errno;
      if (!none) static_cast<void>(!ftruncate(file_, static_cast<off_t>(before)));
      close();
      fail_file("metrics: writing", path_, error);
    }
  }
}

void LogFile::append(const MetricsRow& row) {
  if (row.step <= last_) cut_after(row.step - 1);
  last_ = row.step;
  write((format_ == Format::csv ? csv_line(row) : json_line(row)) + "\n");
}

void LogFile::cut_after(int64_t step) {
  std::string kept;    // what is no row, behind the first row that is cut; the file gets it back
  std::string others;  // what is no row, so far
  std::optional<uint64_t> cut;
  LinesFromEnd lines(path_);
  while (const auto line = lines.next()) {
    Point point{};
    if (!read_point(line->text, format_, point)) {
      others = line->text + "\n" + others;
      continue;
    }
    if (point.step <= step) break;
    cut = line->first;
    kept = others;
  }
  last_ = std::min(last_, step);
  if (!cut) return;
  if (file_ < 0) open();
  if (ftruncate(file_, static_cast<off_t>(*cut)) != 0) fail_file("metrics: cutting", path_, errno);
  write(kept);
}

int64_t LogFile::last_step() const {
  LinesFromEnd lines(path_);
  Point point{};
  while (const auto line = lines.next())
    if (read_point(line->text, format_, point)) return point.step;
  return -1;
}

void LogFile::sync() {
  // A file that is no regular one has nothing to sync.
  if (file_ >= 0 && fdatasync(file_) != 0 && errno != EINVAL && errno != EROFS)
    fail_file("metrics: syncing", path_, errno);
}

void LogFile::for_each_point(const std::function<void(const Point&)>& use) const {
  Point point{};
  for_each_line(path_, [&](const std::string& line) {
    if (read_point(line, format_, point)) use(point);
  });
}

}  // namespace gangway
