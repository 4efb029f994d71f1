#include "tools/train/data.h"

#include <cinttypes>
#include <cstdio>

#include "tools/train/build.h"
#include "tools/train/status.h"

namespace gangway::train {
namespace {

int data_ranks_of(gw_gangs* gangs) {
  int32_t index = 0, count = 1;
  check(gw_gangs_data_shard(gangs, &index, &count));
  return count;
}

void print_dataset(const Settings& s, const char* key, int64_t vocab) {
  const DatasetHandle dataset = make_dataset(s, key, vocab);
  int64_t rows = 0;
  check(gw_dataset_rows_per_epoch(dataset.get(), &rows));
  std::string paths;
  for (const DataPath& source : s.sources(key)) paths += (paths.empty() ? "" : ", ") + source.path;
  std::printf("%-12s%s: %" PRId64 " rows an epoch", key, paths.c_str(), rows);
  if (std::string(key) == "data.train")
    std::printf(", %.2f epochs", static_cast<double>(s.integer("train.steps")) *
                                     static_cast<double>(s.integer("train.global_batch")) /
                                     static_cast<double>(rows));
  std::printf("\n");
}

}  // namespace

DatasetHandle make_dataset(const Settings& s, const char* key, int64_t vocab) {
  return make_dataset(s, s.sources(key), std::string(key) == "data.train", vocab);
}

DatasetHandle make_dataset(const Settings& s, const std::vector<DataPath>& paths, bool trains,
                           int64_t vocab) {
  std::vector<gw_data_source> sources;
  for (const DataPath& path : paths) {
    auto source = fresh(gw_data_source_init);
    source.path = path.path.c_str();
    source.format = path.format.empty() ? nullptr : path.format.c_str();
    source.weight = path.weight;
    sources.push_back(source);
  }
  auto options = fresh(gw_dataset_options_init);
  options.sources = sources.data();
  options.source_count = sources.size();
  options.sequence = s.integer("data.sequence");
  options.seed = static_cast<uint64_t>(s.integer("train.seed"));
  options.vocab_size = vocab;
  options.document_end = s.integer("data.document_end");
  options.packing = s.text("data.packing") == "documents" ? GW_PACKING_DOCUMENTS : GW_PACKING_STREAM;
  options.shuffle = trains ? 1 : 0;
  gw_dataset* dataset = nullptr;
  check(gw_dataset_create(&options, &dataset));
  return DatasetHandle(dataset);
}

Data::Data(const Settings& s, gw_gangs* gangs, int64_t vocab)
    : gangs_(gangs),
      global_batch_(s.integer("train.global_batch")),
      microbatches_(microbatches_of(s, data_ranks_of(gangs))),
      train_(make_dataset(s, "data.train", vocab)),
      batch_(fresh(gw_data_batch_init)) {
  if (!s.sources("data.validation").empty()) validation_ = make_dataset(s, "data.validation", vocab);
}

const gw_data_batch& Data::take(gw_dataset* dataset) {
  check(gw_dataset_next(dataset, gangs_, global_batch_, &batch_));
  return batch_;
}

const gw_data_batch& Data::next() { return take(train_.get()); }
void Data::begin_validation() { check(gw_dataset_set_rows_taken(validation_.get(), 0)); }
const gw_data_batch& Data::next_validation() { return take(validation_.get()); }

std::string Data::position() const {
  size_t length = 0;
  check(gw_dataset_position(train_.get(), nullptr, 0, &length));
  std::string text(length + 1, '\0');
  check(gw_dataset_position(train_.get(), text.data(), text.size(), &length));
  text.resize(length);
  return text;
}

void Data::restore(const std::string& position, bool ignore_differences) {
  check(gw_dataset_restore(train_.get(), position.c_str(), ignore_differences ? 1 : 0));
}

void print_sources(const Settings& s, int64_t vocab) {
  const std::vector<DataPath> sources = s.sources("data.train");
  double all = 0;
  for (const DataPath& source : sources) all += source.weight;
  const double taken =
      static_cast<double>(s.integer("train.steps")) * static_cast<double>(s.integer("train.global_batch"));
  for (const DataPath& source : sources) {
    const DatasetHandle dataset = make_dataset(s, {source}, /*trains=*/true, vocab);
    int64_t rows = 0;
    check(gw_dataset_rows_per_epoch(dataset.get(), &rows));
    const double share = source.weight / all;
    std::printf("  %-30s %5.1f %% of the rows, %.2f epochs of its %" PRId64 "\n", source.path.c_str(),
                100 * share, taken * share / static_cast<double>(rows), rows);
  }
}

void print_data(const Settings& s, int64_t vocab) {
  print_dataset(s, "data.train", vocab);
  if (s.sources("data.train").size() > 1) print_sources(s, vocab);
  if (!s.sources("data.validation").empty()) print_dataset(s, "data.validation", vocab);
}

}  // namespace gangway::train
