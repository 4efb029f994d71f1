#include "gang/agreement.h"

#include <xxhash.h>

#include <cstring>
#include <numeric>

#include "base/call_signature.h"
#include "gang/byte_gather.h"

namespace gangway {
namespace {

// What one rank contributes to an agreement.
struct Vote {
  int32_t code = 0;
  int32_t unused = 0;
  uint64_t arguments = 0;  // a hash of the arguments, which must be equal on all ranks
};
static_assert(sizeof(Vote) == 16);

// An Error as bytes: its numbers, then its four texts, each after its length.
std::string pack(const Error& error) {
  const int32_t numbers[4] = {static_cast<int32_t>(error.code()), error.rank, error.peer, error.system_error};
  std::string bytes(reinterpret_cast<const char*>(numbers), sizeof numbers);
  for (const std::string* words : {&error.gang, &error.op, &error.path, &error.message()}) {
    const uint32_t length = static_cast<uint32_t>(words->size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += *words;
  }
  return bytes;
}

Error unpack(const std::string& bytes) {
  int32_t numbers[4];
  std::memcpy(numbers, bytes.data(), sizeof numbers);
  size_t at = sizeof numbers;
  std::string words[4];
  for (std::string& w : words) {
    uint32_t length;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    w = bytes.substr(at + sizeof length, length);
    at += sizeof length + length;
  }
  Error error(static_cast<Code>(numbers[0]), std::move(words[3]));
  error.gang = std::move(words[0]);
  error.op = std::move(words[1]);
  error.path = std::move(words[2]);
  error.rank = numbers[1];
  error.peer = numbers[2];
  error.system_error = numbers[3];
  return error;
}

}  // namespace

Agreement Gang::agreement() { return Agreement(*this); }

void Agreement::run_now(Channel channel, const Collective& record) { gang_.run_host(channel, record); }

WorkPtr Agreement::run(Channel channel, const Collective& record) {
  return gang_.start_host(channel, record);
}

std::vector<std::string> Agreement::all_gather_bytes(Channel channel, const std::string& mine) {
  const std::lock_guard lock(gang_.channel_mutex_[static_cast<size_t>(channel)]);
  const uint64_t own = mine.size();
  std::vector<uint64_t> sizes(static_cast<size_t>(gang_.size()));
  run_now(channel, gather_of_bytes(&own, sizes.data(), sizeof own));
  std::string packed;
  const std::vector<size_t> counts = gang_.in_mid_call([&] {
    packed.resize(std::accumulate(sizes.begin(), sizes.end(), size_t{0}));
    return std::vector<size_t>(sizes.begin(), sizes.end());
  });
  if (!packed.empty()) {
    Collective bytes = gather_of_bytes(mine.data(), packed.data(), mine.size());
    bytes.counts = counts.data();
    run_now(channel, bytes);
  }
  std::vector<std::string> all;
  size_t at = 0;
  for (const size_t count : counts) {
    all.push_back(packed.substr(at, count));
    at += count;
  }
  return all;
}

std::string Agreement::broadcast_bytes(Channel channel, const std::string& value, int root) {
  const std::lock_guard lock(gang_.channel_mutex_[static_cast<size_t>(channel)]);
  uint64_t bytes = value.size();
  Collective c;
  c.op = CollectiveOp::broadcast;
  c.in = c.out = &bytes;
  c.count = 1;
  c.dtype = DType::u64;
  c.peer = root;
  run_now(channel, c);
  std::string result =
      gang_.in_mid_call([&] { return gang_.rank() == root ? value : std::string(bytes, '\0'); });
  c.in = c.out = result.data();
  c.count = bytes;
  c.dtype = DType::u8;
  if (bytes != 0) run_now(channel, c);
  return result;
}

double Agreement::all_sum(Channel channel, double value) {
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.in = c.out = &value;
  c.count = 1;
  c.dtype = DType::f64;
  c.reduce = Reduce::sum;
  run_now(channel, c);
  return value;
}

void Agreement::agree(const std::optional<Error>& refusal, const std::string& arguments) {
  gang_.in_mid_call([&] { vote(refusal, arguments); });
}

// Throws the error after all ranks have it. Otherwise the process of a rank that throws early might end, and
// its peers would report a lost rank instead of the error.
void Agreement::throw_when_all_know(Error error) {
  try {
    gang_.barrier(Channel::control);
  } catch (const Error& broken) {  // the gang throws it in its next call
    if (broken.code() == Code::caller) throw;
  }
  throw std::move(error);
}

void Agreement::vote(const std::optional<Error>& refusal, const std::string& arguments) {
  const std::lock_guard lock(gang_.channel_mutex_[static_cast<size_t>(Channel::control)]);
  Vote mine;
  if (refusal) mine.code = static_cast<int32_t>(refusal->code());
  mine.arguments = XXH3_64bits(arguments.data(), arguments.size());
  std::vector<Vote> votes(static_cast<size_t>(gang_.size()));
  gang_.run_now(Channel::control, gather_of_bytes(&mine, votes.data(), sizeof mine));

  for (int r = 0; r < gang_.size(); ++r) {
    if (votes[static_cast<size_t>(r)].code == 0) continue;
    std::string bytes;
    if (refusal) {  // if several ranks refuse, the refusal of the lowest rank is thrown
      Error own = *refusal;
      gang_.place(own, "", -1);
      bytes = pack(own);
    }
    if (!gang_.has_peers()) throw unpack(bytes);  // every rank refused as this one did
    throw_when_all_know(unpack(broadcast_bytes(Channel::control, bytes, r)));
  }
  for (int r = 1; r < gang_.size(); ++r) {
    if (votes[static_cast<size_t>(r)].arguments == votes[0].arguments) continue;
    const std::vector<std::string> all = all_gather_bytes(Channel::control, arguments);
    Error error(Code::mismatch, difference(gang_.name(), all[0], all[static_cast<size_t>(r)], r));
    gang_.place(error, "agree", r);
    throw_when_all_know(std::move(error));
  }
}

}  // namespace gangway
