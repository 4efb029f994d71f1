// f64 sums over the ranks that hold pieces of a tensor: values of many parameters, added up with one call of
// WholeTensors::sum for each set of axes.
//
// Thread rule: that of WholeTensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ops/ops.h"
#include "optim/whole_tensors.h"

namespace gangway {

class RankSums {
 public:
  // Takes place for `count` values that are summed over `axes`. Returns their number for at().
  size_t add(const std::string& axes, int64_t count) {
    places_.push_back({axes, counts_[axes], count});
    counts_[axes] += count;
    return places_.size() - 1;
  }
  // Makes all values 0, in memory of `temporaries`.
  void allocate(Ops& ops, Stack& temporaries, Stream& stream) {
    for (const auto& [axes, count] : counts_) {
      values_[axes] = temporaries.allocate(DType::f64, Shape{count});
      ops.fill(values_[axes], 0, stream);
    }
  }
  Tensor at(size_t number) const {
    const Place& place = places_[number];
    return values_.at(place.axes).slice(0, place.first, place.first + place.count);
  }
  // Replaces all values by their sums. Collective.
  void sum(WholeTensors& whole, Stream& stream) const {
    for (const auto& [axes, values] : values_) whole.sum(axes, values, stream);
  }

 private:
  struct Place {
    std::string axes;
    int64_t first, count;
  };
  std::vector<Place> places_;
  std::map<std::string, int64_t> counts_;
  std::map<std::string, Tensor> values_;
};

}  // namespace gangway
