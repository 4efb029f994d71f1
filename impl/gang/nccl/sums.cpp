#include "gang/nccl/sums.h"

namespace gangway::nccl {
namespace {

constexpr size_t kAlignment = 256;  // of a temporary, as that of a block

}  // namespace

bool adds(const Collective& c) { return c.accumulate && c.count != 0; }

std::shared_ptr<Sums> temporaries(std::span<const Collective> span, int rank, int size,
                                  const std::shared_ptr<Buffer>& own, Device& device) {
  auto sums = std::make_shared<Sums>();
  std::vector<size_t> begins;
  size_t bytes = 0;
  for (const Collective& c : span)
    if (const size_t out = out_count(c, rank, size); adds(c) && out != 0) {
      begins.push_back(bytes);
      bytes += (out * item_bytes(c.dtype) + kAlignment - 1) / kAlignment * kAlignment;
      sums->all.push_back({c.dtype, nullptr, c.out, out});
    }
  if (bytes == 0) return sums;
  const bool fits = own != nullptr && bytes <= own->bytes();
  sums->block = fits ? own : Buffer::allocate(device.allocator(), bytes);
  for (size_t i = 0; i < begins.size(); ++i)
    sums->all[i].from = static_cast<std::byte*>(sums->block->data()) + begins[i];
  return sums;
}

}  // namespace gangway::nccl
