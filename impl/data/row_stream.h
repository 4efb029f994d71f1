// All rows of a training, in their order.
//
// Thread rule: one thread at a time; accessors from any thread.
#pragma once

#include <string>
#include <vector>

#include "data/mixture.h"
#include "data/source.h"

namespace gangway::data {

struct DatasetOptions {
  std::vector<SourceOptions> sources;
  RowOptions rows;
  uint64_t seed = 0;
  int64_t vocab = 0;  // 0: ids are not compared with a vocabulary
  bool shuffle = true;
  int read_ahead = 2;  // batches; 0: the caller's thread reads
};

class RowStream {
 public:
  // INVALID_ARGUMENT: an option is out of range. Others as Source has them.
  explicit RowStream(const DatasetOptions& options);

  const DatasetOptions& options() const { return options_; }
  const Mixture& mixture() const { return mixture_; }
  const std::vector<Source>& sources() const { return sources_; }
  uint64_t rows_per_epoch() const;  // of all sources

  // Reads row n of the training, which is a pure function of the options, the files and n.
  void read(uint64_t n, const RowPlaces& out);

 private:
  DatasetOptions options_;
  Mixture mixture_;
  TokenInput input_;
  std::vector<Source> sources_;
};

}  // namespace gangway::data
