// Arithmetic, comparisons and choices.
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "gpu_emulation/ptx/types.h"

namespace gpu_emulation::ptx {
namespace {

template <typename T>
constexpr bool kFloat = std::is_floating_point_v<T>;
// Integers wrap around.
template <typename T>
using Wrapping = typename std::conditional_t<kFloat<T>, std::type_identity<T>, std::make_unsigned<T>>::type;
template <typename T>
using Twice = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

template <typename T>
T wrapped(auto value) {
  return static_cast<T>(value);
}

struct Add {
  template <typename T>
  static T of(T a, T b) {
    return wrapped<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Sub {
  template <typename T>
  static T of(T a, T b) {
    return wrapped<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  }
};
struct Mul {
  template <typename T>
  static T of(T a, T b) {
    if constexpr (kFloat<T>)
      return a * b;
    else  // 64 bits, because 16 would become a signed int
      return wrapped<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};
struct MulHigh {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>((static_cast<Twice<T>>(a) * static_cast<Twice<T>>(b)) >> (sizeof(T) * 8));
  }
};
struct Div {
  template <typename T>
  static T of(T a, T b) {
    if constexpr (!kFloat<T>) {
      if (b == 0) return static_cast<T>(~T{});  // not defined in PTX
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub::of(T{}, a);
    }
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <typename T>
  static T of(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
// Of a number and NaN, the number.
struct Min {
  template <typename T>
  static T of(T a, T b) {
    if constexpr (kFloat<T>) {
      if (a != a) return b;
      if (b != b) return a;
      if (a == b) return std::signbit(a) ? a : b;
    }
    return a < b ? a : b;
  }
};
struct Max {
  template <typename T>
  static T of(T a, T b) {
    if constexpr (kFloat<T>) {
      if (a != a) return b;
      if (b != b) return a;
      if (a == b) return std::signbit(a) ? b : a;
    }
    return a > b ? a : b;
  }
};
struct Fma {
  template <typename T>
  static T of(T a, T b, T c) {
    if constexpr (kFloat<T>)
      return std::fma(a, b, c);
    else
      return Add::of(Mul::of(a, b), c);
  }
};
struct Neg {
  template <typename T>
  static T of(T a) {
    if constexpr (kFloat<T>)
      return -a;
    else
      return Sub::of(T{}, a);
  }
};
struct Abs {
  template <typename T>
  static T of(T a) {
    if constexpr (kFloat<T>) return std::fabs(a);
    return a < 0 ? Neg::of(a) : a;
  }
};
struct Not {
  template <typename T>
  static T of(T a) {
    return static_cast<T>(~a);
  }
};
struct And {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct CopySign {  // of the first number, to the second
  template <typename T>
  static T of(T a, T b) {
    return std::copysign(b, a);
  }
};
struct Sqrt {
  template <typename T>
  static T of(T a) {
    return std::sqrt(a);
  }
};
struct Reciprocal {
  template <typename T>
  static T of(T a) {
    return T{1} / a;
  }
};

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
// A device's results differ in the last bits: relative error 2^-22.
struct Exp2Approximate {
  static float of(float x) { return flushed(std::exp2(flushed(x))); }
};
struct ReciprocalApproximate {
  static float of(float x) { return flushed(1.0f / flushed(x)); }
  // Has only the upper 32 bits.
  static double of(double x) {
    return std::bit_cast<double>(std::bit_cast<uint64_t>(1.0 / x) & 0xffffffff00000000u);
  }
};

template <typename T, typename Op>
void one(const Instruction& i, State& s) {
  s.put<T>(i.at[0], Op::of(s.get<T>(i.at[1])));
}
template <typename T, typename Op>
void two(const Instruction& i, State& s) {
  s.put<T>(i.at[0], Op::of(s.get<T>(i.at[1]), s.get<T>(i.at[2])));
}
template <typename T, typename Op>
void three(const Instruction& i, State& s) {
  s.put<T>(i.at[0], Op::of(s.get<T>(i.at[1]), s.get<T>(i.at[2]), s.get<T>(i.at[3])));
}
template <typename T>
void mul_wide(const Instruction& i, State& s) {
  using W = Twice<T>;
  if constexpr (sizeof(W) <= 8)
    s.put<W>(i.at[0], static_cast<W>(s.get<T>(i.at[1])) * static_cast<W>(s.get<T>(i.at[2])));
}
template <typename T>
void mad_wide(const Instruction& i, State& s) {
  using W = Twice<T>;
  if constexpr (sizeof(W) <= 8)
    s.put<W>(i.at[0],
             Add::of(static_cast<W>(static_cast<W>(s.get<T>(i.at[1])) * static_cast<W>(s.get<T>(i.at[2]))),
                     s.get<W>(i.at[3])));
}
// Shifts by more than all bits are defined in PTX.
template <typename T, bool left>
void shift(const Instruction& i, State& s) {
  constexpr uint32_t bits = sizeof(T) * 8;
  const T a = s.get<T>(i.at[1]);
  const uint32_t by = s.get<uint32_t>(i.at[2]);
  T result = by < bits ? static_cast<T>(left ? static_cast<std::make_unsigned_t<T>>(a) << by : a >> by) : T{};
  if (by >= bits && !left && a < 0) result = static_cast<T>(-1);
  s.put<T>(i.at[0], result);
}

enum class Test { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
template <typename T, Test test>
void compare(const Instruction& i, State& s) {
  const T a = s.get<T>(i.at[1]), b = s.get<T>(i.at[2]);
  const bool unordered = a != a || b != b;
  bool result = false;
  switch (test) {
    case Test::eq: result = a == b; break;
    case Test::ne: result = a != b && !unordered; break;
    case Test::lt: result = a < b; break;
    case Test::le: result = a <= b; break;
    case Test::gt: result = a > b; break;
    case Test::ge: result = a >= b; break;
    case Test::equ: result = a == b || unordered; break;
    case Test::neu: result = a != b; break;
    case Test::ltu: result = a < b || unordered; break;
    case Test::leu: result = a <= b || unordered; break;
    case Test::gtu: result = a > b || unordered; break;
    case Test::geu: result = a >= b || unordered; break;
    case Test::num: result = !unordered; break;
    case Test::nan: result = unordered; break;
  }
  s.put<bool>(i.at[0], result);
}

template <typename T>
void select(const Instruction& i, State& s) {
  s.put<T>(i.at[0], s.get<T>(s.is_true(i.at[3]) ? i.at[1] : i.at[2]));
}
template <typename T>
void move(const Instruction& i, State& s) {
  s.put<T>(i.at[0], s.get<T>(i.at[1]));
}
void move_predicate(const Instruction& i, State& s) { s.put<bool>(i.at[0], s.is_true(i.at[1])); }
void not_predicate(const Instruction& i, State& s) { s.put<bool>(i.at[0], !s.is_true(i.at[1])); }
template <typename Op>
void predicates(const Instruction& i, State& s) {
  s.put<bool>(i.at[0], Op::template of<uint8_t>(s.is_true(i.at[1]), s.is_true(i.at[2])) != 0);
}
// Between a wide register and two or more narrow ones, the lowest first.
template <typename Narrow, int n>
void pack(const Instruction& i, State& s) {
  uint64_t word = 0;
  for (int k = 0; k < n; ++k)
    word |= uint64_t{s.get<Narrow>(i.at[static_cast<size_t>(k + 1)])}
            << k * static_cast<int>(sizeof(Narrow)) * 8;
  s.slots[i.at[0]] = word;
}
template <typename Narrow, int n>
void unpack(const Instruction& i, State& s) {
  const uint64_t word = s.slots[i.at[n]];
  for (int k = 0; k < n; ++k)
    s.put<Narrow>(i.at[static_cast<size_t>(k)],
                  static_cast<Narrow>(word >> k * static_cast<int>(sizeof(Narrow)) * 8));
}

void reverse_bits(const Instruction& i, State& s) {
  uint32_t a = s.get<uint32_t>(i.at[1]), result = 0;
  for (int k = 0; k < 32; ++k, a >>= 1) result = result << 1 | (a & 1u);
  s.put<uint32_t>(i.at[0], result);
}
void leading_zeros(const Instruction& i, State& s) {  // bfind.shiftamt: -1 of 0
  const uint32_t a = s.get<uint32_t>(i.at[1]);
  s.put<uint32_t>(i.at[0], a == 0 ? ~0u : static_cast<uint32_t>(std::countl_zero(a)));
}

// Puts the lowest bits of a number into another one.
template <typename T>
void insert_bits(const Instruction& i, State& s) {
  constexpr uint32_t bits = sizeof(T) * 8;
  const uint32_t at = s.get<uint32_t>(i.at[3]) & 0xffu, count = s.get<uint32_t>(i.at[4]) & 0xffu;
  const T ones = count >= bits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
  const T mask = at >= bits ? T{0} : static_cast<T>(ones << at);
  const T moved = at >= bits ? T{0} : static_cast<T>(s.get<T>(i.at[1]) << at);
  s.put<T>(i.at[0], static_cast<T>((moved & mask) | (s.get<T>(i.at[2]) & ~mask)));
}

template <int mode, Handler handler>
void rounded(const Instruction& i, State& s) {
  const int before = std::fegetround();
  std::fesetround(mode);
  handler(i, s);  // reads and writes memory, so that the compiler keeps the order
  std::fesetround(before);
}

template <typename Op>
Handler any_two(const Form& form) {
  return with_number(form.type(), [](auto t) -> Handler { return two<decltype(t), Op>; });
}
template <typename Op>
Handler bits(const Form& form) {
  if (form.type() == "pred") return predicates<Op>;
  return with_integer(form.type(), [](auto t) -> Handler { return two<decltype(t), Op>; });
}
template <typename Op>
Handler any_one(const Form& form) {
  return with_number(form.type(), [](auto t) -> Handler { return one<decltype(t), Op>; });
}
template <typename Op>
Handler float_one(const Form& form) {
  return with_float(form.type(), [](auto t) -> Handler { return one<decltype(t), Op>; });
}

Handler multiply(const Form& form) {
  if (form.has("hi"))
    return with_integer(form.type(), [](auto t) -> Handler { return two<decltype(t), MulHigh>; });
  if (form.has("wide"))
    return with_integer(form.type(), [](auto t) -> Handler { return mul_wide<decltype(t)>; });
  return any_two<Mul>(form);
}

Handler comparison(const Form& form) {
  if (form.parts.size() != 3) return nullptr;
  std::string test = form.parts[1];
  const auto with = [&](auto constant) {
    return with_number(form.type(), [&](auto t) -> Handler { return compare<decltype(t), constant()>; });
  };
  if (test == "lo") test = "lt";
  if (test == "ls") test = "le";
  if (test == "hi") test = "gt";
  if (test == "hs") test = "ge";
#define GPU_EMULATION_TEST(name) \
  if (test == #name) return with(std::integral_constant<Test, Test::name>())
  GPU_EMULATION_TEST(eq);
  GPU_EMULATION_TEST(ne);
  GPU_EMULATION_TEST(lt);
  GPU_EMULATION_TEST(le);
  GPU_EMULATION_TEST(gt);
  GPU_EMULATION_TEST(ge);
  GPU_EMULATION_TEST(equ);
  GPU_EMULATION_TEST(neu);
  GPU_EMULATION_TEST(ltu);
  GPU_EMULATION_TEST(leu);
  GPU_EMULATION_TEST(gtu);
  GPU_EMULATION_TEST(geu);
  GPU_EMULATION_TEST(num);
  GPU_EMULATION_TEST(nan);
  return nullptr;
}

Handler moving(const Form& form) {
  const size_t bytes = form.type() == "pred" ? 1 : form.type().ends_with("64") ? 8 : 4;
  if (form.groups[0] == 1 && form.groups[1] == 1) {
    if (form.type() == "pred") return move_predicate;
    return with_number(form.type(), [](auto t) -> Handler { return move<decltype(t)>; });
  }
  const size_t pieces = std::max(form.groups[0], form.groups[1]);
  const bool packs = form.groups[1] > 1;
  if (bytes == 8 && pieces == 2) return packs ? pack<uint32_t, 2> : unpack<uint32_t, 2>;
  if (bytes == 8 && pieces == 4) return packs ? pack<uint16_t, 4> : unpack<uint16_t, 4>;
  if (bytes == 4 && pieces == 2) return packs ? pack<uint16_t, 2> : unpack<uint16_t, 2>;
  return nullptr;
}

// The forms that do not round to nearest.
Handler rounding(const Form& form) {
  if (form.root() == "fma" && form.has("rm") && form.type() == "f32")
    return rounded<FE_DOWNWARD, three<float, Fma>>;
  if (form.root() == "add" && form.has("rz") && form.type() == "f32")
    return rounded<FE_TOWARDZERO, two<float, Add>>;
  return nullptr;
}

Handler approximation(const Form& form) {
  if (form.root() == "ex2" && form.type() == "f32") return one<float, Exp2Approximate>;
  if (form.root() == "rcp") return float_one<ReciprocalApproximate>(form);
  return nullptr;
}

}  // namespace

Handler arithmetic(const Form& form) {
  const std::string& root = form.root();
  if (form.has("rm") || form.has("rz") || form.has("rp")) return rounding(form);
  if (form.has("approx")) return approximation(form);
  for (const char* const other : {"sat", "ftz", "cc", "NaN", "xorsign", "relu", "oob"})
    if (form.has(other)) return nullptr;
  if (root == "add") return any_two<Add>(form);
  if (root == "sub") return any_two<Sub>(form);
  if (root == "mul") return multiply(form);
  if (root == "mad" && form.has("wide"))
    return with_integer(form.type(), [](auto t) -> Handler { return mad_wide<decltype(t)>; });
  if ((root == "mad" && form.has("lo")) || root == "fma")
    return with_number(form.type(), [](auto t) -> Handler { return three<decltype(t), Fma>; });
  if (root == "div") return any_two<Div>(form);
  if (root == "rem")
    return with_integer(form.type(), [](auto t) -> Handler { return two<decltype(t), Rem>; });
  if (root == "min") return any_two<Min>(form);
  if (root == "max") return any_two<Max>(form);
  if (root == "neg") return any_one<Neg>(form);
  if (root == "abs") return any_one<Abs>(form);
  if (root == "rcp") return float_one<Reciprocal>(form);
  if (root == "sqrt") return float_one<Sqrt>(form);
  if (root == "copysign")
    return with_float(form.type(), [](auto t) -> Handler { return two<decltype(t), CopySign>; });
  if (root == "bfi" && form.type() == "b32") return insert_bits<uint32_t>;
  if (root == "bfi" && form.type() == "b64") return insert_bits<uint64_t>;
  if (root == "and") return bits<And>(form);
  if (root == "or") return bits<Or>(form);
  if (root == "xor") return bits<Xor>(form);
  if (root == "not" && form.type() == "pred") return not_predicate;
  if (root == "not")
    return with_integer(form.type(), [](auto t) -> Handler { return one<decltype(t), Not>; });
  if (root == "shl")
    return with_integer(form.type(), [](auto t) -> Handler { return shift<decltype(t), true>; });
  if (root == "shr")
    return with_integer(form.type(), [](auto t) -> Handler { return shift<decltype(t), false>; });
  if (root == "setp") return comparison(form);
  if (root == "selp") return with_number(form.type(), [](auto t) -> Handler { return select<decltype(t)>; });
  if (root == "mov") return moving(form);
  if (root == "brev" && form.type() == "b32") return reverse_bits;
  if (root == "bfind" && form.has("shiftamt") && form.type() == "u32") return leading_zeros;
  return nullptr;
}

}  // namespace gpu_emulation::ptx
