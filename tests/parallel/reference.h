// The reference files of tests/data as plain vectors, read without the library.
#pragma once

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "nn/layers.h"

namespace gangway::test {

struct Array {
  std::vector<int64_t> dims;
  std::vector<double> values;  // f64 tensors
  std::vector<int64_t> ids;    // i64 tensors
};

struct Reference {
  LlamaConfig config;
  std::map<std::string, Array> arrays;

  const Array& at(const std::string& name) const { return arrays.at(name); }
  int64_t batch() const { return at("tokens").dims[1]; }
  int64_t sequence() const { return at("tokens").dims[2]; }
  // Rows [first, last) of step 0.
  std::vector<int64_t> rows(const char* which, int64_t first, int64_t last) const {
    const Array& a = at(which);
    return {a.ids.begin() + first * sequence(), a.ids.begin() + last * sequence()};
  }
  // Labels of step 0 that count.
  int64_t weight() const {
    int64_t n = 0;
    for (const int64_t label : rows("labels", 0, batch())) n += label != -100;
    return n;
  }
};

inline Reference read_reference(const std::string& file) {
  std::ifstream in(std::string(GANGWAY_TEST_DATA) + "/" + file, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + file);
  uint64_t size = 0;
  in.read(reinterpret_cast<char*>(&size), 8);
  std::string text(size, '\0');
  in.read(text.data(), static_cast<std::streamsize>(size));
  const std::string data((std::istreambuf_iterator<char>(in)), {});
  const nlohmann::json header = nlohmann::json::parse(text);
  Reference reference;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    Array a;
    a.dims = entry["shape"].get<std::vector<int64_t>>();
    const size_t first = entry["data_offsets"][0], last = entry["data_offsets"][1];
    if (entry["dtype"] == "I64") {
      a.ids.resize((last - first) / 8);
      std::memcpy(a.ids.data(), data.data() + first, last - first);
    } else {
      a.values.resize((last - first) / 8);
      std::memcpy(a.values.data(), data.data() + first, last - first);
    }
    reference.arrays[name] = std::move(a);
  }
  const nlohmann::json config = nlohmann::json::parse(header["__metadata__"]["config"].get<std::string>());
  LlamaConfig& c = reference.config;
  c.vocab = config["vocab_size"];
  c.dim = config["hidden_size"];
  c.layers = config["num_hidden_layers"];
  c.heads = config["num_attention_heads"];
  c.kv_heads = config["num_key_value_heads"];
  c.ffn = config["intermediate_size"];
  c.eps = config["rms_norm_eps"];
  c.rope.theta = config["rope_theta"];
  c.max_positions = config["max_position_embeddings"];
  c.tied = config["tie_word_embeddings"];
  return reference;
}

}  // namespace gangway::test
