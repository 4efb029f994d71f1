#include "data/document_rows.h"

#include <algorithm>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"

namespace gangway::data {
namespace {

constexpr size_t kMostKeptPieces = size_t{1} << 21;  // 24 MiB

}  // namespace

DocumentRows::DocumentRows(const TokenFile& tokens, TokenInput& input, const RowOptions& options)
    : tokens_(tokens),
      options_(options),
      documents_(documents_of(tokens, options.document_end)),
      regions_((tokens.count + kRegionTokens - 1) / kRegionTokens),
      ends_(read_row_index(tokens, options, regions_)) {
  if (ends_.empty()) make_index(input);
}

uint64_t DocumentRows::region_begin(TokenInput& input, uint64_t region) {
  const uint64_t first = region * kRegionTokens;
  if (region == 0) return 0;
  if (first >= tokens_.count) return tokens_.count;
  const uint64_t last = std::min(first + kRegionTokens, tokens_.count);
  const uint64_t start = documents_->first_start(input, first, last);
  return start == last ? first : start;
}

PackedRegion DocumentRows::pack_region(TokenInput& input, uint64_t region) {
  const uint64_t begin = region_begin(input, region), end = region_begin(input, region + 1);
  std::vector<uint64_t> starts;
  documents_->starts(input, begin, end, starts);
  return pack(begin, end, starts, options_.sequence);
}

void DocumentRows::make_index(TokenInput& input) {
  uint64_t rows = 0;
  for (uint64_t region = 0; region < regions_; ++region) {
    poll_interrupt_throttled();
    rows += pack_region(input, region).rows();
    ends_.push_back(rows);
  }
  if (!keep_row_index(tokens_, options_, ends_))
    log(LogLevel::info, text("data: ", row_index_path(tokens_, options_),
                             " cannot be written; the index of rows stays in memory"));
}

const PackedRegion& DocumentRows::packed(TokenInput& input, size_t region) {
  const auto known =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.region == region; });
  if (known != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, known);
    return kept_.front().packed;
  }
  PackedRegion made = pack_region(input, region);
  const uint64_t before = region > 0 ? ends_[region - 1] : 0;
  if (made.rows() != ends_[region] - before)
    fail(Code::corrupt, "data: ", tokens_.file.path, ": the tokens from ", made.begin, " on make ",
         made.rows(), " rows, but ", row_index_path(tokens_, options_), " says ", ends_[region] - before,
         "; delete that index, and it is made again");
  kept_.push_front({region, std::move(made)});
  kept_pieces_ += kept_.front().packed.pieces.size();
  while (kept_pieces_ > kMostKeptPieces && kept_.size() > 1) {
    kept_pieces_ -= kept_.back().packed.pieces.size();
    kept_.pop_back();
  }
  return kept_.front().packed;
}

void DocumentRows::read(TokenInput& input, uint64_t row, const RowPlaces& out) {
  const auto region = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
  const PackedRegion& packing = packed(input, region);
  const size_t local = static_cast<size_t>(row - (region > 0 ? ends_[region - 1] : 0));
  size_t at = 0;
  for (uint32_t i = packing.bounds[local]; i < packing.bounds[local + 1]; ++i) {
    const Piece& piece = packing.pieces[i];
    line_.resize(piece.count + (piece.goes_on ? 1 : 0));
    input.read(tokens_, packing.begin + piece.first, line_.size(), line_.data());
    std::copy_n(line_.data(), piece.count, out.tokens + at);
    std::copy_n(line_.data() + 1, line_.size() - 1, out.labels + at);
    if (!piece.goes_on) out.labels[at + piece.count - 1] = kNoLabel;
    std::fill_n(out.documents + at, piece.count, static_cast<int32_t>(i - packing.bounds[local]));
    at += piece.count;
  }
  const size_t padding = static_cast<size_t>(options_.sequence) - at;
  std::fill_n(out.tokens + at, padding, 0);
  std::fill_n(out.labels + at, padding, kNoLabel);
  std::fill_n(out.documents + at, padding, kNoDocument);
}

}  // namespace gangway::data
