// Reads one of the reference files: f64 and i64 tensors and the JSON of the model and its optimizer.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nn/layers.h"

namespace gangway::nn_testing {

struct ReferenceFile {
  struct Entry {
    std::vector<int64_t> dims;
    std::vector<double> values;  // i64 as f64: token ids are small
  };

  explicit ReferenceFile(const std::string& name) {
    std::ifstream file(std::string(GANGWAY_TEST_DATA) + "/" + name + ".safetensors", std::ios::binary);
    uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
    std::string header(header_bytes, '\0');
    file.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const nlohmann::json json = nlohmann::json::parse(header);
    for (const auto& [key, value] : json.items()) {
      if (key == "__metadata__") {
        config = nlohmann::json::parse(value.at("config").get<std::string>());
        continue;
      }
      Entry& entry = entries[key];
      entry.dims = value.at("shape").get<std::vector<int64_t>>();
      const auto range = value.at("data_offsets").get<std::vector<uint64_t>>();
      std::vector<char> raw(range[1] - range[0]);
      file.seekg(static_cast<std::streamoff>(8 + header_bytes + range[0]));
      file.read(raw.data(), static_cast<std::streamsize>(raw.size()));
      const bool integers = value.at("dtype") == "I64";
      entry.values.resize(raw.size() / 8);
      for (size_t i = 0; i < entry.values.size(); ++i) {
        int64_t bits;
        std::memcpy(&bits, raw.data() + 8 * i, 8);
        if (integers)
          entry.values[i] = static_cast<double>(bits);
        else
          std::memcpy(&entry.values[i], &bits, 8);
      }
    }
  }

  const Entry& at(const std::string& name) const { return entries.at(name); }

  LlamaConfig llama() const {
    LlamaConfig c;
    c.vocab = config.at("vocab_size");
    c.dim = config.at("hidden_size");
    c.layers = config.at("num_hidden_layers");
    c.heads = config.at("num_attention_heads");
    c.kv_heads = config.at("num_key_value_heads");
    c.ffn = config.at("intermediate_size");
    c.eps = config.at("rms_norm_eps");
    c.rope.theta = config.at("rope_theta");
    c.max_positions = config.at("max_position_embeddings");
    c.tied = config.at("tie_word_embeddings");
    c.qkv_bias = config.at("attention_bias");
    return c;
  }

  std::map<std::string, Entry> entries;
  nlohmann::json config;
};

}  // namespace gangway::nn_testing
