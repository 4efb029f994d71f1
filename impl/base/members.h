// Visits the members of a plain struct, so that code about all of them needs no list of their names.
//
// Thread rule: none; pure functions.
#pragma once

#include <cstddef>
#include <type_traits>

namespace gangway {
namespace members {

// Converts to any type. The conversion has no definition, because it is never called.
struct Anything {
  template <typename T>
  operator T() const;
};

// The number of values that initialise all members of the aggregate.
template <typename Record, typename... Values>
constexpr size_t count() {
  if constexpr (requires { Record{Values()..., Anything()}; })
    return count<Record, Values..., Anything>();
  else
    return sizeof...(Values);
}

}  // namespace members

// Calls visit(member...) with all members in their order and returns its result. `Record` is an aggregate
// without base classes and array members. It has 2 to 20 members; another one does not compile.
template <typename Record, typename Visit>
decltype(auto) with_members(Record& record, Visit&& visit) {
  constexpr size_t kCount = members::count<std::remove_const_t<Record>>();
  static_assert(kCount >= 2 && kCount <= 20, "add the number of members below");
  if constexpr (kCount == 2) {
    auto& [a, b] = record;
    return visit(a, b);
  } else if constexpr (kCount == 3) {
    auto& [a, b, c] = record;
    return visit(a, b, c);
  } else if constexpr (kCount == 4) {
    auto& [a, b, c, d] = record;
    return visit(a, b, c, d);
  } else if constexpr (kCount == 5) {
    auto& [a, b, c, d, e] = record;
    return visit(a, b, c, d, e);
  } else if constexpr (kCount == 6) {
    auto& [a, b, c, d, e, f] = record;
    return visit(a, b, c, d, e, f);
  } else if constexpr (kCount == 7) {
    auto& [a, b, c, d, e, f, g] = record;
    return visit(a, b, c, d, e, f, g);
  } else if constexpr (kCount == 8) {
    auto& [a, b, c, d, e, f, g, h] = record;
    return visit(a, b, c, d, e, f, g, h);
  } else if constexpr (kCount == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = record;
    return visit(a, b, c, d, e, f, g, h, i);
  } else if constexpr (kCount == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = record;
    return visit(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (kCount == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = record;
    return visit(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (kCount == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = record;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (kCount == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = record;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (kCount == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = record;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  } else if constexpr (kCount == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = record;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  } else if constexpr (kCount == 16) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = record;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  } else if constexpr (kCount == 17) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = record;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q);
  } else if constexpr (kCount == 18) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = record;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
  } else if constexpr (kCount == 19) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s] = record;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s);
  } else if constexpr (kCount == 20) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = record;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
  }
}

}  // namespace gangway
