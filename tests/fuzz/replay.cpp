// Runs a fuzz target without libFuzzer: on every file of its corpus and on a fixed series of changes to them.
// It finds nothing new where the fuzzer has run; it keeps the promise that hostile bytes give an error in
// every ordinary build.
//   usage: replay RUNS MAX_LEN [CORPUS_FOLDER]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<std::string> read_corpus(const char* folder) {
  std::vector<std::string> inputs = {""};
  if (folder == nullptr) return inputs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

// Overwrites, inserts, removes or repeats a few bytes.
std::string changed(std::string input, size_t max_length, std::mt19937& random) {
  for (uint32_t change = random() % 4; change < 4; ++change) {
    const size_t at = input.empty() ? 0 : random() % input.size();
    const uint32_t kind = random() % 4;
    if (kind == 0 && !input.empty()) input[at] = static_cast<char>(random());
    if (kind == 1) input.insert(at, 1 + random() % 8, static_cast<char>(random()));
    if (kind == 2) input.erase(at, 1 + random() % 16);
    if (kind == 3) input.insert(at, input.substr(at, random() % 32));
  }
  if (input.size() > max_length) input.resize(max_length);
  return input;
}

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s RUNS MAX_LEN [CORPUS_FOLDER]\n", argv[0]);
    return 2;
  }
  const std::vector<std::string> corpus = read_corpus(argc > 3 ? argv[3] : nullptr);
  for (const std::string& input : corpus) run(input);
  std::mt19937 random(1);
  for (long i = 0; i < std::atol(argv[1]); ++i)
    run(changed(corpus[random() % corpus.size()], std::strtoul(argv[2], nullptr, 10), random));
}
