// The data of a run: batches of training, in order, and batches of validation, from the beginning each time.
#pragma once

#include <string>
#include <vector>

#include "tools/train/handles.h"
#include "tools/train/settings.h"

namespace gangway::train {

// Makes the dataset of "data.train" or "data.validation". `vocab`: ids from this number on are refused.
DatasetHandle make_dataset(const Settings& settings, const char* key, int64_t vocab);
// The same of some sources; those of training are shuffled.
DatasetHandle make_dataset(const Settings& settings, const std::vector<DataPath>& sources, bool trains,
                           int64_t vocab);

class Data {
 public:
  Data(const Settings& settings, gw_gangs* gangs, int64_t vocab);

  // This rank's rows of the next global batch; valid until the next but one call.
  const gw_data_batch& next();
  bool has_validation() const { return validation_ != nullptr; }
  void begin_validation();
  const gw_data_batch& next_validation();
  int microbatches() const { return microbatches_; }

  std::string position() const;
  void restore(const std::string& position, bool ignore_differences);

 private:
  const gw_data_batch& take(gw_dataset* dataset);

  gw_gangs* gangs_;
  int64_t global_batch_;
  int microbatches_;
  DatasetHandle train_, validation_;
  gw_data_batch batch_;
};

// Prints the share and the epochs of each source of data.train.
void print_sources(const Settings& settings, int64_t vocab);

// Prints the files and rows, for --explain.
void print_data(const Settings& settings, int64_t vocab);

}  // namespace gangway::train
