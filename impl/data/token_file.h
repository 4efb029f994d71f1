// A file of tokens: where in it the tokens lie, and how each is written.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>

#include "data/open_files.h"

namespace gangway::data {

enum class TokenType : uint8_t { u8, i8, u16, i16, u32, i32, u64, i64 };
size_t bytes_of(TokenType type);
const char* name(TokenType type);

enum class Format : uint8_t { raw, llmc, megatron, npy };

struct TokenFile {
  FileFacts file;
  Format format = Format::raw;
  TokenType type = TokenType::u16;
  uint64_t first_byte = 0;
  uint64_t count = 0;  // of tokens; at least 1
};

// Recognises a file. `format` is "" (by the file's name, and for .bin by its contents), "u8", "u16" or "u32"
// (tokens alone, little-endian), "llm.c" (a .bin with its header), "megatron" (a .bin with an .idx beside it)
// or "npy" (one dimension, integers).
//
// INVALID_ARGUMENT: another format, or the name does not tell it. CORRUPT: the file is truncated, empty, or
// not what its format says; the text names the file and the position. IO: it is missing.
TokenFile open_token_file(const std::string& path, const std::string& format);

// Returns whether the name of a file is that of tokens: .u8, .u16, .u32, .bin or .npy.
bool names_tokens(const std::string& path);

// The .idx file of Megatron's format: the lengths of the sequences, the byte at which each begins, and the
// number of the first sequence of each document, with one more for the end.
struct MegatronIndex {
  FileFacts file;
  TokenType type = TokenType::u16;
  uint64_t sequences = 0, entries = 0;  // entries: documents + 1
  uint64_t lengths_at = 0, pointers_at = 0, documents_at = 0;
};
// CORRUPT: the index is truncated, is no such index, or its parts contradict each other.
MegatronIndex read_megatron_index(OpenFiles& files, const std::string& tokens_path);

}  // namespace gangway::data
