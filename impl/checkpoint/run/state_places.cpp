#include "checkpoint/run/state_places.h"

namespace gangway {
namespace {

bool is_like(const Optimizer::Slot& slot, const Parameter& parameter) {
  return slot.shape == parameter.shape && is_floating(slot.tensor.dtype());
}

}  // namespace

StatePlaces::StatePlaces(Model& model, const Optimizer& optimizer)
    : optimizer_(optimizer), places_(model.root(), model.inspect().names()) {
  for (size_t i = 0; i < optimizer.parameters().size(); ++i)
    for (const Optimizer::Slot& slot : optimizer.state(i))
      if (is_like(slot, *optimizer.parameters()[i].parameter))
        elements_[as_parameter(i, slot).name] += slot.shape.count();
}

FilePlace StatePlaces::own(size_t i, const Optimizer::Slot& slot) const {
  return {slot.name + "." + optimizer_.parameters()[i].name, slot.shape};
}

FilePlace StatePlaces::as_parameter(size_t i, const Optimizer::Slot& slot) const {
  FilePlace place = places_.of(optimizer_.parameters()[i].name);
  place.name = slot.name + "." + place.name;
  return place;
}

FilePlace StatePlaces::of(size_t i, const Optimizer::Slot& slot) const {
  if (!is_like(slot, *optimizer_.parameters()[i].parameter)) return own(i, slot);
  const FilePlace place = as_parameter(i, slot);
  return elements_.at(place.name) == place.shape.count() ? place : own(i, slot);
}

std::vector<FilePlace> StatePlaces::candidates(size_t i, const Optimizer::Slot& slot) const {
  if (!is_like(slot, *optimizer_.parameters()[i].parameter)) return {own(i, slot)};
  return {as_parameter(i, slot), own(i, slot)};
}

std::vector<std::string> StatePlaces::ends(size_t i) const {
  const std::string& name = optimizer_.parameters()[i].name;
  return {"." + name, "." + places_.of(name).name};
}

}  // namespace gangway
