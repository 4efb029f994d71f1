#include "gang/local/local_engine.h"

#include <algorithm>
#include <cstring>

namespace gangway {

void LocalState::fail_with(const Error& first) noexcept {
  const std::lock_guard lock(mutex);
  keep_first(error, first);
  changed.notify_all();
}

LocalEngine::LocalEngine(std::shared_ptr<Rank> rank, const EngineOptions& options)
    : rank_(std::move(rank)), options_(options), state_(std::make_shared<LocalState>()) {}

SharedRegion LocalEngine::allocate(size_t bytes) {
  const std::shared_ptr<Buffer> writable = Buffer::allocate(allocator(), bytes);
  if (writable->data() != nullptr) std::memset(writable->data(), 0, bytes);
  return {writable, Buffer::borrow(rank_->device(), writable->kind(), writable->data(), bytes, writable,
                                   /*read_only=*/true)};
}

void LocalEngine::publish(std::atomic<uint64_t>& counter, uint64_t value) {
  throw_if_broken();
  counter.store(value, std::memory_order_release);
  const std::lock_guard lock(state_->mutex);
  state_->changed.notify_all();
}

void LocalEngine::abort(const Error& error) noexcept {
  if (error.code() != Code::aborted) return state_->fail_with(error);
  try {
    Error whose(Code::aborted, text(options_.label, ": aborted by rank ", rank(), ": ", error.message()));
    whose.gang = error.gang;
    whose.op = error.op;
    whose.rank = whose.peer = rank();
    state_->fail_with(whose);
  } catch (const std::bad_alloc&) {  // no memory to add the rank's name: the error stays as it is
    state_->fail_with(error);
  }
}

std::optional<Error> LocalEngine::error() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error;
}

void LocalEngine::throw_if_broken() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->error) throw *state_->error;
}

void LocalEngine::count(Channel channel, const Collective& c, uint64_t bytes_received) {
  const size_t elements = std::max(in_count(c, rank(), size()), out_count(c, rank(), size()));
  log_.end(log_.begin(channel, c, elements, bytes_received), "done");
}

}  // namespace gangway
