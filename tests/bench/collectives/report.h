// What is printed of the measurements, and the same as JSON.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "collectives/measure.h"

namespace gangway::bench {

void print(const std::vector<Result>& results);
void print_bytes(const std::vector<Result>& results);     // bus bandwidths, and what our ranks move
void print_over_mpi(const std::vector<Result>& results);  // ours over an MPI beside that MPI
void print_inside(const std::vector<Result>& results);    // what a call costs above the engine
void print(const std::vector<Overlap>& overlaps, const Crowd& crowd);
nlohmann::json json_of(const Result& result);
nlohmann::json json_of(const Overlap& overlap, const Crowd& crowd);

}  // namespace gangway::bench
