// Values of a parameter group of which each rank has a private shard. unshard is an all-gather on
// Channel::fsdp_gather into a slot (buffers.h). Peers may read the input of a gather until the gather ends,
// so an update first waits for the last gather. This replaces the version gate.
//
// With a post-forward gang (k ranks of the gang, k > 1) each rank copies one k-th of the whole values after
// forward, and backward gathers from those k ranks instead of all W.
//
// With cpu_offload the shards rest on the host. A stream beside the compute stream copies this rank's rows to
// their place in the slot, where they are gathered in place. This also holds for W = 1, where the copy is
// everything.
//
// Thread rule: that of GroupValues.
#pragma once

#include "parallel/fsdp/group_values.h"

namespace gangway {

class GatheredValues final : public GroupValues {
 public:
  // `shares_slots`: gathers into the shared ring of slots, else into a buffer of its own.
  GatheredValues(const std::string& group, const GroupContext& place, const Packing& packing,
                 bool shares_slots);
  ~GatheredValues() override;

  void allocate() override;
  void prefetch(Stream& stream) override;
  void reshard() override;
  void keep_part(Stream& stream) override;
  WorkPtr gathering() const override;
  void release(Stream& stream) override;
  void wait_released(Stream& stream) override;
  void list(RegisteredBuffers& buffers) const override;
  void check_exports() const override;
  void count(MemoryUse& use) const override;

 private:
  // This rank's part of the whole values, which are spread over the post-forward gang.
  struct Kept {
    std::shared_ptr<Buffer> buffer;  // the parts of all parameters, one after the other
    size_t bytes = 0;                // 0: there is no post-forward gang
    bool valid = false;              // from forward to the end of backward, or to an update
    WorkPtr last;                    // the last gather, in which peers may still read the buffer
  };

  Tensor own_rows(const PackedParameter& p) const override;
  void make_whole(Stream& stream) override;
  void forget_whole(bool wanted_next) override;
  bool gathered() const;  // whether the slot holds this group's values, or an all-gather in flight fills it
  void gather(AllGatherBuffer& slot, Stream& stream);
  void gather_from_host(AllGatherBuffer& slot, Stream& stream);
  void wait_for(AllGatherBuffer& slot, Stream& stream);
  void leave_slot();
  void list_slots(const GangPtr& gang, RegisteredBuffers& buffers) const;
  size_t kept_bytes(const PackedParameter& p) const;  // a multiple of 64

  const bool shares_slots_;
  std::shared_ptr<Buffer> own_;
  AllGatherBuffer own_slot_;
  // The slot of the values that are gathered or in flight. They are gone when the slot has another lease.
  AllGatherBuffer* slot_ = nullptr;
  uint64_t lease_ = 0;
  WorkPtr last_;                         // the last gather, in which peers may still read this rank's rows
  bool from_post_forward_gang_ = false;  // where the values in the slot were gathered
  Kept kept_;
};

}  // namespace gangway
