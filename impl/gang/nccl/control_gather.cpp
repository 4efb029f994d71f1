#include "gang/nccl/control_gather.h"

#include "gang/byte_gather.h"

namespace gangway::nccl {

std::vector<uint8_t> gather(Engine& control, Stream& host_stream, std::span<const uint8_t> mine) {
  std::vector<uint8_t> all(mine.size() * static_cast<size_t>(control.size()));
  if (mine.empty()) return all;
  const Collective c = gather_of_bytes(mine.data(), all.data(), mine.size());
  if (const WorkPtr work = control.run_now(Channel::control, {&c, 1}, host_stream))
    work->wait(Deadline::never());
  return all;
}

std::vector<bool> on_all_ranks(Engine& control, Stream& host_stream, std::span<const uint8_t> facts) {
  std::vector<bool> both(facts.size(), true);
  const std::vector<uint8_t> all = gather(control, host_stream, facts);
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] == 0) both[i % facts.size()] = false;
  return both;
}

}  // namespace gangway::nccl
