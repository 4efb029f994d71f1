#include "data/documents.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace gangway::data {
namespace {

constexpr uint64_t kPiece = 1024;  // entries of an index that are read at once

class ByToken final : public Documents {
 public:
  ByToken(const TokenFile& tokens, int64_t end) : tokens_(tokens), end_(end) {}

  void starts(TokenInput& input, uint64_t first, uint64_t last, std::vector<uint64_t>& out) override {
    if (first >= last) return;
    if (first == 0) out.push_back(0);
    const size_t before = out.size();
    input.find(tokens_, first == 0 ? 0 : first - 1, last - 1, end_, out);
    for (size_t i = before; i < out.size(); ++i) ++out[i];  // the token after an end
  }

 private:
  TokenFile tokens_;
  int64_t end_;
};

// An index: a list of starts that is ordered, and in which empty documents repeat a start.
class Indexed : public Documents {
 public:
  Indexed(const TokenFile& tokens, uint64_t documents) : tokens_(tokens), documents_(documents) {}

  void starts(TokenInput& input, uint64_t first, uint64_t last, std::vector<uint64_t>& out) override {
    if (first >= last) return;
    if (first == 0) out.push_back(0);
    uint64_t low = 0, high = documents_;
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      const uint64_t start = list(input.files(), middle, 1)[0];
      if (start < first)
        low = middle + 1;
      else
        high = middle;
    }
    uint64_t before = first;
    for (uint64_t at = low; at < documents_;) {
      const std::vector<uint64_t>& piece = list(input.files(), at, std::min(kPiece, documents_ - at));
      for (const uint64_t start : piece) {
        if (start < before || start > tokens_.count) refuse(at, start, before);
        if (start >= last) return;
        if (out.empty() || out.back() != start) out.push_back(start);
        before = start;
        ++at;
      }
    }
  }

 protected:
  // Reads the starts of documents [first, first + count) into list_, and returns it.
  virtual const std::vector<uint64_t>& list(OpenFiles& files, uint64_t first, uint64_t count) = 0;
  virtual const std::string& path() const = 0;

  void refuse(uint64_t document, uint64_t start, uint64_t before) const {
    fail(Code::corrupt, "data: ", path(), ": document ", document, " begins at token ", start,
         start < before ? ", before the one before it" : ", behind the last token of its file",
         "; the file has ", tokens_.count, " tokens");
  }

  TokenFile tokens_;
  uint64_t documents_;
  std::vector<uint64_t> list_;
};

// The index that gw-tokens writes.
class OwnIndex final : public Indexed {
 public:
  static constexpr uint64_t kHeader = 24;

  OwnIndex(const TokenFile& tokens, FileFacts file) : Indexed(tokens, 0), file_(std::move(file)) {
    OpenFiles files;
    char header[kHeader] = {};
    if (file_.bytes >= kHeader) files.read(file_, 0, header, kHeader);
    uint64_t count = 0;
    std::memcpy(&count, header + 8, 8);
    std::memcpy(&documents_, header + 16, 8);
    if (std::memcmp(header, kDocumentsMagic, 8) != 0)
      fail(Code::corrupt, "data: ", file_.path, " is no index of documents");
    if (count != tokens.count)
      fail(Code::corrupt, "data: ", file_.path, " is the index of a file with ", count, " tokens, ",
           base_name(tokens.file.path), " has ", tokens.count);
    if ((file_.bytes - kHeader) / 8 != documents_ || file_.bytes % 8 != 0)
      fail(Code::corrupt, "data: ", file_.path, " is truncated: it should list ", documents_,
           " documents, and ends at byte ", file_.bytes);
  }

 private:
  const std::vector<uint64_t>& list(OpenFiles& files, uint64_t first, uint64_t count) override {
    list_.resize(static_cast<size_t>(count));
    files.read(file_, kHeader + first * 8, list_.data(), list_.size() * 8);
    return list_;
  }
  const std::string& path() const override { return file_.path; }

  FileFacts file_;
};

class Megatron final : public Indexed {
 public:
  Megatron(const TokenFile& tokens, MegatronIndex index)
      : Indexed(tokens, index.entries > 0 ? index.entries - 1 : 0), index_(std::move(index)) {}

 private:
  const std::vector<uint64_t>& list(OpenFiles& files, uint64_t first, uint64_t count) override {
    list_.resize(static_cast<size_t>(count));
    files.read(index_.file, index_.documents_at + first * 8, list_.data(), list_.size() * 8);
    for (size_t i = 0; i < list_.size(); ++i)
      if (list_[i] > index_.sequences || (i > 0 && list_[i] < list_[i - 1]))
        fail(Code::corrupt, "data: ", path(), ": document ", first + i, " begins with sequence ", list_[i],
             " of ", index_.sequences, i > 0 ? text(", the one before it with ", list_[i - 1]) : "");
    const uint64_t low = list_.front(), high = list_.back();
    // Documents mostly have one sequence each, so that one read gives the bytes of many.
    const bool at_once = high - low <= 8 * kPiece;
    const uint64_t known = std::min(high + 1, index_.sequences);
    if (at_once) pointers_.resize(static_cast<size_t>(known > low ? known - low : 0));
    if (at_once && !pointers_.empty())
      files.read(index_.file, index_.pointers_at + low * 8, pointers_.data(), pointers_.size() * 8);
    for (uint64_t& entry : list_) {
      const uint64_t sequence = entry;
      uint64_t byte = tokens_.count * bytes_of(index_.type);
      if (sequence < known && at_once) byte = pointers_[static_cast<size_t>(sequence - low)];
      if (sequence < known && !at_once) files.read(index_.file, index_.pointers_at + sequence * 8, &byte, 8);
      if (byte % bytes_of(index_.type) != 0)
        fail(Code::corrupt, "data: ", path(), ": sequence ", sequence, " begins at byte ", byte,
             ", in the middle of a token (", name(index_.type), ")");
      entry = byte / bytes_of(index_.type);
    }
    return list_;
  }
  const std::string& path() const override { return index_.file.path; }

  MegatronIndex index_;
  std::vector<uint64_t> pointers_;
};

}  // namespace

uint64_t Documents::first_start(TokenInput& input, uint64_t first, uint64_t last) {
  std::vector<uint64_t> found;
  for (uint64_t length = 4096; first < last; length *= 2) {
    const uint64_t end = std::min(last, first + length);
    starts(input, first, end, found);
    if (!found.empty()) return found.front();
    first = end;
  }
  return last;
}

std::string documents_path(const std::string& tokens_path) { return tokens_path + ".documents"; }

std::unique_ptr<Documents> documents_of(const TokenFile& tokens, int64_t document_end) {
  if (document_end >= 0) return std::make_unique<ByToken>(tokens, document_end);
  const std::string own = documents_path(tokens.file.path);
  if (is_file(own)) return std::make_unique<OwnIndex>(tokens, file_facts(own));
  if (tokens.format == Format::megatron) {
    OpenFiles files;
    return std::make_unique<Megatron>(tokens, read_megatron_index(files, tokens.file.path));
  }
  fail(Code::invalid_argument, "data: nothing tells where the documents of ", tokens.file.path,
       " end: give document_end, the id of the token that ends each document, or an index of Megatron or of "
       "gw-tokens (",
       base_name(own), ")");
}

}  // namespace gangway::data
