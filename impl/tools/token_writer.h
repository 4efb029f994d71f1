// Writes a token file with its index of documents.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace gangway::tools {

class TokenWriter {
 public:
  // `path` ends in .u8, or else has tokens of 16 bits. Throws IO, as the others do.
  explicit TokenWriter(const std::string& path);
  ~TokenWriter();  // removes what was not committed
  TokenWriter(TokenWriter&& other) = default;
  TokenWriter& operator=(TokenWriter&&) = delete;

  void begin_document();
  void add(std::string_view bytes);  // each byte is a token
  void add_token(uint16_t token);
  void commit();  // gives both files their names

  const std::string& path() const { return path_; }
  uint64_t documents() const { return documents_; }
  uint64_t tokens() const { return tokens_; }

 private:
  void check(const std::ofstream& file, const std::string& path) const;

  std::string path_;
  bool wide_;
  std::ofstream file_, index_;
  std::string buffer_;
  uint64_t documents_ = 0, tokens_ = 0;
};

}  // namespace gangway::tools
