// Where the documents of a token file begin.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/token_input.h"

namespace gangway::data {

class Documents {
 public:
  virtual ~Documents() = default;
  // Appends the tokens in [first, last) with which a document begins, in ascending order and each once. A
  // document begins at token 0. CORRUPT: an index is not ascending, or leads out of the file.
  virtual void starts(TokenInput& input, uint64_t first, uint64_t last, std::vector<uint64_t>& out) = 0;
  // Returns the first of them; `last` if there is none. It reads little more than it must.
  uint64_t first_start(TokenInput& input, uint64_t first, uint64_t last);
};

// With `document_end` at least 0, a document ends with each token of that id. With -1 the documents are those
// of Megatron's index, or of the index that gw-tokens writes beside a file (documents_path).
// INVALID_ARGUMENT: -1, and there is no index. CORRUPT: the index belongs to other tokens.
std::unique_ptr<Documents> documents_of(const TokenFile& tokens, int64_t document_end);

// An index of documents: kDocumentsMagic, then the numbers of tokens and of documents, then the first token
// of each document; all numbers have 64 bits.
std::string documents_path(const std::string& tokens_path);
constexpr char kDocumentsMagic[9] = "GWDOCS1\n";

}  // namespace gangway::data
