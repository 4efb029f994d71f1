#include "data/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "data/npy.h"

namespace gangway::data {
namespace {

bool ends_with(const std::string& path, std::string_view ending) {
  return path.size() > ending.size() && path.compare(path.size() - ending.size(), ending.size(), ending) == 0;
}

std::string index_path(const std::string& tokens_path) {
  const bool has_ending = ends_with(tokens_path, ".bin");
  return (has_ending ? tokens_path.substr(0, tokens_path.size() - 4) : tokens_path) + ".idx";
}

// llm.c (dev/data/data_common.py): 256 numbers of 32 bits, of which the first three are a magic number, a
// version and the number of tokens.
constexpr size_t kLlmcHeader = 256 * 4;
struct LlmcKind {
  int32_t magic, version;
  TokenType type;
};
constexpr std::array<LlmcKind, 2> kLlmcKinds = {
    {{20240520, 1, TokenType::u16}, {20240801, 7, TokenType::u32}}};

const LlmcKind* llmc_kind(OpenFiles& files, const FileFacts& file) {
  int32_t magic = 0;
  if (file.bytes < kLlmcHeader) return nullptr;
  files.read(file, 0, &magic, sizeof magic);
  for (const LlmcKind& kind : kLlmcKinds)
    if (kind.magic == magic) return &kind;
  return nullptr;
}

// Checks that the file has all of its tokens and nothing after them.
void check_size(const TokenFile& tokens) {
  const FileFacts& file = tokens.file;
  const size_t width = bytes_of(tokens.type);
  if (tokens.count == 0) fail(Code::corrupt, "data: ", file.path, " is empty: it has no tokens");
  const uint64_t room = file.bytes > tokens.first_byte ? file.bytes - tokens.first_byte : 0;
  if (room / width < tokens.count)
    fail(Code::corrupt, "data: ", file.path, " is truncated: it should have ", tokens.count, " tokens (",
         name(tokens.type), ") from byte ", tokens.first_byte, " on, and ends at byte ", file.bytes,
         ", in token ", room / width);
  if (room != tokens.count * width)
    fail(Code::corrupt, "data: ", file.path, " has ", room - tokens.count * width, " bytes after its ",
         tokens.count, " tokens, from byte ", tokens.first_byte + tokens.count * width, " on");
}

void read_raw(TokenFile& tokens, TokenType type) {
  tokens.type = type;
  const size_t width = bytes_of(type);
  tokens.count = tokens.file.bytes / width;
  if (tokens.file.bytes % width != 0)
    fail(Code::corrupt, "data: ", tokens.file.path, " is truncated: its ", tokens.file.bytes,
         " bytes are no whole number of ", name(type), " tokens; the last one begins at byte ",
         tokens.count * width);
}

void read_llmc(OpenFiles& files, TokenFile& tokens) {
  const LlmcKind* const kind = llmc_kind(files, tokens.file);
  if (kind == nullptr)
    fail(Code::corrupt, "data: ", tokens.file.path, " does not begin with a header of llm.c");
  int32_t header[3];
  files.read(tokens.file, 0, header, sizeof header);
  if (header[1] != kind->version)
    fail(Code::corrupt, "data: ", tokens.file.path, " has version ", header[1],
         " in its header of llm.c, the version known is ", kind->version);
  if (header[2] < 0)
    fail(Code::corrupt, "data: ", tokens.file.path, " has ", header[2], " tokens by its header of llm.c");
  tokens.format = Format::llmc;
  tokens.type = kind->type;
  tokens.first_byte = kLlmcHeader;
  tokens.count = static_cast<uint64_t>(header[2]);
}

void read_megatron(OpenFiles& files, TokenFile& tokens) {
  const MegatronIndex index = read_megatron_index(files, tokens.file.path);
  tokens.format = Format::megatron;
  tokens.type = index.type;
  if (index.sequences == 0) return;
  int32_t length = 0;
  int64_t pointer = 0;
  files.read(index.file, index.lengths_at + (index.sequences - 1) * 4, &length, sizeof length);
  files.read(index.file, index.pointers_at + (index.sequences - 1) * 8, &pointer, sizeof pointer);
  const auto width = static_cast<int64_t>(bytes_of(index.type));
  if (length < 0 || pointer < 0 || pointer % width != 0)
    fail(Code::corrupt, "data: ", index.file.path, ": sequence ", index.sequences - 1, " has ", length,
         " tokens at byte ", pointer, ", which no file of ", name(index.type), " can have");
  tokens.count = static_cast<uint64_t>(pointer / width) + static_cast<uint64_t>(length);
}

void read_npy(OpenFiles& files, TokenFile& tokens) {
  const NpyHeader header = read_npy_header(files, tokens.file);
  tokens.format = Format::npy;
  tokens.type = header.type;
  tokens.first_byte = header.first_byte;
  tokens.count = header.count;
}

std::string format_of(OpenFiles& files, const FileFacts& file) {
  for (const char* raw : {"u8", "u16", "u32", "npy"})
    if (ends_with(file.path, std::string(".") + raw)) return raw;
  if (!ends_with(file.path, ".bin"))
    fail(Code::invalid_argument, "data: the name of ", file.path,
         " does not tell how its tokens are written; say its format: u8, u16, u32, llm.c, megatron or npy");
  if (is_file(index_path(file.path))) return "megatron";
  if (llmc_kind(files, file) != nullptr) return "llm.c";
  fail(Code::invalid_argument, "data: ", file.path, " has neither a header of llm.c nor an index ",
       base_name(index_path(file.path)),
       " beside it; if it has tokens alone, say its format: u8, u16 or u32");
}

}  // namespace

size_t bytes_of(TokenType type) { return size_t{1} << (static_cast<size_t>(type) / 2); }

const char* name(TokenType type) {
  constexpr std::array<const char*, 8> kNames = {"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"};
  return kNames[static_cast<size_t>(type)];
}

bool names_tokens(const std::string& path) {
  for (const char* ending : {".u8", ".u16", ".u32", ".bin", ".npy"})
    if (ends_with(path, ending)) return true;
  return false;
}

TokenFile open_token_file(const std::string& path, const std::string& format) {
  OpenFiles files;
  TokenFile tokens;
  tokens.file = file_facts(path);
  const std::string kind = format.empty() ? format_of(files, tokens.file) : format;
  if (kind == "u8") {
    read_raw(tokens, TokenType::u8);
  } else if (kind == "u16") {
    read_raw(tokens, TokenType::u16);
  } else if (kind == "u32") {
    read_raw(tokens, TokenType::u32);
  } else if (kind == "llm.c") {
    read_llmc(files, tokens);
  } else if (kind == "megatron") {
    read_megatron(files, tokens);
  } else if (kind == "npy") {
    read_npy(files, tokens);
  } else {
    fail(Code::invalid_argument, "data: format \"", kind, "\" of ", path,
         " is not one of u8, u16, u32, llm.c, megatron and npy");
  }
  check_size(tokens);
  return tokens;
}

namespace {

// Calls use(number, value) for each of `count` values from a byte of the file on.
template <typename T, typename Use>
void for_each_value(OpenFiles& files, const FileFacts& file, uint64_t at, uint64_t count, Use&& use) {
  constexpr uint64_t kPiece = 1 << 16;
  std::vector<T> piece;
  for (uint64_t first = 0; first < count; first += piece.size()) {
    poll_interrupt_throttled();
    piece.resize(std::min(kPiece, count - first));
    files.read(file, at + first * sizeof(T), piece.data(), piece.size() * sizeof(T));
    for (size_t i = 0; i < piece.size(); ++i) use(first + i, piece[i]);
  }
}

// Each sequence begins where the one before ends. The lengths and the pointers are read beside each other.
void check_sequences(OpenFiles& files, const MegatronIndex& index) {
  constexpr uint64_t kPiece = 1 << 16;
  const uint64_t width = bytes_of(index.type);
  std::vector<int32_t> lengths;
  uint64_t next = 0;
  for_each_value<int64_t>(
      files, index.file, index.pointers_at, index.sequences, [&](uint64_t i, int64_t pointer) {
        if (i % kPiece == 0) {
          lengths.resize(std::min(kPiece, index.sequences - i));
          files.read(index.file, index.lengths_at + i * 4, lengths.data(), lengths.size() * 4);
        }
        const int32_t length = lengths[i % kPiece];
        if (length < 0 || pointer < 0 || static_cast<uint64_t>(pointer) != next)
          fail(Code::corrupt, "data: ", index.file.path, ": sequence ", i, " begins at byte ", pointer,
               " (entry at byte ", index.pointers_at + i * 8, ") and has ", length,
               " tokens, but those before it end at byte ", next);
        next += static_cast<uint64_t>(length) * width;
      });
}

// The bounds of documents ascend from 0 to the number of sequences.
void check_documents(OpenFiles& files, const MegatronIndex& index) {
  int64_t before = 0;
  for_each_value<int64_t>(
      files, index.file, index.documents_at, index.entries, [&](uint64_t i, int64_t bound) {
        if (bound < before || bound > static_cast<int64_t>(index.sequences))
          fail(Code::corrupt, "data: ", index.file.path, ": bound ", i, " of the documents (at byte ",
               index.documents_at + i * 8, ") is sequence ", bound, " behind ", before, ", and there are ",
               index.sequences, " sequences");
        before = bound;
      });
  if (index.entries > 0 && before != static_cast<int64_t>(index.sequences))
    fail(Code::corrupt, "data: ", index.file.path, ": the documents end at sequence ", before, " (at byte ",
         index.documents_at + (index.entries - 1) * 8, "), but there are ", index.sequences, " sequences");
}

}  // namespace

MegatronIndex read_megatron_index(OpenFiles& files, const std::string& tokens_path) {
  constexpr char kMagic[10] = "MMIDIDX\0";
  constexpr size_t kHeader = 9 + 8 + 1 + 8 + 8;
  constexpr int kTypes[] = {-1, 0, 1, 3, 5, 7, -1, -1, 2};  // by Megatron's number of the element type
  MegatronIndex index;
  index.file = file_facts(index_path(tokens_path));
  const std::string& path = index.file.path;
  char header[kHeader] = {};
  if (index.file.bytes < kHeader)
    fail(Code::corrupt, "data: ", path, " is truncated: it has ", index.file.bytes,
         " bytes, fewer than its header of ", kHeader);
  files.read(index.file, 0, header, kHeader);
  uint64_t version = 0;
  std::memcpy(&version, header + 9, 8);
  std::memcpy(&index.sequences, header + 18, 8);
  std::memcpy(&index.entries, header + 26, 8);
  const auto type = static_cast<unsigned char>(header[17]);
  if (std::memcmp(header, kMagic, 9) != 0 || version != 1)
    fail(Code::corrupt, "data: ", path, " is no index of Megatron, version 1");
  if (type >= std::size(kTypes) || kTypes[type] < 0)
    fail(Code::corrupt, "data: ", path, " has elements of type ", static_cast<int>(type),
         " at byte 17, which are no integers");
  index.type = static_cast<TokenType>(kTypes[type]);
  // A file is far smaller than 2^56 bytes, so that the sums below do not overflow.
  const bool plausible = index.sequences < index.file.bytes && index.entries < index.file.bytes;
  index.lengths_at = kHeader;
  index.pointers_at = index.lengths_at + (plausible ? index.sequences * 4 : 0);
  index.documents_at = index.pointers_at + (plausible ? index.sequences * 8 : 0);
  const uint64_t end = index.documents_at + (plausible ? index.entries * 8 : 0);
  if (!plausible || end > index.file.bytes)
    fail(Code::corrupt, "data: ", path, " is truncated: it should list ", index.sequences, " sequences and ",
         index.entries, " bounds of documents, and ends at byte ", index.file.bytes);
  if (end != index.file.bytes)
    fail(Code::corrupt, "data: ", path, " has ", index.file.bytes - end,
         " bytes behind its list of documents, from byte ", end, " on");
  check_sequences(files, index);
  check_documents(files, index);
  return index;
}

}  // namespace gangway::data
