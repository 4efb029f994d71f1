// The trace files of a run's ranks (base/tracer.h): put together, and the passes of a pipeline in them.
//
// Thread rule: pure functions of the files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/pipeline/trace.h"

namespace gangway {

struct RankFile {
  int rank = 0, ranks = 1;  // of the run
  uint64_t run = 0;         // a number that its ranks have in common
  std::string path;
};
// The files rank-*.json of the folder's newest run, by rank. `left_out`: those of other runs, and empty ones. IO: the folder
// cannot be read. NOT_FOUND: no such file in it. INVALID_ARGUMENT: a file that is no trace.
std::vector<RankFile> rank_files(const std::string& folder, std::vector<std::string>& left_out);

// All events in one file for the viewers. How many there are. IO.
size_t merge_traces(const std::vector<RankFile>& files, const std::string& path);

// Pass `index` of the pipeline, by rank; its first event begins at 0. -1: the last pass that all its ranks have ended. Files of
// ranks that have ended no pass are taken out of `files`. Empty: there is no such pass.
std::vector<std::vector<TraceEvent>> pipeline_pass(std::vector<RankFile>& files, int index);

}  // namespace gangway
