// Elements of any dtype as doubles, for comparing and converting files.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "tensor/shape.h"

namespace gangway {

// Sets `values` to the numbers of the elements of `bytes`. Returns false for a dtype whose elements are no
// numbers here (8-bit floats, complex numbers).
bool to_doubles(DType dtype, const std::vector<char>& bytes, std::vector<double>& values);

// Sets `bytes` to the values in a floating dtype, rounded to nearest even. Returns the place of the first
// finite value that the dtype cannot hold, or values.size().
size_t from_doubles(DType dtype, const std::vector<double>& values, std::vector<char>& bytes);

std::string place_text(int64_t element, const Shape& shape);  // "[2, 0]", of an element of a row-major tensor

}  // namespace gangway
