// Values of a parameter group whose shard is the whole value: on one rank, with NO_SHARD, or of a group
// without elements. It has no region, no slot and no version gate.
//
// Thread rule: that of GroupValues.
#pragma once

#include "parallel/fsdp/group_values.h"

namespace gangway {

class WholeValues final : public GroupValues {
 public:
  using GroupValues::GroupValues;

  void allocate() override;
  void count(MemoryUse& use) const override;

 private:
  Tensor own_rows(const PackedParameter& p) const override;
  Tensor value_at_rest(const Tensor& own) const override { return own; }
  void make_whole(Stream&) override {}
  void forget_whole(bool /*wanted_next*/) override {}

  std::shared_ptr<Buffer> own_;
};

}  // namespace gangway
