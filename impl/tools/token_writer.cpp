#include "tools/token_writer.h"

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "data/documents.h"

namespace gangway::tools {
namespace {

std::string unfinished(const std::string& path) { return path + ".part"; }

void write_number(std::ofstream& file, uint64_t number) {
  file.write(reinterpret_cast<const char*>(&number), sizeof number);
}

}  // namespace

TokenWriter::TokenWriter(const std::string& path)
    : path_(path),
      wide_(!path.ends_with(".u8")),
      file_(unfinished(path), std::ios::binary),
      index_(unfinished(data::documents_path(path)), std::ios::binary) {
  if (!file_ || !index_) fail_file("writing", path_, errno);
  index_.write(data::kDocumentsMagic, 8);
  write_number(index_, 0);
  write_number(index_, 0);
}

TokenWriter::~TokenWriter() {
  if (path_.empty()) return;  // moved from
  file_.close();
  index_.close();
  std::remove(unfinished(path_).c_str());
  std::remove(unfinished(data::documents_path(path_)).c_str());
}

void TokenWriter::begin_document() {
  write_number(index_, tokens_);
  ++documents_;
  check(index_, data::documents_path(path_));
}

void TokenWriter::add(std::string_view bytes) {
  tokens_ += bytes.size();
  if (wide_) {
    buffer_.assign(2 * bytes.size(), '\0');
    for (size_t i = 0; i < bytes.size(); ++i) buffer_[2 * i] = bytes[i];
    bytes = buffer_;
  }
  file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  check(file_, path_);
}

void TokenWriter::add_token(uint16_t token) {
  ++tokens_;
  file_.write(reinterpret_cast<const char*>(&token), wide_ ? 2 : 1);
  check(file_, path_);
}

void TokenWriter::commit() {
  index_.seekp(8);
  write_number(index_, tokens_);
  write_number(index_, documents_);
  file_.close();
  index_.close();
  check(file_, path_);
  check(index_, data::documents_path(path_));
  for (const std::string& path : {path_, data::documents_path(path_)})
    if (std::rename(unfinished(path).c_str(), path.c_str()) != 0) fail_file("renaming to", path, errno);
}

void TokenWriter::check(const std::ofstream& file, const std::string& path) const {
  if (!file) fail_file("writing", path, errno);
}

}  // namespace gangway::tools
