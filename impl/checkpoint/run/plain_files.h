// The files of a checkpoint that are not safetensors: config.json, an index, tokenizer files, state.json.
//
// Thread rule: functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "checkpoint/input_file.h"
#include "checkpoint/run/state.h"

namespace gangway {

// Writes the new file `folder`/`name` with its missing folders, syncs it and returns its record. IO.
StoredFile write_file(const std::string& folder, const std::string& name, std::string_view bytes);

// Copies the file `from` to the new file `folder`/`name` likewise, in pieces. IO.
StoredFile copy_file(const std::string& from, const std::string& folder, const std::string& name);

// Returns XXH3 of all bytes of a file; calls use(bytes, count) with each piece. IO.
uint64_t whole_hash(const InputFile& file, const std::function<void(const char* bytes, size_t count)>& use);

}  // namespace gangway
