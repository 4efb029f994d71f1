#include "metrics/log_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
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

std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> all;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) all.push_back(cell);
  return all;
}

double number_of(const std::string& text) {
  return text.empty() ? kNoValue : std::strtod(text.c_str(), nullptr);
}

size_t column(const char* name) {
  const auto fields = metrics_fields();
  return static_cast<size_t>(
      std::find_if(fields.begin(), fields.end(),
                   [&](const MetricsField& f) { return std::string(f.name) == name; }) -
      fields.begin());
}

// Reads a line; false: it is not one of ours, as the head of a CSV file.
bool read_point(const std::string& line, LogFile::Format format, LogFile::Point& point) {
  if (format == LogFile::Format::csv) {
    const std::vector<std::string> all = cells(line);
    if (all.empty() || all[0].empty() || all[0].find_first_not_of("0123456789") != std::string::npos)
      return false;
    const auto cell = [&](const char* name) {
      return column(name) < all.size() ? number_of(all[column(name)]) : kNoValue;
    };
    point = {std::strtoll(all[0].c_str(), nullptr, 10), cell("loss"), cell("validation_loss")};
    return true;
  }
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

}  // namespace

LogFile::LogFile(const std::string& path, Format format) : path_(path), format_(format) {
  open();
  // A line without its end is the rest of a killed run, and reading leaves it out.
  std::error_code ignored;
  const auto bytes = fs::file_size(path_, ignored);
  if (!ignored && bytes > 0) {
    uintmax_t whole = 0;
    for_each_line(path_, [&](const std::string& line) { whole += line.size() + 1; });
    if (whole != bytes) static_cast<void>(!ftruncate(file_, static_cast<off_t>(whole)));
  }
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
  std::string kept;
  bool cuts = false;
  for_each_line(path_, [&](const std::string& line) {
    Point point{};
    if (read_point(line, format_, point) && point.step > step)
      cuts = true;
    else
      kept += line + "\n";
  });
  last_ = std::min(last_, step);
  if (!cuts) return;
  const std::string fresh = path_ + ".new";
  write_new_file("metrics: writing", fresh, kept);
  if (std::rename(fresh.c_str(), path_.c_str()) != 0) fail_file("metrics: replacing", path_, errno);
  close();
  open();
  begin();
}

void LogFile::for_each_point(const std::function<void(const Point&)>& use) const {
  Point point{};
  for_each_line(path_, [&](const std::string& line) {
    if (read_point(line, format_, point)) use(point);
  });
}

}  // namespace gangway
