// Reads the trace files of a run's ranks (base/tracer.h), merges them, and finds the passes of a pipeline.
//
// Thread rule: pure functions of the files.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/pipeline/trace.h"

namespace gangway {

struct RankFile {
  int rank = 0, ranks = 1;  // this rank, and the number of ranks in the run
  std::string run;          // the digits of a number that all ranks of a run share
  std::string path;
};
// Returns the files rank-*.json of the folder's newest run, by rank. `left_out` gets the files of other runs,
// and empty ones. IO: the folder cannot be read. NOT_FOUND: there is no such file in it. INVALID_ARGUMENT: a
// file is no trace.
std::vector<RankFile> rank_files(const std::string& folder, std::vector<std::string>& left_out);

// Whether a symbolic link in the place of a file that is written is followed. Others may be able to write into
// the traces' folder, so a tool follows none under a name that it has chosen itself. A name that the user gives
// may be a link.
enum class Links : uint8_t { refused, followed };

// A file that is written. IO.
class TraceOutput {
 public:
  TraceOutput(std::string path, Links links);
  ~TraceOutput();
  TraceOutput(const TraceOutput&) = delete;
  TraceOutput& operator=(const TraceOutput&) = delete;

  void write(std::string_view text);  // close() reports an error
  void close();

 private:
  std::string path_;
  std::FILE* file_;
};

// Writes all events to one file for the viewers, and returns their number. IO.
size_t merge_traces(const std::vector<RankFile>& files, const std::string& path,
                    Links links = Links::followed);

// Returns pass `index` of the pipeline, by rank; its first event begins at 0. -1 means the last pass that all
// its ranks have ended. Removes from `files` the files of ranks that have ended no pass. The result is empty
// if there is no such pass.
std::vector<std::vector<TraceEvent>> pipeline_pass(std::vector<RankFile>& files, int index);

}  // namespace gangway
