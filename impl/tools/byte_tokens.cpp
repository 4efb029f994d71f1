#include "tools/byte_tokens.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/philox.h"
#include "data/documents.h"
#include "data/permutation.h"
#include "tools/token_writer.h"

namespace gangway::tools {
namespace {

namespace fs = std::filesystem;
constexpr size_t kBlock = 1 << 20;

// What the documents of the inputs are handed to.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void add(
      std::string_view bytes) = 0;  // more of the current document, which has begun with the first
  virtual void end() = 0;           // of a document that has bytes
};

// Cuts texts into documents.
class Documents {
 public:
  Documents(const std::string& separator, Receiver& receiver) : separator_(separator), receiver_(receiver) {}

  void add(std::string_view bytes) {
    if (separator_.empty()) return hand_over(bytes);
    pending_ += bytes;
    size_t from = 0;
    for (size_t at; (at = pending_.find(separator_, from)) != std::string::npos;
         from = at + separator_.size()) {
      hand_over(std::string_view(pending_).substr(from, at - from));
      end_document();
    }
    // The last bytes may be the beginning of a separator.
    const size_t keep = std::min(pending_.size() - from, separator_.size() - 1);
    hand_over(std::string_view(pending_).substr(from, pending_.size() - from - keep));
    pending_.erase(0, pending_.size() - keep);
  }
  void end_file() {
    hand_over(pending_);
    pending_.clear();
    end_document();
  }

 private:
  void hand_over(std::string_view bytes) {
    if (bytes.empty()) return;
    receiver_.add(bytes);
    begun_ = true;
  }
  void end_document() {
    if (begun_) receiver_.end();
    begun_ = false;
  }

  const std::string& separator_;
  Receiver& receiver_;
  std::string pending_;
  bool begun_ = false;
};

class Counter final : public Receiver {
 public:
  void add(std::string_view) override {}
  void end() override { ++count_; }
  uint64_t count() const { return count_; }

 private:
  uint64_t count_ = 0;
};

// Writes each document into one of the outputs.
class Splitter final : public Receiver {
 public:
  Splitter(std::vector<TokenWriter>& outputs, int64_t end, const data::Permutation& order,
           uint64_t validation)
      : outputs_(outputs), end_(end), order_(order), validation_(validation) {}

  void add(std::string_view bytes) override {
    if (!begun_) {
      output_ = validation_ > 0 && order_(document_) < validation_ ? 1 : 0;
      outputs_[output_].begin_document();
      begun_ = true;
    }
    const bool could_be_end = end_ >= 0 && end_ < 256;
    if (could_be_end && bytes.find(static_cast<char>(end_)) != std::string_view::npos)
      fail(Code::corrupt, "document ", document_, " has the byte ", end_,
           ", which is to end documents; choose another --document-end, or write a .u16");
    outputs_[output_].add(bytes);
  }
  void end() override {
    if (end_ >= 0) outputs_[output_].add_token(static_cast<uint16_t>(end_));
    ++document_;
    begun_ = false;
  }

 private:
  std::vector<TokenWriter>& outputs_;
  int64_t end_;
  data::Permutation order_;
  uint64_t validation_, document_ = 0;
  size_t output_ = 0;
  bool begun_ = false;
};

uint64_t size_of(const std::string& path) {
  std::error_code failed;
  const uint64_t bytes = fs::file_size(path, failed);
  if (failed) fail_file("reading", path, failed.value());
  return bytes;
}

void read_all(const ByteTokens& request, Receiver& receiver, const std::function<void(size_t)>& progress) {
  std::string block(kBlock, '\0');
  Documents documents(request.separator, receiver);
  for (const std::string& path : request.inputs) {
    std::ifstream in(path, std::ios::binary);
    if (!in) fail_file("opening", path, errno);
    while (in) {
      in.read(block.data(), static_cast<std::streamsize>(block.size()));
      const auto got = static_cast<size_t>(in.gcount());
      documents.add(std::string_view(block).substr(0, got));
      progress(got);
    }
    if (in.bad()) fail_file("reading", path, errno);
    documents.end_file();
  }
}

int64_t end_of(const ByteTokens& request, bool wide) {
  const int64_t end = request.document_end == kDefaultEnd ? (wide ? 256 : -1) : request.document_end;
  if (end < -1 || end > (wide ? 65535 : 255))
    fail(Code::invalid_argument, "the end of documents is ", end, ", no id of ", wide ? "16" : "8", " bits");
  return end;
}

// Returns how many documents go into the file for validation.
uint64_t validation_count(double share, uint64_t documents) {
  if (documents < 2)
    fail(Code::invalid_argument, "the inputs have ", documents,
         " documents, so that none can be set aside for validation; say what separates them");
  const auto count = static_cast<uint64_t>(std::llround(share * static_cast<double>(documents)));
  return std::clamp<uint64_t>(count, 1, documents - 1);
}

}  // namespace

std::string validation_path(const std::string& output) {
  const fs::path path = output;
  return (path.parent_path() / (path.stem().string() + ".validation" + path.extension().string())).string();
}

std::vector<WrittenTokens> write_byte_tokens(const ByteTokens& request,
                                             const std::function<void(uint64_t, uint64_t)>& progress) {
  const std::string ending = fs::path(request.output).extension().string();
  if (ending != ".u8" && ending != ".u16")
    fail(Code::invalid_argument, "the output is ", request.output, ", neither a .u8 nor a .u16");
  const int64_t end = end_of(request, ending == ".u16");
  if (!(request.validation >= 0) || request.validation >= 1)
    fail(Code::invalid_argument, "the share for validation is ", request.validation,
         ", not from 0 to below 1");
  uint64_t total = 0, done = 0;
  for (const std::string& path : request.inputs) total += size_of(path);
  if (total == 0) fail(Code::corrupt, "the inputs have no byte");
  const bool splits = request.validation > 0;
  if (splits) total *= 2;  // the documents are counted first
  const auto advance = [&](size_t bytes) { progress(done += bytes, total); };
  Counter counter;
  if (splits) read_all(request, counter, advance);
  const uint64_t aside = splits ? validation_count(request.validation, counter.count()) : 0;

  std::vector<TokenWriter> outputs;
  outputs.reserve(2);
  outputs.emplace_back(request.output);
  if (splits) outputs.emplace_back(validation_path(request.output));
  const data::Permutation order(std::max<uint64_t>(counter.count(), 1),
                                philox_key(request.seed, "validation"));
  Splitter splitter(outputs, end, order, aside);
  read_all(request, splitter, advance);
  std::vector<WrittenTokens> written;
  for (TokenWriter& output : outputs) {
    output.commit();
    written.push_back({output.path(), output.documents(), output.tokens()});
  }
  return written;
}

}  // namespace gangway::tools
