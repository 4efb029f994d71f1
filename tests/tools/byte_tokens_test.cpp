// Token files of texts: their tokens, their documents, what is set aside for validation.
#include "tools/byte_tokens.h"

#include "datasets/dataset_testing.h"

namespace gangway::tools {
namespace {

using test::expect_error;
using test::Folder;

std::vector<WrittenTokens> write(const ByteTokens& request) {
  uint64_t last = 0, whole = 0;
  std::vector<WrittenTokens> written = write_byte_tokens(request, [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    last = done;
    whole = total;
  });
  EXPECT_EQ(last, whole);
  return written;
}

// The documents of a file, without padding, in the file's order: read as a training reads them.
std::vector<std::vector<int64_t>> documents_of(const std::string& path) {
  data::DatasetOptions options = test::options_for(path, 4096);
  options.rows.packing = data::Packing::documents;
  options.shuffle = false;
  data::Dataset dataset(options);
  std::vector<std::vector<int64_t>> documents;
  for (const test::Row& row : test::take(dataset, dataset.rows_per_epoch()))
    for (size_t i = 0; i < row.tokens.size() && row.documents[i] >= 0; ++i) {
      if (i == 0 || row.documents[i] != row.documents[i - 1]) documents.emplace_back();
      documents.back().push_back(row.tokens[i]);
    }
  return documents;
}

std::vector<int64_t> bytes(const std::string& text, std::vector<int64_t> end = {}) {
  std::vector<int64_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  tokens.insert(tokens.end(), end.begin(), end.end());
  return tokens;
}

TEST(ByteTokens, EachTextIsADocumentUnlessASeparatorSaysMore) {
  const Folder folder;
  ByteTokens request{{folder.write("a", "one"), folder.write("b", ""), folder.write("c", "t\xc3\xa4o|")},
                     folder.path("x.u8")};
  EXPECT_EQ(write(request)[0].documents, 2u);
  EXPECT_EQ(documents_of(folder.path("x.u8")), (std::vector{bytes("one"), bytes("t\xc3\xa4o|")}));
  request.separator = "o";
  EXPECT_EQ(write(request)[0].tokens, 6u);
  EXPECT_EQ(documents_of(folder.path("x.u8")), (std::vector{bytes("ne"), bytes("t\xc3\xa4"), bytes("|")}));
}

TEST(ByteTokens, WideFilesEndTheirDocumentsWith256) {
  const Folder folder;
  ByteTokens request{{folder.write("a", "one\ntwo\n\nthree")}, folder.path("x.u16"), "\n"};
  const WrittenTokens written = write(request)[0];
  EXPECT_EQ(written.tokens, 14u);
  EXPECT_EQ(written.documents, 3u);
  EXPECT_EQ(documents_of(folder.path("x.u16")),
            (std::vector{bytes("one", {256}), bytes("two", {256}), bytes("three", {256})}));
  request.document_end = -1;
  EXPECT_EQ(write(request)[0].tokens, 11u);
  request.document_end = 300;
  write(request);
  EXPECT_EQ(documents_of(folder.path("x.u16"))[1], bytes("two", {300}));
}

TEST(ByteTokens, ASeparatorIsFoundAcrossTheBlocksThatAreRead) {
  const Folder folder;
  const std::string separator = "<|end|>";
  for (const size_t before : {(1u << 20) - 7, (1u << 20) - 3, 1u << 20}) {
    const std::string first(before, '<');
    ByteTokens request{{folder.write("a", first + separator + "rest<|en")}, folder.path("x.u8"), separator};
    const WrittenTokens written = write(request)[0];
    EXPECT_EQ(written.documents, 2u) << before;
    EXPECT_EQ(written.tokens, before + 8) << before;
  }
}

TEST(ByteTokens, ValidationSetsWholeDocumentsAside) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "document " + std::to_string(i) + "\n";
  ByteTokens request{{folder.write("a", text)}, folder.path("x.u8"), "\n"};
  request.validation = 0.1;
  const std::vector<WrittenTokens> written = write(request);
  ASSERT_EQ(written.size(), 2u);
  EXPECT_EQ(written[1].path, folder.path("x.validation.u8"));
  EXPECT_EQ(written[0].documents, 180u);
  EXPECT_EQ(written[1].documents, 20u);
  const auto training = documents_of(folder.path("x.u8")),
             validation = documents_of(folder.path("x.validation.u8"));
  std::set<std::vector<int64_t>> all(training.begin(), training.end());
  all.insert(validation.begin(), validation.end());
  EXPECT_EQ(all.size(), 200u);
  request.seed = 1;
  write(request);
  EXPECT_NE(documents_of(folder.path("x.validation.u8")), validation);
  request.validation = 1e-9;  // at least one
  EXPECT_EQ(write(request)[1].documents, 1u);
}

TEST(ByteTokens, RefusalsLeaveTheFilesThatAreThere) {
  const Folder folder;
  const std::string text = folder.write("a", "text"), output = folder.write("x.u8", "before");
  const auto refused = [&](Code code, const std::string& message, const auto& change) {
    ByteTokens request{{text}, output};
    change(request);
    expect_error(code, message, [&] { write_byte_tokens(request, [](uint64_t, uint64_t) {}); });
    EXPECT_EQ(std::filesystem::file_size(output), 6u);
  };
  refused(Code::invalid_argument, "the output is x.bin, neither a .u8 nor a .u16",
          [](ByteTokens& r) { r.output = "x.bin"; });
  refused(Code::invalid_argument, "the end of documents is 256, no id of 8 bits",
          [](ByteTokens& r) { r.document_end = 256; });
  refused(Code::corrupt,
          "document 0 has the byte 120, which is to end documents; choose another --document-end, or write a "
          ".u16",
          [](ByteTokens& r) { r.document_end = 'x'; });
  refused(Code::invalid_argument, "the share for validation is 1, not from 0 to below 1",
          [](ByteTokens& r) { r.validation = 1; });
  refused(
      Code::invalid_argument,
      "the inputs have 1 documents, so that none can be set aside for validation; say what separates them",
      [](ByteTokens& r) { r.validation = 0.5; });
  refused(Code::corrupt, "the inputs have no byte",
          [&](ByteTokens& r) { r.inputs = {folder.write("empty", "")}; });
  refused(Code::io, "reading " + folder.path("none") + ": No such file or directory",
          [&](ByteTokens& r) { r.inputs = {folder.path("none")}; });
  EXPECT_FALSE(std::filesystem::exists(output + ".part"));
}

}  // namespace
}  // namespace gangway::tools
