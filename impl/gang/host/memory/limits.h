// The default limits of the arena, by the memory of the host.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gangway::host {

uint64_t default_reserve();            // min(8 x RAM, 256 GiB); less under the thread sanitizer
uint64_t default_limit();              // 80 % of what the host has available
void touch(void* data, size_t bytes);  // takes the pages of [data, data + bytes) now

}  // namespace gangway::host
