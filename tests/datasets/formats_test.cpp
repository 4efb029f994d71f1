// Token files that the tests write byte by byte, good ones and bad ones.
#include "data/token_file.h"

#include "data/documents.h"
#include "data/npy.h"
#include "data/paths.h"
#include "data/token_input.h"
#include "datasets/dataset_testing.h"

namespace gangway::data {
namespace {

using test::bytes_of;
using test::counting;
using test::expect_error;
using test::Folder;
using Numbers = std::vector<int64_t>;

Numbers read_all(const std::string& path, const std::string& format = "", int64_t vocab = 0) {
  const TokenFile tokens = open_token_file(path, format);
  TokenInput input(vocab);
  Numbers out(tokens.count);
  input.read(tokens, 0, out.size(), out.data());
  return out;
}

std::string llmc(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
  std::string header = bytes_of<int32_t>(std::vector<int32_t>{magic, version, count});
  header.resize(1024);
  return header + tokens;
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& tokens,
                char version = 1) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  const size_t before = version == 1 ? 10 : 12;
  header.resize((before + header.size() + 64) / 64 * 64 - before - 1, ' ');
  header += '\n';
  const auto length = static_cast<uint32_t>(header.size());
  const std::string size =
      version == 1 ? bytes_of<uint16_t>(std::vector{length}) : bytes_of<uint32_t>(std::vector{length});
  return std::string("\x93NUMPY") + version + '\0' + size + header + tokens;
}

// Sequences of these lengths, in documents that begin with these sequences.
std::string megatron(int type, int width, const Numbers& lengths, const Numbers& documents) {
  Numbers pointers;
  int64_t at = 0;
  for (const int64_t length : lengths) {
    pointers.push_back(at * width);
    at += length;
  }
  const auto count = [](size_t n) { return bytes_of<uint64_t>(std::vector{n}); };
  return std::string("MMIDIDX\0\0", 9) + count(1) + static_cast<char>(type) + count(lengths.size()) +
         count(documents.size()) + bytes_of<int32_t>(lengths) + bytes_of<int64_t>(pointers) +
         bytes_of<int64_t>(documents);
}

Numbers starts_of(const std::string& path, int64_t end = -1) {
  const TokenFile tokens = open_token_file(path, "");
  TokenInput input(0);
  std::vector<uint64_t> starts;
  documents_of(tokens, end)->starts(input, 0, tokens.count, starts);
  return Numbers(starts.begin(), starts.end());
}

TEST(TokenFiles, RawNumbersOfEachWidthAreRead) {
  const Folder folder;
  for (const int64_t count : {1, 2, 7, 70001}) {
    Numbers small = counting(count);
    for (int64_t& token : small) token %= 256;
    EXPECT_EQ(read_all(folder.write("a.u8", bytes_of<uint8_t>(small))), small);
    EXPECT_EQ(read_all(folder.write("a.u16", bytes_of<uint16_t>(small))), small);
    EXPECT_EQ(read_all(folder.write("a.u32", bytes_of<uint32_t>(counting(count, 3'000'000'000)))),
              counting(count, 3'000'000'000));
    EXPECT_EQ(read_all(folder.write("a.tokens", bytes_of<uint16_t>(small)), "u16"), small);
  }
}

TEST(TokenFiles, LlmcFilesAreRead) {
  const Folder folder;
  const Numbers tokens = counting(5, 40'000);
  EXPECT_EQ(read_all(folder.write("gpt2.bin", llmc(20240520, 1, 5, bytes_of<uint16_t>(tokens)))), tokens);
  EXPECT_EQ(read_all(folder.write("llama.bin", llmc(20240801, 7, 5, bytes_of<uint32_t>(tokens)))), tokens);
}

TEST(TokenFiles, NumpyFilesOfOneDimensionAreRead) {
  const Folder folder;
  const Numbers tokens = counting(5, 100);
  EXPECT_EQ(read_all(folder.write("a.npy", npy("|u1", "(5,)", bytes_of<uint8_t>(tokens)))), tokens);
  EXPECT_EQ(read_all(folder.write("a.npy", npy("<u2", "(5,)", bytes_of<uint16_t>(tokens)))), tokens);
  EXPECT_EQ(read_all(folder.write("a.npy", npy("<i4", "(5,)", bytes_of<int32_t>(tokens), 2))), tokens);
  EXPECT_EQ(read_all(folder.write("a.npy", npy("<i8", "(5,)", bytes_of<int64_t>(tokens), 3))), tokens);
}

TEST(TokenFiles, MegatronFilesAreReadWithTheirDocuments) {
  const Folder folder;
  const Numbers tokens = counting(10);
  folder.write("a.bin", bytes_of<uint16_t>(tokens));
  folder.write("a.idx", megatron(8, 2, {3, 1, 4, 2}, {0, 1, 3, 4}));
  EXPECT_EQ(read_all(folder.path("a.bin")), tokens);
  EXPECT_EQ(starts_of(folder.path("a.bin")), (Numbers{0, 3, 8}));
  // Documents without a token repeat a start, which counts once.
  folder.write("a.idx", megatron(8, 2, {3, 0, 7}, {0, 1, 2, 2, 3}));
  EXPECT_EQ(starts_of(folder.path("a.bin")), (Numbers{0, 3}));
  folder.write("b.bin", bytes_of<int32_t>(tokens));
  folder.write("b.idx", megatron(4, 4, {10}, {0, 1}));
  EXPECT_EQ(read_all(folder.path("b.bin")), tokens);
  EXPECT_EQ(starts_of(folder.path("b.bin")), (Numbers{0}));
}

TEST(TokenFiles, ManyDocumentsAreFoundFromAnyPlace) {
  const Folder folder;
  const int64_t count = 30'000;
  folder.write("a.u8", std::string(static_cast<size_t>(count), 'x'));
  Numbers starts, lengths, documents = {0};
  for (int64_t at = 0; at < count; at += 1 + at % 7) {
    if (!starts.empty()) lengths.push_back(at - starts.back());
    starts.push_back(at);
    documents.push_back(static_cast<int64_t>(starts.size()));
  }
  lengths.push_back(count - starts.back());
  folder.write("a.u8.documents", kDocumentsMagic +
                                     bytes_of<uint64_t>(Numbers{count, static_cast<int64_t>(starts.size())}) +
                                     bytes_of<uint64_t>(starts));
  folder.write("b.bin", std::string(static_cast<size_t>(count), 'x'));
  folder.write("b.idx", megatron(1, 1, lengths, documents));
  for (const char* name : {"a.u8", "b.bin"}) {
    const TokenFile tokens = open_token_file(folder.path(name), "");
    TokenInput input(0);
    const std::unique_ptr<Documents> found = documents_of(tokens, -1);
    for (const uint64_t first : {0u, 1u, 2u, 777u, 14'000u, 29'999u}) {
      for (const uint64_t length : {0u, 1u, 50u, 12'345u, 30'000u}) {
        const uint64_t last = std::min<uint64_t>(first + length, static_cast<uint64_t>(count));
        std::vector<uint64_t> wanted, got;
        for (const int64_t start : starts)
          if (static_cast<uint64_t>(start) >= first && static_cast<uint64_t>(start) < last)
            wanted.push_back(static_cast<uint64_t>(start));
        found->starts(input, first, last, got);
        EXPECT_EQ(got, wanted) << name << " from " << first << " to " << last;
        EXPECT_EQ(found->first_start(input, first, last),
                  wanted.empty() ? std::max(first, last) : wanted.front());
      }
    }
  }
}

TEST(TokenFiles, DocumentsEndWithTheGivenId) {
  const Folder folder;
  EXPECT_EQ(starts_of(folder.write("a.u8", bytes_of<uint8_t>(Numbers{5, 9, 5, 5, 9, 9, 5})), 9),
            (Numbers{0, 2, 5, 6}));
  EXPECT_EQ(starts_of(folder.write("b.u8", bytes_of<uint8_t>(Numbers{9})), 9), (Numbers{0}));
}

TEST(TokenFiles, AFolderOrAPatternIsManyFilesInTheOrderOfTheirNames) {
  const Folder folder;
  for (const char* name :
       {"b.u8", "a.u8", "c.u16", "notes.txt", ".hidden.u8", "a.u8.documents", "a.u8.rows64"})
    folder.write(name, "xx");
  const auto names = [&](const std::string& path, const std::string& format = "") {
    std::vector<std::string> found;
    for (const std::string& file : files_of(path, format)) found.push_back(base_name(file));
    return found;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(folder.path()), (Names{"a.u8", "b.u8", "c.u16"}));
  EXPECT_EQ(names(folder.path(), "u8"), (Names{"a.u8", "b.u8", "c.u16", "notes.txt"}));
  EXPECT_EQ(names(folder.path("*.u8")), (Names{"a.u8", "b.u8"}));
  EXPECT_EQ(names(folder.path("[ab]*")), (Names{"a.u8", "b.u8"}));
  EXPECT_EQ(names(folder.path("b.u8")), (Names{"b.u8"}));
}

// --- bad files: one line each, with the file and the position

class BadFile : public testing::Test {
 protected:
  void refused(const std::string& name, const std::string& bytes, const std::string& why,
               Code code = Code::corrupt, const std::string& format = "") {
    const std::string path = folder_.write(name, bytes);
    expect_error(code, "data: " + path + why, [&] { read_all(path, format, 50); });
  }
  Folder folder_;
};

TEST_F(BadFile, TruncatedTokensAreNamedWithTheirPosition) {
  refused("a.u16", "12345",
          " is truncated: its 5 bytes are no whole number of u16 tokens; the last one begins at byte 4");
  refused(
      "b.bin", llmc(20240520, 1, 5, "12345678"),
      " is truncated: it should have 5 tokens (u16) from byte 1024 on, and ends at byte 1032, in token 4");
  refused("c.npy", npy("<u4", "(3,)", "12345678901"),
          " is truncated: it should have 3 tokens (u32) from byte 128 on, and ends at byte 139, in token 2");
  refused("d.npy", "\x93NUMPY", " is truncated: its 6 bytes are fewer than a header of NumPy");
  folder_.write("e.idx", megatron(8, 2, {3, 2}, {0, 1, 2}));
  refused("e.bin", "12345678",
          " is truncated: it should have 5 tokens (u16) from byte 0 on, and ends at byte 8, in token 4");
}

TEST_F(BadFile, EmptyFilesAreRefused) {
  refused("a.u8", "", " is empty: it has no tokens");
  refused("a.u16", "", " is empty: it has no tokens");
  refused("b.bin", llmc(20240520, 1, 0, ""), " is empty: it has no tokens");
  refused("c.npy", npy("<u2", "(0,)", ""), " is empty: it has no tokens");
  folder_.write("d.idx", megatron(8, 2, {}, {0}));
  refused("d.bin", "", " is empty: it has no tokens");
}

TEST_F(BadFile, BytesAfterTheTokensAreRefused) {
  refused("a.bin", llmc(20240520, 1, 1, "1234"), " has 2 bytes after its 1 tokens, from byte 1026 on");
}

TEST_F(BadFile, AnIdOutsideOfTheVocabularyIsNamedWithItsPosition) {
  refused("a.u8", std::string(70'000, '\1') + '\x32' + '\1',
          ": token 70000 is 50, but the vocabulary has the ids 0 to 49");
  refused("b.npy", npy("<i2", "(3,)", bytes_of<int16_t>(Numbers{0, -7, 0})),
          ": token 1 is -7, but the vocabulary has the ids 0 to 49");
  const std::string path = folder_.write("c.npy", npy("<i2", "(3,)", bytes_of<int16_t>(Numbers{0, 0, -1})));
  expect_error(Code::corrupt, "data: " + path + ": token 2 is -1, which is no id of a vocabulary",
               [&] { read_all(path); });
}

TEST_F(BadFile, BadHeadersAreRefused) {
  refused("a.bin", llmc(20240520, 2, 1, "12"),
          " has version 2 in its header of llm.c, the version known is 1");
  refused("b.bin", llmc(20240520, 1, -1, "12"), " has -1 tokens by its header of llm.c");
  refused("c.u16", "12", " does not begin with a header of llm.c", Code::corrupt, "llm.c");
  refused("d.npy", std::string(200, 'x'), " does not begin as a file of NumPy, versions 1 to 3");
  refused("e.npy", npy(">u2", "(1,)", "12"),
          " has elements of type '>u2'; tokens are little-endian integers ('<u2' and the like)",
          Code::not_supported);
  refused("f.npy", npy("<u2", "(1, 2)", "1234"), " has the shape (1, 2); tokens have one dimension",
          Code::not_supported);
  refused("g.npy", npy("<u2", "()", "12"), " has the shape (); tokens have one dimension",
          Code::not_supported);
}

TEST_F(BadFile, BadIndexesAreRefused) {
  const std::string tokens = folder_.write("a.bin", bytes_of<uint16_t>(counting(5)));
  const std::string index = folder_.path("a.idx");
  const auto refused_index = [&](const std::string& bytes, const std::string& why) {
    folder_.write("a.idx", bytes);
    expect_error(Code::corrupt, "data: " + index + why, [&] {
      read_all(tokens);
      starts_of(tokens);
    });
  };
  const std::string good = megatron(8, 2, {3, 2}, {0, 1, 2});
  refused_index("short", " is truncated: it has 5 bytes, fewer than its header of 34");
  refused_index(std::string(40, 'x'), " is no index of Megatron, version 1");
  refused_index(good.substr(0, 60),
                " is truncated: it should list 2 sequences and 3 bounds of documents, and ends at byte 60");
  refused_index(megatron(6, 2, {3, 2}, {0, 1, 2}),
                " has elements of type 6 at byte 17, which are no integers");
  refused_index(megatron(8, 2, {3, 2}, {0, 3, 2}),
                ": bound 1 of the documents (at byte 66) is sequence 3 behind 0, and there are 2 sequences");
  refused_index(megatron(8, 2, {3, 2}, {1, 0, 2}),
                ": bound 1 of the documents (at byte 66) is sequence 0 behind 1, and there are 2 sequences");
  refused_index(megatron(8, 2, {3, 2}, {0, 1}),
                ": the documents end at sequence 1 (at byte 66), but there are 2 sequences");
  refused_index(good + "rest", " has 4 bytes behind its list of documents, from byte 82 on");
  std::string longer = good;
  longer[34] = 4;  // the length of the first sequence
  refused_index(
      longer,
      ": sequence 1 begins at byte 6 (entry at byte 50) and has 2 tokens, but those before it end at byte 8");
  const std::string own =
      folder_.write("b.u8.documents", kDocumentsMagic + bytes_of<uint64_t>(Numbers{4, 1, 0}));
  folder_.write("b.u8", "12345");
  expect_error(Code::corrupt, "data: " + own + " is the index of a file with 4 tokens, b.u8 has 5",
               [&] { starts_of(folder_.path("b.u8")); });
  folder_.write("b.u8.documents", kDocumentsMagic + bytes_of<uint64_t>(Numbers{5, 3, 0, 4, 2}));
  expect_error(
      Code::corrupt,
      "data: " + own + ": document 2 begins at token 2, before the one before it; the file has 5 tokens",
      [&] { starts_of(folder_.path("b.u8")); });
  folder_.write("b.u8.documents", kDocumentsMagic + bytes_of<uint64_t>(Numbers{5, 3, 0}));
  expect_error(Code::corrupt,
               "data: " + own + " is truncated: it should list 3 documents, and ends at byte 32",
               [&] { starts_of(folder_.path("b.u8")); });
}

TEST(MissingFiles, AreNamed) {
  const Folder folder;
  const Error missing = test::error_of([&] { open_token_file(folder.path("a.u16"), ""); });
  EXPECT_EQ(missing.code(), Code::io);
  EXPECT_EQ(missing.message(), "data: opening " + folder.path("a.u16") + ": No such file or directory");
  EXPECT_EQ(missing.path, folder.path("a.u16"));
  expect_error(Code::io, "data: " + folder.path() + " is not a regular file",
               [&] { open_token_file(folder.path(), "u8"); });
  expect_error(Code::not_found, "data: no file of tokens matches " + folder.path("*.u8"),
               [&] { files_of(folder.path("*.u8"), ""); });
  expect_error(
      Code::not_found,
      "data: the folder " + folder.path() +
          " has no file of tokens (.u8, .u16, .u32, .bin, .npy); give a format for files of other names",
      [&] { files_of(folder.path(), ""); });
  expect_error(Code::invalid_argument, "data: the path of a source is empty", [&] { files_of("", ""); });
}

TEST(MissingFormats, AreAskedFor) {
  const Folder folder;
  const std::string text = folder.write("a.txt", "text"), bin = folder.write("a.bin", "text");
  expect_error(
      Code::invalid_argument,
      "data: the name of " + text +
          " does not tell how its tokens are written; say its format: u8, u16, u32, llm.c, megatron or npy",
      [&] { open_token_file(text, ""); });
  expect_error(Code::invalid_argument,
               "data: " + bin +
                   " has neither a header of llm.c nor an index a.idx beside it; if it has tokens alone, say "
                   "its format: "
                   "u8, u16 or u32",
               [&] { open_token_file(bin, ""); });
  expect_error(Code::invalid_argument,
               "data: format \"u64\" of " + bin + " is not one of u8, u16, u32, llm.c, megatron and npy",
               [&] { open_token_file(bin, "u64"); });
  expect_error(Code::invalid_argument,
               "data: nothing tells where the documents of " + text +
                   " end: give document_end, the id of the token that ends each document, or an index of "
                   "Megatron or of "
                   "gw-tokens (a.txt.documents)",
               [&] { documents_of(open_token_file(text, "u8"), -1); });
}

}  // namespace
}  // namespace gangway::data
