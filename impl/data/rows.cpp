#include "data/rows.h"

#include <algorithm>

#include "data/document_rows.h"

namespace gangway::data {
namespace {

class StreamRows final : public FileRows {
 public:
  StreamRows(const TokenFile& tokens, int64_t sequence)
      : tokens_(tokens), sequence_(static_cast<uint64_t>(sequence)) {}

  uint64_t count() const override { return (tokens_.count - 1 + sequence_ - 1) / sequence_; }

  void read(TokenInput& input, uint64_t row, const RowPlaces& out) override {
    const uint64_t first = row * sequence_;
    const size_t here = static_cast<size_t>(std::min(sequence_, tokens_.count - first));
    const size_t labels = static_cast<size_t>(std::min(sequence_, tokens_.count - first - 1));
    line_.resize(std::max(here, labels + 1));
    input.read(tokens_, first, line_.size(), line_.data());
    const size_t length = static_cast<size_t>(sequence_);
    std::fill_n(std::copy_n(line_.data(), here, out.tokens), length - here, 0);
    std::fill_n(std::copy_n(line_.data() + 1, labels, out.labels), length - labels, kNoLabel);
  }

 private:
  TokenFile tokens_;
  uint64_t sequence_;
  std::vector<int64_t> line_;
};

}  // namespace

std::unique_ptr<FileRows> rows_of(const TokenFile& tokens, TokenInput& input, const RowOptions& options) {
  if (options.packing == Packing::stream) return std::make_unique<StreamRows>(tokens, options.sequence);
  return std::make_unique<DocumentRows>(tokens, input, options);
}

}  // namespace gangway::data
