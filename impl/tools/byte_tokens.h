// Makes token files of the bytes of texts: each byte is a token.
//
// Thread rule: pure functions of the files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gangway::tools {

constexpr int64_t kDefaultEnd = -2;

struct ByteTokens {
  std::vector<std::string> inputs;
  std::string output;       // .u8 or .u16
  std::string separator{};  // stands between documents, and is left out; empty: each input is a document
  int64_t document_end =
      kDefaultEnd;        // the token after each document; -1: none; by default 256 in a .u16, else none
  double validation = 0;  // the share of documents that go into another file; below 1
  uint64_t seed = 0;      // decides which documents those are
};

struct WrittenTokens {
  std::string path;
  uint64_t documents = 0, tokens = 0;
};

// Returns the name of the file with the documents for validation: text.u16 has text.validation.u16.
std::string validation_path(const std::string& output);

// Writes the output, its index of documents (data/documents.h), and with `validation` a second such pair. A
// document without a byte is left out. `progress` is told how many bytes of all are done. Files that are
// replaced stay until the new ones are whole.
//
// INVALID_ARGUMENT: a number is out of range, or there are fewer than two documents to split. CORRUPT: the
// inputs have no byte, or one of them is the document_end. IO: a file cannot be read or written.
std::vector<WrittenTokens> write_byte_tokens(const ByteTokens& request,
                                             const std::function<void(uint64_t, uint64_t)>& progress);

}  // namespace gangway::tools
