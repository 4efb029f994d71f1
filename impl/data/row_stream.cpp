#include "data/row_stream.h"

#include "base/error.h"
#include "base/philox.h"
#include "data/permutation.h"

namespace gangway::data {
namespace {

const DatasetOptions& with_sources(const DatasetOptions& options) {
  if (options.rows.sequence < 1 || options.rows.sequence > kLongestSequence)
    fail(Code::invalid_argument, "sequence is ", options.rows.sequence, ", not from 1 to ", kLongestSequence);
  if (options.rows.document_end < -1)
    fail(Code::invalid_argument, "document_end is ", options.rows.document_end,
         ", neither an id nor -1 (by the index)");
  if (options.rows.document_end >= 0 && options.rows.packing == Packing::stream)
    fail(Code::invalid_argument, "document_end is ", options.rows.document_end,
         ", but packing is stream, which does not look at documents");
  if (options.vocab < 0) fail(Code::invalid_argument, "vocab_size is ", options.vocab, ", below 0");
  if (options.vocab > 0 && options.rows.document_end >= options.vocab)
    fail(Code::invalid_argument, "document_end is ", options.rows.document_end,
         ", but the vocabulary has the ids 0 to ", options.vocab - 1);
  return options;
}

std::vector<double> weights_of(const std::vector<SourceOptions>& sources) {
  std::vector<double> weights;
  for (const SourceOptions& source : sources) weights.push_back(source.weight);
  return weights;
}

}  // namespace

RowStream::RowStream(const DatasetOptions& options)
    : options_(with_sources(options)), mixture_(weights_of(options.sources)), input_(options.vocab) {
  const uint64_t key = philox_key(options.seed, "gw_dataset");
  for (size_t k = 0; k < options.sources.size(); ++k)
    sources_.emplace_back(options.sources[k], options.rows, input_, options.shuffle, derived_key(key, k));
}

uint64_t RowStream::rows_per_epoch() const {
  uint64_t rows = 0;
  for (const Source& source : sources_) rows += source.rows();
  return rows;
}

void RowStream::read(uint64_t n, const RowPlaces& out) {
  const Mixture::Place place = mixture_(n);
  sources_[place.source].read(input_, place.row, out);
}

}  // namespace gangway::data
