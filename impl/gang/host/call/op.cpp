#include "gang/host/call/op.h"

namespace gangway::host {

Part part_of(const Op& op, int j) {
  const auto i = static_cast<size_t>(j);
  if (op.counts.empty()) return {i * op.c.count, op.c.count};
  Part part{0, op.counts[i]};
  for (size_t k = 0; k < i; ++k) part.first += op.counts[k];
  return part;
}

Part received_part(const Op& op, int j, int size) {
  const auto i = static_cast<size_t>(j);
  if (op.counts.empty()) return {i * op.c.count, op.c.count};
  const size_t* const got = op.counts.data() + size;
  Part part{0, got[i]};
  for (size_t k = 0; k < i; ++k) part.first += got[k];
  return part;
}

Part even_part(size_t count, size_t item, int j, int size) {
  const size_t unit = std::max<size_t>(1, kLine / item);
  const size_t units = (count + unit - 1) / unit;
  const auto edge = [&](int k) {
    return std::min(count, units * static_cast<size_t>(k) / static_cast<size_t>(size) * unit);
  };
  return {edge(j), edge(j + 1) - edge(j)};
}

}  // namespace gangway::host
