#include "nn/saved_parts.h"

namespace gangway {

std::shared_ptr<SavedPart> SavedParts::of(const Module& owner) const {
  for (const auto& [module, part] : parts_)
    if (module == &owner) return part;
  return nullptr;
}

void SavedParts::drop(const Module& owner) {
  std::erase_if(parts_, [&](const auto& part) { return part.first == &owner; });
}

void SavedParts::clear() {
  parts_.clear();
  saving_ = backward_ = nullptr;
}

}  // namespace gangway
