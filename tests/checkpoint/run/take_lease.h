// Takes the lease of a run's folder, however long another job's lease lasts.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "checkpoint/run/run_folder.h"

namespace gangway::test {

template <typename Folder>
void take_lease(Folder&& folder, const std::string& job, double stale_seconds = kLeaseSeconds) {
  while (!folder.try_lease(job, stale_seconds)) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace gangway::test
