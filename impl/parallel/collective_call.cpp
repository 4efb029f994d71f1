#include "parallel/collective_call.h"

#include <algorithm>
#include <new>

#include "base/philox.h"
#include "gang/agreement.h"
#include "gang/byte_gather.h"

namespace gangway {
namespace {

// Returns the exception that is being handled, with the call and the rank in which it happened. Call only
// inside a catch block.
Error caught(const Gang& root, const char* call) {
  Error told(Code::internal, "");
  try {
    throw;
  } catch (const Error& error) {
    // An error that a gang threw, of this rank or of a peer, names its place already.
    if (!error.gang.empty()) return error;
    told = Error(error.code(), text(call, ": rank ", root.rank(), ": ", error.message()));
    told.system_error = error.system_error;
    told.path = error.path;
  } catch (const std::bad_alloc&) {
    told = Error(Code::out_of_memory, text(call, ": rank ", root.rank(), ": no memory left"));
  } catch (const std::exception& error) {
    told = Error(Code::internal, text(call, ": rank ", root.rank(), ": ", error.what()));
  } catch (...) {  // a caller's callback threw an object of any type; the peers need an error all the same
    told = Error(Code::internal, text(call, ": rank ", root.rank(), ": an unknown exception"));
  }
  told.gang = root.name();
  told.op = call;
  told.rank = root.rank();
  return told;
}

}  // namespace

std::vector<CollectiveCall::Payload> CollectiveCall::agree(const std::optional<Error>& refusal,
                                                           const std::string& given,
                                                           const Payload& mine) const {
  struct Vote {
    uint64_t arguments = 0;  // hash of the text
    uint64_t refused = 0;
    Payload value{};
  };
  std::vector<Vote> votes;
  std::vector<Payload> values;
  std::string arguments;
  run([&] {
    arguments = given.empty() ? name_ : given;  // with the name, ranks in different calls get MISMATCH
    votes.resize(static_cast<size_t>(root_.size()));
    values.resize(votes.size());
    const Vote vote{philox_key(0, arguments), refusal.has_value(), mine};
    root_.run_now(Channel::control, gather_of_bytes(&vote, votes.data(), sizeof vote));
  });
  // The texts travel only after a refusal or a mismatch, so that the common case is one small all-gather.
  if (std::any_of(votes.begin(), votes.end(), [&](const Vote& vote) {
        return vote.refused != 0 || vote.arguments != votes[0].arguments;
      }))
    root_.agreement().agree(refusal, arguments);
  std::transform(votes.begin(), votes.end(), values.begin(), [](const Vote& vote) { return vote.value; });
  return values;
}

void CollectiveCall::refuse(const Error& refusal) const {
  if (!alone()) agree(refusal, {}, {});
  throw refusal;
}

void CollectiveCall::thread_ends() const noexcept {
  if (alone()) return;
  Error told(Code::aborted, text(name_, ": rank ", root_.rank(), ": its thread ended in a callback"));
  told.gang = root_.name();
  told.op = name_;
  told.rank = root_.rank();
  abort(told);
}

void CollectiveCall::break_gangs() const {
  Error told(Code::out_of_memory, "no memory");  // short enough for a string that needs no allocation
  try {
    told = caught(root_, name_);
    const bool elsewhere = told.code() == Code::peer_lost || told.code() == Code::aborted;
    if (elsewhere && (mesh_ != nullptr || gangs_.size() > 1)) told = told_of_root(std::move(told));
  } catch (const std::bad_alloc&) {
  }
  abort(told);
  throw told;
}

// A lost rank has a different number in each gang of a mesh, and none in gangs that it is no member of. The
// error therefore uses its number in the root gang.
Error CollectiveCall::told_of_root(Error error) const {
  const std::optional<Error> first = root_.error();
  if (!first || first->code() != Code::peer_lost) return error;
  if (error.code() == Code::peer_lost && error.peer == first->peer) return error;
  Error told(Code::peer_lost, text(name_, error.op.empty() ? "" : " in ", error.op, ": ", first->message()));
  told.gang = root_.name();
  told.op = error.op;
  told.rank = root_.rank();
  told.peer = first->peer;
  return told;
}

void CollectiveCall::abort(const Error& error) const noexcept {
  if (mesh_ != nullptr) mesh_->abort(error);
  for (const GangPtr& gang : gangs_) gang->abort(error);
}

}  // namespace gangway
