// Values of parameters from tensors that have the names and shapes of a family's files.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/file_place.h"
#include "parallel/model/model.h"

namespace gangway::test {

// Returns what `all`, the whole tensor at `place`, has of a parameter of this shape.
inline std::vector<double> part_of(const std::vector<double>& all, const FilePlace& place,
                                   const Shape& shape) {
  const int64_t rows = shape[0], columns = shape.count() / rows;
  const int64_t whole_rows = static_cast<int64_t>(all.size()) / columns;
  std::vector<double> own;
  for (int64_t row = place.first_row; row < place.first_row + rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      own.push_back(
          all[static_cast<size_t>(place.transposed ? column * whole_rows + row : row * columns + column)]);
  return own;
}

inline FilePlaces places_of(Model& model) { return FilePlaces(model.root(), model.inspect().names()); }

// A constant that is added to all scores of a query changes nothing, so that the key bias of gpt2, which has
// no rotary angles, has no gradient but noise.
inline bool is_noise(const std::string& family, const std::string& parameter) {
  return family == "gpt2" && parameter.ends_with("k_proj.bias");
}

}  // namespace gangway::test
