// A file of PTX, cut into its functions. Their bodies stay text until a kernel is first launched
// (compile.h).
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gpu_emulation::ptx {

struct Parameter {
  std::string name;
  size_t offset, bytes;
};
struct Function {
  std::vector<Parameter> results, parameters;
  size_t parameter_bytes = 0;
  std::string body;      // between its braces
  int line = 0;          // of the body's begin
  int most_threads = 0;  // .maxntid; 0: not limited
  bool entry = false;
};
struct Source {
  std::string file;  // its name, without folders
  std::map<std::string, Function, std::less<>> functions;
  std::vector<std::string> shared;  // the names of the block's dynamic shared memory
};

// Throws std::runtime_error with the file and the line for text that is not understood.
Source read_source(const std::string& path);
Source parse_source(const std::string& file, std::string text);

// The bytes of a type like "u32"; 0: no such type.
size_t type_bytes(std::string_view type);
std::vector<std::string> words_of(std::string_view text, std::string_view separators);

}  // namespace gpu_emulation::ptx
