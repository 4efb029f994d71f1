#include "checkpoint/run/meeting.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "base/interrupt.h"
#include "checkpoint/run/bytes.h"
#include "gang/agreement.h"
#include "gang/byte_gather.h"

namespace gangway {
namespace {

std::string packed(const Error& error) {
  BytesOut out;
  out.add(static_cast<uint64_t>(error.code()));
  out.add(static_cast<uint64_t>(error.system_error));
  out.add(error.path);
  out.add(error.message());
  return out.take();
}

Error unpacked(const std::string& bytes, const Gang& gang, int rank) {
  BytesIn in(bytes);
  const auto code = static_cast<Code>(in.number());
  const int system_error = static_cast<int>(in.number());
  std::string path = in.text();
  const std::string message = in.text();
  Error error(code, gang.size() == 1 ? message : text("rank ", rank, ": ", message));
  error.gang = gang.name();
  error.op = "checkpoint";
  error.rank = rank;
  error.system_error = system_error;
  error.path = std::move(path);
  return error;
}

}  // namespace

std::vector<std::string> Meeting::exchange(const std::optional<Error>& refusal, const std::string& mine) {
  std::optional<Error> agreed;
  std::vector<std::string> all;
  try {
    all = gather(refusal ? "r" + packed(*refusal) : "v" + mine);
    for (size_t r = 0; r < all.size() && !agreed; ++r)
      if (all[r][0] == 'r') agreed = unpacked(all[r].substr(1), *gang_, static_cast<int>(r));
    for (std::string& bytes : all) bytes.erase(0, 1);
  } catch (const std::exception&) {
    const Error error = current_error();
    gang_->abort(error);  // peers may wait for this rank
    throw error;
  }
  if (agreed) throw *agreed;
  return all;
}

std::vector<std::string> Meeting::gather(const std::string& mine) {
  const uint64_t own = mine.size();
  std::vector<uint64_t> sizes(static_cast<size_t>(gang_->size()));
  run(gather_of_bytes(&own, sizes.data(), sizeof own));
  const std::vector<size_t> counts(sizes.begin(), sizes.end());
  std::string bytes(std::accumulate(counts.begin(), counts.end(), size_t{0}), '\0');
  Collective record = gather_of_bytes(mine.data(), bytes.data(), mine.size());
  record.counts = counts.data();
  run(record);
  std::vector<std::string> all;
  size_t at = 0;
  for (const size_t count : counts) {
    all.push_back(bytes.substr(at, count));
    at += count;
  }
  return all;
}

void Meeting::run(const Collective& record) {
  constexpr std::chrono::milliseconds kLongest{20};
  const WorkPtr work = gang_->agreement().run(Channel::control, record);
  std::chrono::milliseconds nap{1};
  while (!work->poll()) {
    if (deadline_.passed())
      fail(Code::timeout, "checkpoint: the writers of other ranks did not come before the save's deadline");
    poll_interrupt();
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 2, kLongest);
  }
  if (const std::optional<Error> error = work->error()) throw *error;
}

}  // namespace gangway
