#include "parallel/fsdp/replicate.h"

#include <algorithm>

#include "parallel/memory_use.h"

namespace gangway {
namespace {

constexpr size_t kAlign = 64;

size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

Tensor flat(const std::shared_ptr<Buffer>& memory, DType dtype) {
  return Tensor(memory, 0, dtype, Shape{static_cast<int64_t>(memory->bytes() / item_bytes(dtype))});
}

}  // namespace

Tensor Buckets::Bucket::all() const { return flat(memory, dtype); }

// With one rank the full gradient is the local one and stays visible.
void Buckets::Bucket::hide_full() {
  if (gang->size() == 1) return;
  for (const PackedParameter& p : parameters) p.parameter->grad = nullptr;
}

Tensor Buckets::Bucket::reduce_view() const { return flat(reduce_buffer, reduce_dtype); }

void Buckets::plan() {
  for (size_t u = groups_.size(); u-- > 0;) {
    const BucketGradients& group = *groups_[u];
    const auto cap = static_cast<size_t>(group.options().bucket_cap_mb * 1024 * 1024);
    const std::vector<PackedParameter>& parameters = group.packing().parameters;
    for (size_t i = parameters.size(); i-- > 0;)
      if (parameters[i].has_gradient) put(parameters[i], group, cap);
  }
  // In a bucket, gradients lie in the order of a parameter group's buffers (packing.h), so that those of
  // several parameters can be written at once.
  for (Bucket& bucket : buckets_) {
    size_t at = 0;
    for (const bool matrices : {true, false})
      for (size_t i = bucket.parameters.size(); i-- > 0;) {
        PackedParameter& p = bucket.parameters[i];
        if (p.is_matrix() != matrices) continue;
        p.gradient_at = at;
        at += aligned(p.full_bytes(p.gradient));
      }
  }
}

// Adds parameters to a bucket until the next one would exceed the cap. Each bucket gets at least one
// parameter. Where no other rank has a part, nothing is sent, and a bucket has the gradients of one group.
void Buckets::put(const PackedParameter& parameter, const BucketGradients& group, size_t cap) {
  const size_t bytes = aligned(parameter.full_bytes(parameter.gradient));
  const GangPtr gang = group.gang_of(*parameter.parameter);
  const auto is_full = [&](const Bucket& bucket) {
    return gang->size() == 1 ? bucket.groups.back() != &group : bucket.bytes + bytes > cap;
  };
  if (buckets_.empty() || buckets_.back().gang != gang || buckets_.back().dtype != parameter.gradient ||
      buckets_.back().reduce_dtype != parameter.reduce_dtype || is_full(buckets_.back())) {
    buckets_.emplace_back();
    buckets_.back().gang = gang;
    buckets_.back().dtype = parameter.gradient;
    buckets_.back().reduce_dtype = parameter.reduce_dtype;
  }
  Bucket& bucket = buckets_.back();
  bucket.parameters.push_back(parameter);
  bucket.bytes += bytes;
  if (bucket.groups.empty() || bucket.groups.back() != &group) bucket.groups.push_back(&group);
}

void Buckets::remove(const BucketGradients& group) noexcept {
  std::erase(groups_, &group);
  if (!groups_.empty()) return;
  // A reduction in flight still uses the memory, so its work keeps the memory alive.
  for (const Bucket& bucket : buckets_) {
    if (bucket.work == nullptr) continue;
    bucket.gang->owner()->works()->keep(bucket.work, bucket.memory);
    if (bucket.reduce_buffer != nullptr)
      bucket.gang->owner()->works()->keep(bucket.work, bucket.reduce_buffer);
  }
  buckets_.clear();
}

void Buckets::allocate() {
  plan();
  Stream& stream = ops_->device().stream();
  for (Bucket& bucket : buckets_) {
    bucket.memory = Buffer::allocate(bucket.gang->allocator(), bucket.bytes);
    // The gaps between parameters are reduced, too, so they must hold numbers.
    ops_->device().zero(bucket.memory->data(), bucket.bytes, stream);
    if (bucket.reduce_dtype != bucket.dtype)
      bucket.reduce_buffer =
          Buffer::allocate(bucket.gang->allocator(),
                           bucket.bytes / item_bytes(bucket.dtype) * item_bytes(bucket.reduce_dtype));
    for (const PackedParameter& packed : bucket.parameters) {
      Parameter& p = *packed.parameter;
      p.shard_grad = make_accumulator(whole_view(bucket.memory, packed.gradient_at, packed.gradient, packed));
      p.grad = bucket.gang->size() == 1 ? p.shard_grad : nullptr;
    }
  }
}

void Buckets::begin(const BucketGradients& group, Stream& stream) {
  for (Bucket& bucket : buckets_) {
    if (std::find(bucket.groups.begin(), bucket.groups.end(), &group) == bucket.groups.end()) continue;
    if (bucket.state == State::in_flight) end(bucket, stream);
    if (bucket.state == State::local) continue;
    // The present contents (a sum, or values that the caller wrote) are equal on all ranks and must count
    // once.
    if (bucket.gang->rank() != 0)
      for (const PackedParameter& p : bucket.parameters) p.parameter->shard_grad->written = false;
    for (const PackedParameter& p : bucket.parameters) p.parameter->grad = p.parameter->shard_grad;
    bucket.state = State::local;
    bucket.waits_for = bucket.groups.size();
  }
}

void Buckets::done(const BucketGradients& group, Stream& stream) {
  for (Bucket& bucket : buckets_) {
    if (bucket.state != State::local) continue;
    if (std::find(bucket.groups.begin(), bucket.groups.end(), &group) == bucket.groups.end()) continue;
    if (--bucket.waits_for == 0) start(bucket, stream);
  }
}

void Buckets::start(Bucket& bucket, Stream& stream) {
  for (const PackedParameter& p : bucket.parameters)
    p.parameter->shard_grad->zero_if_unwritten(*ops_, stream);
  bucket.state = State::in_flight;
  bucket.work = finished_work();
  if (bucket.gang->size() == 1) return;
  bucket.hide_full();
  if (bucket.reduce_buffer != nullptr) ops_->cast(bucket.all(), bucket.reduce_view(), stream);
  const Tensor moved = bucket.reduce_buffer != nullptr ? bucket.reduce_view() : bucket.all();
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.in = c.out = moved.raw();
  c.count = static_cast<size_t>(moved.count());
  c.dtype = moved.dtype();
  c.reduce = Reduce::sum;
  bucket.work = bucket.gang->run(Channel::replicate, c, &stream);
}

void Buckets::end(Bucket& bucket, Stream& stream) {
  bucket.work->order(stream);
  bucket.work->order_input(stream);
  bucket.work = nullptr;
  if (bucket.reduce_buffer != nullptr && bucket.gang->size() > 1)
    ops_->cast(bucket.reduce_view(), bucket.all(), stream);
  bucket.state = State::summed;
}

void Buckets::start_leftovers(Stream& stream) {
  for (Bucket& bucket : buckets_)
    if (bucket.state == State::local) start(bucket, stream);
}

void Buckets::finish(Stream& stream) {
  for (Bucket& bucket : buckets_) {
    if (bucket.state == State::in_flight) end(bucket, stream);
    if (bucket.state != State::empty) continue;
    for (const PackedParameter& p : bucket.parameters)  // no backward ran
      p.parameter->shard_grad->zero_if_unwritten(*ops_, stream);
    bucket.state = State::summed;
  }
}

void Buckets::zero(Stream& stream) {
  for (Bucket& bucket : buckets_) {
    if (bucket.state == State::in_flight) end(bucket, stream);
    bucket.state = State::empty;
    bucket.hide_full();
    for (const PackedParameter& p : bucket.parameters) p.parameter->shard_grad->written = false;
  }
}

size_t Buckets::gradient_bytes() const {
  size_t bytes = 0;
  for (const Bucket& bucket : buckets_) bytes += bucket.bytes;
  return bytes;
}

size_t Buckets::reduce_bytes() const {
  size_t bytes = 0;
  for (const Bucket& bucket : buckets_)
    bytes += bucket.reduce_buffer != nullptr ? bucket.reduce_buffer->bytes() : 0;
  return bytes;
}

BucketGradients::BucketGradients(const ShardOptions& options, const GroupContext& place,
                                 const Packing& packing, std::shared_ptr<Buckets> buckets)
    : options_(options),
      place_(place),
      packing_(packing),
      buckets_(std::move(buckets)),
      first_(buckets_->empty()) {
  buckets_->add(*this);
}

void BucketGradients::allocate() {
  if (first_) buckets_->allocate();
}

void BucketGradients::weight_half_done(bool last, Stream& stream) {
  if (last) buckets_->done(*this, stream);
}

void BucketGradients::count(MemoryUse& use) const {
  if (!first_) return;
  use.gradient_shards += buckets_->gradient_bytes();
  use.full_gradients += buckets_->reduce_bytes();
}

}  // namespace gangway
