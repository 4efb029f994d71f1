#include "checkpoint/file_place.h"

#include <algorithm>
#include <utility>

namespace gangway {
namespace {

// A parameter that its files have under another name.
struct Member {
  const RenamedParameter* row;
  const NamedParameter* parameter;
};

Shape transposed(Shape shape) {
  std::swap(shape[0], shape[1]);
  return shape;
}

}  // namespace

Box FilePlace::in_file(const Box& box) const {
  Box there = box;
  there.first[0] += first_row;
  if (!transposed) return there;
  std::swap(there.first[0], there.first[1]);
  there.shape = gangway::transposed(there.shape);
  return there;
}

Tensor FilePlace::as_in_file(const Tensor& rows, const Box& box) const {
  const Tensor dense = rows.reshape(Shape{rows.count()}).slice(0, 0, box.shape.count()).reshape(box.shape);
  return transposed ? dense.transpose(0, 1) : dense;
}

FilePlaces::FilePlaces(const Module& root, const std::vector<NamedParameter>& names) {
  if (const DecoderOptions* decoder = decoder_options(root)) family_ = &family_named(decoder->family);
  std::map<std::string, std::vector<Member>> fused;  // by the name in the files
  for (const NamedParameter& named : names) {
    const RenamedParameter* row = family_ == nullptr ? nullptr : renaming_of(*family_, named.name);
    if (row == nullptr)
      places_[named.name] = {named.name, named.parameter->shape};
    else
      fused[name_in_files(*family_, named.name)].push_back({row, &named});
  }
  for (auto& [name, members] : fused) {
    std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.row < b.row; });
    Shape whole = members.front().parameter->parameter->shape;
    whole[0] = 0;
    for (const Member& member : members) whole[0] += member.parameter->parameter->shape[0];
    int64_t first = 0;
    for (const Member& member : members) {
      const bool turned = member.row->transposed;
      places_[member.parameter->name] = {name, turned ? transposed(whole) : whole, first, turned};
      first += member.parameter->parameter->shape[0];
    }
  }
}

bool FilePlaces::is_derived(const std::string& name) const {
  // A rotary table, which old files have: config.json determines it.
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  return family_ != nullptr &&
         std::any_of(family_->derived.begin(), family_->derived.end(),
                     [&](const char* pattern) { return path_matches(pattern, dropped_ + name); });
}

void FilePlaces::drop_prefix(const std::string& prefix) {
  dropped_ = prefix;
  for (auto& [parameter, place] : places_)
    if (place.name.starts_with(prefix)) place.name.erase(0, prefix.size());
}

}  // namespace gangway
