#include "metrics/log_files.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"

namespace gangway {
namespace {

namespace fs = std::filesystem;

// Returns the lines that have a line break.
std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return lines;
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_file("metrics: reading", path, errno);
  for (std::string line; std::getline(in, line);)
    if (!in.eof()) lines.push_back(line);
  return lines;
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
  if (line.find('\0') != std::string::npos) return false;  // nlohmann's parser takes it for the end
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return false;
  const auto number = [&](const char* name) {
    return json.contains(name) && json[name].is_number() ? json[name].get<double>() : kNoValue;
  };
  point = {json["step"].get<int64_t>(), number("loss"), number("validation_loss")};
  return true;
}

}  // namespace

LogFile::LogFile(const std::string& path, Format format) : path_(path), format_(format) {
  // A line without its end is the rest of a killed run, and reading leaves it out.
  std::error_code ignored;
  const auto bytes = fs::file_size(path_, ignored);
  if (!ignored && bytes > 0) {
    uintmax_t whole = 0;
    for (const std::string& line : lines_of(path_)) whole += line.size() + 1;
    if (whole != bytes) fs::resize_file(path_, whole, ignored);
  }
  open();
}

LogFile::~LogFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void LogFile::open() {
  file_ = std::fopen(path_.c_str(), "ab");
  if (file_ == nullptr) fail_file("metrics: opening", path_, errno);
  std::error_code none;
  if (format_ == Format::csv && fs::file_size(path_, none) == 0) write(csv_header() + "\n");
}

void LogFile::write(const std::string& text) {
  if (file_ == nullptr) open();
  std::error_code none;
  const auto before = fs::file_size(path_, none);
  if (std::fwrite(text.data(), 1, text.size(), file_) == text.size() && std::fflush(file_) == 0) return;
  // What was written of the line goes, so that the next one begins a line of its own.
  const int error = errno;
  std::fclose(file_);
  file_ = nullptr;
  if (!none) fs::resize_file(path_, before, none);
  fail_file("metrics: writing", path_, error);
}

void LogFile::append(const MetricsRow& row) {
  if (!appended_) cut_after(row.step - 1);
  appended_ = true;
  write((format_ == Format::csv ? csv_line(row) : json_line(row)) + "\n");
}

void LogFile::cut_after(int64_t step) {
  std::string kept;
  bool cuts = false;
  for (const std::string& line : lines_of(path_)) {
    Point point{};
    if (read_point(line, format_, point) && point.step > step)
      cuts = true;
    else
      kept += line + "\n";
  }
  if (!cuts) return;
  const std::string fresh = path_ + ".new";
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  out.write(kept.data(), static_cast<std::streamsize>(kept.size()));
  out.close();
  if (!out) fail_file("metrics: writing", fresh, errno);
  if (std::rename(fresh.c_str(), path_.c_str()) != 0) fail_file("metrics: replacing", path_, errno);
  if (file_ != nullptr) std::fclose(file_);
  file_ = nullptr;
  open();
}

std::vector<LogFile::Point> LogFile::points() const {
  std::vector<Point> all;
  Point point{};
  for (const std::string& line : lines_of(path_))
    if (read_point(line, format_, point)) all.push_back(point);
  return all;
}

}  // namespace gangway
