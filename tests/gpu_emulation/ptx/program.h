// A function of PTX as the interpreter runs it: instructions over numbered slots of 8 bytes. Registers,
// constants, special registers and addresses of symbols all have slots, so an operand is only a number.
//
// Thread rule: a Program is constant once it is compiled; a State belongs to one thread of a grid.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpu_emulation::ptx {

struct Instruction;
struct Program;

// A thread of the grid.
struct State {
  uint64_t* slots;
  char* frame;  // its parameters, those of its calls, and its local memory
  size_t next;  // instruction
  unsigned in_warp;
  char* shared;
  size_t shared_bytes;
  const Program* program;

  // A slot holds a value in its low bytes.
  template <typename T>
  T get(uint32_t slot) const {
    T value;
    std::memcpy(&value, &slots[slot], sizeof(T));
    return value;
  }
  template <typename T>
  void put(uint32_t slot, T value) {
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(T));
    slots[slot] = word;
  }
  bool is_true(uint32_t slot) const { return slots[slot] != 0; }
};

using Handler = void (*)(const Instruction&, State&);

constexpr uint32_t kNone = ~0u;
struct Instruction {
  Handler run = nullptr;
  std::array<uint32_t, 14> at{};    // slots of the operands, in the order of the text
  std::array<int64_t, 2> offset{};  // of the addresses among them
  uint32_t guard = kNone;           // the predicate's slot
  bool negated = false;
  uint8_t vector = 1;  // elements of a load or store
  uint32_t target = 0;
  int line = 0;
};

struct Program {
  std::string file;
  std::vector<Instruction> code;
  std::vector<uint64_t> slots;                        // their first values
  std::vector<std::pair<uint32_t, size_t>> in_frame;  // slots that hold the address of a place in the frame
  std::vector<std::pair<uint32_t, std::string>> special;  // slots of special registers, by name
  size_t frame_bytes = 0, parameter_bytes = 0;
  std::vector<size_t> parameter_offsets;
};

// An instruction's name, cut at its dots, and how many operands each group of its text has.
struct Form {
  std::vector<std::string> parts;
  std::vector<size_t> groups;

  const std::string& root() const { return parts[0]; }
  const std::string& type() const { return parts.back(); }
  bool has(std::string_view part) const {
    for (const std::string& each : parts)
      if (each == part) return true;
    return false;
  }
};
// Return the handler of a form, or null if it is none of theirs.
Handler arithmetic(const Form& form);
Handler conversion(const Form& form);
Handler memory_access(const Form& form);
Handler of_warp(const Form& form);

}  // namespace gpu_emulation::ptx
