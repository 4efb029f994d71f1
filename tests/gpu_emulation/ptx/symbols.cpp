#include "gpu_emulation/ptx/symbols.h"

#include <dlfcn.h>
#include <elf.h>

#include <cctype>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <vector>

namespace gpu_emulation::ptx {
namespace {

using Names = std::map<uint64_t, std::string>;

// Reads the table of all symbols. A stripped file has none.
Names names_in(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
  Names names;
  Elf64_Ehdr head;
  if (file.size() < sizeof head) return names;
  std::memcpy(&head, file.data(), sizeof head);
  const auto section = [&](size_t index) {
    Elf64_Shdr found;
    std::memcpy(&found, file.data() + head.e_shoff + index * sizeof found, sizeof found);
    return found;
  };
  for (size_t k = 0; k < head.e_shnum; ++k) {
    const Elf64_Shdr table = section(k);
    if (table.sh_type != SHT_SYMTAB) continue;
    const Elf64_Shdr texts = section(table.sh_link);
    for (size_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, file.data() + table.sh_offset + at, sizeof symbol);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value != 0)
        names.emplace(symbol.st_value, file.data() + texts.sh_offset + symbol.st_name);
    }
  }
  return names;
}

}  // namespace

std::string name_of(const void* function) {
  static std::mutex mutex;
  static auto* const files = new std::map<std::string, Names>;
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::lock_guard lock(mutex);
  auto [at, added] = files->try_emplace(info.dli_fname);
  if (added) at->second = names_in(info.dli_fname);
  const auto offset =
      static_cast<uint64_t>(static_cast<const char*>(function) - static_cast<const char*>(info.dli_fbase));
  const auto found = at->second.find(offset);
  return found == at->second.end() ? std::string() : found->second;
}

// "45_GLOBAL__N__b0038921_12_adafactor_cu_0c0ea888" and "12_GLOBAL__N_1" become "_". Compilers also differ in how
// they write std::is_same_v in the type of a parameter; nvcc leaves out its arguments.
std::string common_name(std::string name) {
  static const std::regex is_same("X(sr3stdE|St)?9is_same_vI[A-Za-z0-9_]*?dEE");
  name = std::regex_replace(name, is_same, "L_ZSt9is_same_vE");
  const size_t marker = name.find("_GLOBAL__N_");
  if (marker == std::string::npos) return name;
  size_t digits = marker;
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1])) != 0) --digits;
  // The digits before may be the end of another name: the length is the longest of them that fits.
  const size_t length = std::stoul(name.substr(digits, marker - digits));
  return name.replace(digits, marker - digits + length, "_");
}

}  // namespace gpu_emulation::ptx
