// Values of a parameter group in memory that the ranks of one host share: one region [W * ceil(n / W), ...]
// for each parameter, in which each rank owns its rows. It holds the f32 or f64 master itself, or with
// another compute dtype a copy, and the master is private. unshard waits for the version gate
// (version_gate.h) and copies nothing; whole values are views of the read-only mapping.
//
// Thread rule: that of GroupValues.
#pragma once

#include <optional>

#include "parallel/fsdp/group_values.h"
#include "parallel/fsdp/version_gate.h"

namespace gangway {

class RegionValues final : public GroupValues {
 public:
  using GroupValues::GroupValues;

  size_t region_bytes() const override { return packing_.bytes.full; }
  void open_region(const SharedRegion& region, const SharedRegion& gates, size_t gate_offset) override;
  void release(Stream& stream) override;
  void wait_released(Stream& stream) override;
  void publish(bool cast, Stream& stream) override;
  void count(MemoryUse& use) const override;

 private:
  Tensor own_rows(const PackedParameter& p) const override;
  void make_whole(Stream& stream) override;
  void forget_whole(bool wanted_next) override;

  SharedRegion region_;
  std::optional<VersionGate> gate_;  // from open_region on
};

}  // namespace gangway
