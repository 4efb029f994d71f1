// gw-tokens makes token files of the bytes of texts, and the indexes that packed documents need.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/dataset.h"
#include "tools/arguments.h"
#include "tools/byte_tokens.h"

namespace {

using namespace gangway;

struct Request {
  tools::ByteTokens tokens;
  std::vector<std::string> files;
  std::string format;
  int64_t sequence = 0;
  bool lines = false, index = false;
};

// A line on the terminal that is written again and again.
class ProgressLine {
 public:
  void show(uint64_t done, uint64_t total) {
    const auto now = Clock::now();
    if (!terminal_ || (now - shown_ < std::chrono::milliseconds(100) && done < total)) return;
    shown_ = now;
    const double part = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
    const double seconds = std::chrono::duration<double>(now - begun_).count();
    std::string bar(static_cast<size_t>(part * 30), '#');
    bar.resize(30, ' ');
    std::fprintf(stderr, "\r[%s] %3.0f %%, %.0f MB/s ", bar.c_str(), 100 * part,
                 static_cast<double>(done) * 1e-6 / (seconds > 0 ? seconds : 1));
    if (done >= total) std::fputc('\n', stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  Clock::time_point begun_ = Clock::now(), shown_{};
};

// Replaces \n, \t, \0 and \\ by what they mean.
std::string unescaped(const std::string& given) {
  std::string text;
  for (size_t i = 0; i < given.size(); ++i) {
    const char next = given[i] == '\\' && i + 1 < given.size() ? given[i + 1] : '\0';
    const size_t known = next == '\0' ? std::string::npos : std::string("nt0\\").find(next);
    text += known == std::string::npos ? given[i] : "\n\t\0\\"[known];
    if (known != std::string::npos) ++i;
  }
  return text;
}

void make_row_index(const std::string& file, const Request& request, int64_t document_end) {
  data::DatasetOptions options;
  options.sources = {{file, request.format, 1}};
  options.rows = {request.sequence, data::Packing::documents, document_end};
  const data::Dataset dataset(options);
  std::printf("%s: %lld rows of %lld tokens\n", file.c_str(),
              static_cast<long long>(dataset.rows_per_epoch()), static_cast<long long>(request.sequence));
}

void run(Request request) {
  if (request.index) {
    const int64_t end = request.tokens.document_end;
    if (request.sequence == 0) fail(Code::invalid_argument, "--index needs --sequence, the tokens of a row");
    for (const std::string& file : request.files)
      make_row_index(file, request, end == tools::kDefaultEnd ? -1 : end);
    return;
  }
  if (request.files.size() < 2) fail(Code::invalid_argument, "give at least one text and the output");
  if (request.lines && !request.tokens.separator.empty())
    fail(Code::invalid_argument, "give either --lines or --separator");
  request.tokens.output = request.files.back();
  request.files.pop_back();
  request.tokens.inputs = request.files;
  request.tokens.separator = request.lines ? "\n" : unescaped(request.tokens.separator);
  ProgressLine line;
  const auto written = tools::write_byte_tokens(
      request.tokens, [&](uint64_t done, uint64_t total) { line.show(done, total); });
  for (const tools::WrittenTokens& file : written) {
    std::printf("%s: %llu tokens of %llu documents\n", file.path.c_str(),
                static_cast<unsigned long long>(file.tokens),
                static_cast<unsigned long long>(file.documents));
    if (request.sequence > 0) make_row_index(file.path, request, -1);
  }
}

}  // namespace

int main(int count, char** arguments) {
  Request request;
  const tools::CommandLine line = {
      "gw-tokens",
      "gw-tokens: makes token files of the bytes of texts, and the indexes of packed documents.",
      {{"--version", tools::Version{GANGWAY_VERSION}},
       {"files",
        &request.files,
        "the texts, then the output: a .u8 or a .u16; with --index: token files",
        {.required = true}},
       {"--separator", &request.tokens.separator,
        "what stands between documents; \\n, \\t, \\0 and \\\\ are known; default: each text is one"},
       {"--lines", &request.lines, "each line is a document"},
       {"--document-end", &request.tokens.document_end,
        "the token after each document; default: 256 in a .u16, none (-1) in a .u8"},
       {"--validation", &request.tokens.validation, "the share of documents that go into OUT.validation.*"},
       {"--seed", &request.tokens.seed, "decides which documents those are; default: 0"},
       {"--sequence",
        &request.sequence,
        "make the index of rows of so many tokens, too",
        {.must = tools::Positive{}}},
       {"--index", &request.index, "make that index alone, for files that are there"},
       {"--format", &request.format, "with --index: that of the files, if their names do not tell it"}}};
  if (const std::optional<int> status = tools::read_arguments(line, count, arguments)) return *status;
  try {
    run(request);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gw-tokens: %s\n", error.what());
    return 1;
  }
  return 0;
}
