// The bare copies that collectives are measured against.
#pragma once

#include <cstddef>

namespace gangway::bench {

enum class Copy { memcpy, non_temporal, rep_movsb };
constexpr Copy kCopies[] = {Copy::memcpy, Copy::non_temporal, Copy::rep_movsb};
const char* name(Copy copy);
void copy_bytes(Copy copy, void* to, const void* from, size_t bytes);  // pointers and bytes: multiples of 64

}  // namespace gangway::bench
