#include "base/tracer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/new_file.h"

namespace gangway {
namespace {

constexpr size_t kFlushBytes = 256 << 10;

// Adds `more` to the number of files of this name that the process has written, and returns the sum.
int files_begun(const std::string& stem, int more) {
  static std::mutex mutex;
  static std::map<std::string, int> begun;
  const std::lock_guard lock(mutex);
  return begun[stem] += more;
}

void append(std::string& out, int64_t number) {
  char digits[24];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  out.append(digits, end);
}

// The trace format counts in microseconds.
void append_microseconds(std::string& out, int64_t ns) {
  if (ns < 0) {
    out += '-';
    ns = -ns;
  }
  append(out, ns / 1000);
  const std::string rest = std::to_string(ns % 1000);
  out += '.';
  out.append(3 - rest.size(), '0');
  out += rest;
}

void append_escaped(std::string& out, std::string_view words) {
  for (const char c : words) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
}

// Writes the events from which viewers take the names of processes and rows.
void append_names(std::string& out, uint64_t run, int rank, int ranks) {
  out += text("{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": ", rank, ", \"args\": {\"name\": \"rank ",
              rank, "\", \"ranks\": ", ranks, ", \"run\": ", run, "}}");
  for (int row = 0; row < kTraceRows; ++row)
    out += text(",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": ", rank, ", \"tid\": ", row,
                ", \"args\": {\"name\": \"", name(static_cast<TraceRow>(row)), "\"}}");
}

}  // namespace

std::string json_escaped(std::string_view text) {
  std::string out;
  append_escaped(out, text);
  return out;
}

const char* name(TraceRow row) {
  switch (row) {
    case TraceRow::step: return "step";
    case TraceRow::pipeline: return "pipeline";
    case TraceRow::compute: return "compute";
    case TraceRow::wait: return "wait";
    case TraceRow::collective: return "collectives";
  }
  return "";
}

Tracer::~Tracer() {
  try {
    end();
  } catch (...) {
  }
}

void Tracer::cannot_write(int system_error) const {
  Error error(Code::io, text("trace: cannot write ", path_));
  error.system_error = system_error;
  throw error;
}

void Tracer::begin(const std::string& folder, uint64_t run, int rank, int ranks, int64_t clock_ahead_ns) {
  const std::lock_guard lock(mutex_);
  if (on()) fail(Code::invalid_state, "trace: it is on already and writes ", path_);
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  stem_ = folder + "/rank-" + std::to_string(rank);
  const int count = files_begun(stem_, 0) + 1;
  path_ = stem_ + (count > 1 ? "." + std::to_string(count) : "") + ".json";
  rank_ = rank;
  ahead_ns_ = clock_ahead_ns;
  error_ = 0;
  text_ = "[\n";
  append_names(text_, run, rank, ranks);
  file_ = open_new_file("trace: cannot write", path_, O_TRUNC);
  write();
  if (error_ != 0) {
    const int error = error_;
    close();
    cannot_write(error);
  }
  files_begun(stem_, 1);
  on_.store(true, std::memory_order_relaxed);
}

void Tracer::cancel() noexcept {
  const std::lock_guard lock(mutex_);
  if (!on()) return;
  on_.store(false, std::memory_order_relaxed);
  close();
  unlink(path_.c_str());
  files_begun(stem_, -1);
}

void Tracer::end() {
  const std::lock_guard lock(mutex_);
  if (!on()) return;
  on_.store(false, std::memory_order_relaxed);
  text_ += "\n]\n";
  write();
  close();
  if (error_ != 0) cannot_write(error_);
}

void Tracer::flush() noexcept {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  if (on()) write();
}

void Tracer::add(TraceRow row, std::string_view category, std::string_view name, int64_t start_ns,
                 int64_t end_ns, std::string_view detail) noexcept {
  const std::lock_guard lock(mutex_);
  if (!on() || error_ != 0) return;
  try {
    // Viewers show overlapping spans only as pairs of a begin and an end event with the same id.
    const bool overlaps = row == TraceRow::collective;
    const auto event = [&](const char* phase, int64_t at) {
      text_ += ",\n{\"name\": \"";
      append_escaped(text_, name);
      text_ += "\", \"cat\": \"";
      text_ += category;
      text_ += "\", \"ph\": \"";
      text_ += phase;
      text_ += "\", \"pid\": ";
      append(text_, rank_);
      text_ += ", \"tid\": ";
      append(text_, static_cast<int>(row));
      text_ += ", \"ts\": ";
      append_microseconds(text_, at - ahead_ns_);
    };
    const auto arguments = [&] {
      if (!detail.empty()) {
        text_ += ", \"args\": {";
        text_ += detail;
        text_ += '}';
      }
    };
    const size_t before = text_.size();
    try {
      event(overlaps ? "b" : "X", start_ns);
      if (overlaps) {
        text_ += text(", \"id\": \"", rank_, ".", spans_, "\"");
      } else {
        text_ += ", \"dur\": ";
        append_microseconds(text_, end_ns - start_ns);
      }
      arguments();
      text_ += '}';
      if (overlaps) {
        event("e", end_ns);
        text_ += text(", \"id\": \"", rank_, ".", spans_++, "\"}");
      }
    } catch (...) {
      text_.resize(before);
      throw;
    }
  } catch (...) {
    error_ = ENOMEM;
  }
  if (text_.size() >= kFlushBytes) write();
}

void Tracer::write() noexcept {
  size_t at = 0;
  while (at < text_.size() && error_ == 0) {
    const ssize_t wrote = ::write(file_, text_.data() + at, text_.size() - at);
    if (wrote >= 0)
      at += static_cast<size_t>(wrote);
    else if (errno != EINTR)
      error_ = errno;
  }
  text_.clear();
}

void Tracer::close() noexcept {
  if (::close(file_) != 0 && error_ == 0) error_ = errno;
  file_ = -1;
}

}  // namespace gangway
