#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/data_path.h"

namespace gangway {
namespace {

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes) {
    char path[] = "/tmp/gangway_safetensors_XXXXXX";
    close(mkstemp(path));
    path_ = path;
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string with_length(const std::string& json, uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 0xff);
  return out + json;
}

std::string file_of(const std::string& json, size_t data_bytes) {
  return with_length(json, json.size()) + std::string(data_bytes, '\1');
}

Error error_of(const std::string& bytes) {
  const TemporaryFile file(bytes);
  try {
    SafetensorsFile opened(file.path());
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::ok, "");
}

constexpr char kGood[] = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";

TEST(Safetensors, ReadsNamesShapesMetadataAndBytes) {
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[],"data_offsets":[6,14]},)"
      R"("a":{"dtype":"BF16","shape":[3,1],"data_offsets":[0,6]},"z":{"shape":[0,5],"data_offsets":[14,14],"dtype":"U8"}}  )";
  const TemporaryFile on_disk(with_length(json, json.size()) + "abcdefghijklmn");
  const SafetensorsFile file(on_disk.path());
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors().at("a").dtype, DType::bf16);
  EXPECT_EQ(file.tensors().at("a").shape, (Shape{3, 1}));
  EXPECT_EQ(file.tensors().at("b").shape.rank(), 0);
  EXPECT_EQ(file.tensors().at("z").shape.count(), 0);
  char bytes[4] = {};
  file.read(file.tensors().at("b"), 2, 5, bytes);
  EXPECT_STREQ(bytes, "ijk");
}

TEST(Safetensors, ReadsEveryDtypeName) {
  const std::vector<std::pair<std::string, DType>> names = {
      {"F64", DType::f64}, {"F32", DType::f32},      {"BF16", DType::bf16},       {"F16", DType::f16},
      {"I64", DType::i64}, {"I32", DType::i32},      {"I16", DType::i16},         {"I8", DType::i8},
      {"U8", DType::u8},   {"BOOL", DType::boolean}, {"F8_E4M3", DType::f8_e4m3}, {"F8_E5M2", DType::f8_e5m2},
      {"U16", DType::u16}, {"U32", DType::u32},      {"U64", DType::u64},         {"C64", DType::c64}};
  for (const auto& [text, dtype] : names) {
    const size_t bytes = item_bytes(dtype) * 5;
    const auto header = parse_safetensors_header(
        R"({"x":{"dtype":")" + text + R"(","shape":[5],"data_offsets":[0,)" + std::to_string(bytes) + "]}}",
        bytes);
    EXPECT_EQ(header.tensors.at("x").dtype, dtype);
    EXPECT_EQ(safetensors_dtype(dtype), text);
  }
}

TEST(Safetensors, ReadsThePublishedReferenceFile) {
  const SafetensorsFile file(test_data("llama_small.safetensors"));
  EXPECT_EQ(file.tensors().at("tokens").shape, (Shape{5, 3, 12}));
  EXPECT_EQ(file.tensors().at("tokens").dtype, DType::i64);
  EXPECT_NE(file.metadata().at("config").find("hidden_size"), std::string::npos);
}

struct Hostile {
  const char* what;
  std::string json;
  size_t data_bytes;
  const char* words;  // that the refusal must hold
};

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(Safetensors, RefusesEveryHostileHeaderWithFieldAndNumbers) {
  const std::string f32 = R"("F32")";
  const std::string deep = std::string(100000, '[');
  const std::vector<Hostile> table = {
      {"empty header", "", 0, "does not begin with '{'"},
      {"leading space", " {}", 0, "does not begin with '{'"},
      {"no object", "[]", 0, "does not begin with '{'"},
      {"cut JSON", R"({"a":{)", 0, "not JSON"},
      {"text behind", "{} x", 0, "not JSON"},
      {"second object", "{}{}", 0, "not JSON"},
      {"invalid UTF-8", "{\"\xff\":1}", 0, "not JSON"},
      {"a number that overflows", one(f32, "[1]", "[0,1e999]"), 4, "not JSON"},
      {"tensor is a number", R"({"a":1})", 0, "must not be the number 1"},
      {"tensor is null", R"({"a":null})", 0, "must not be null"},
      {"tensor is a list", R"({"a":[]})", 0, "must not be a list"},
      {"deep nesting", R"({"a":{"shape":)" + deep, 0, "must not be a list"},
      {"nested object", R"({"a":{"shape":{"a":1}}})", 0, "must not be an object"},
      {"unknown field", R"({"a":{"type":"F32"}})", 0, "\"type\" is no field"},
      {"dtype lacks", R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "lacks dtype"},
      {"shape lacks", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "lacks shape"},
      {"offsets lack", R"({"a":{"dtype":"F32","shape":[1]}})", 4, "lacks data_offsets"},
      {"unknown dtype", one(R"("BF17")", "[1]", "[0,1]"), 1, "dtype is \"BF17\", which is unknown"},
      {"empty dtype", one(R"("")", "[]", "[0,0]"), 0, "dtype is \"\", which is unknown"},
      {"half a byte", one(R"("F4")", "[3]", "[0,2]"), 2, "12 bits of F4 are no whole bytes"},
      {"size of an unread dtype differs", one(R"("F6_E2M3")", "[4]", "[0,4]"), 4,
       "hold 4 bytes, its dtype and shape need 3"},
      {"zero byte behind", std::string("{}\0", 3), 0, "not JSON at its byte 2"},
      {"zero bytes and a second header", std::string("{}\0\0{\"a\":1}", 11), 0, "not JSON at its byte 2"},
      {"zero byte in a name", std::string("{\"a\0\":1}", 8), 0, "not JSON at its byte 3"},
      {"metadata null and again", R"({"__metadata__":null,"__metadata__":{}})", 0, "stands there twice"},
      {"dtype in lower case", one(R"("f32")", "[1]", "[0,4]"), 4, "unknown"},
      {"dtype is a number", one("7", "[1]", "[0,4]"), 4, "must not be the number 7"},
      {"dtype is a list", one("[]", "[1]", "[0,4]"), 4, "must not be a list"},
      {"negative dim", one(f32, "[-1]", "[0,4]"), 4, "must not be the number -1"},
      {"fractional dim", one(f32, "[1.5]", "[0,4]"), 4, "must not be the number"},
      {"dim is text", one(f32, R"(["1"])", "[0,4]"), 4, "must not be the text"},
      {"dim over 2^63", one(f32, "[9223372036854775808]", "[0,4]"), 4, "9223372036854775808"},
      {"product overflows", one(f32, "[4294967296,4294967296]", "[0,0]"), 0, "larger than 2^64"},
      {"product overflows before a zero", one(f32, "[4294967296,4294967296,0]", "[0,0]"), 0,
       "larger than 2^64"},
      {"offsets are one", one(f32, "[1]", "[0]"), 4, "has 1 numbers, not 2"},
      {"offsets are three", one(f32, "[1]", "[0,4,8]"), 4, "over 2 numbers"},
      {"offsets backwards", one(f32, "[1]", "[4,0]"), 4, "not inside"},
      {"offsets outside", one(f32, "[2]", "[0,8]"), 4, "not inside the data section of 4 bytes"},
      {"offsets near 2^64", one(f32, "[1]", "[18446744073709551612,18446744073709551615]"), 4, "not inside"},
      {"size differs", one(f32, "[1]", "[0,8]"), 8, "hold 8 bytes, its dtype and shape need 4"},
      {"bytes before", one(f32, "[1]", "[4,8]"), 8, "begin at 4, a gap after 0"},
      {"bytes behind", one(f32, "[1]", "[0,4]"), 8, "end at byte 4 of a data section of 8 bytes"},
      {"data without a tensor", "{}", 8, "end at byte 0 of a data section of 8"},
      {"overlap",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, "begin at 4, inside the tensor before it, which ends at 8"},
      {"shared bytes",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "inside the tensor before it"},
      {"name twice",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "\"a\" stands there twice"},
      {"field twice", R"({"a":{"dtype":"F32","dtype":"F64","shape":[1],"data_offsets":[0,4]}})", 4, "twice"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ stands there twice"},
      {"metadata key twice", R"({"__metadata__":{"a":"1","a":"2"}})", 0, "stands there twice"},
      {"metadata is no text", R"({"__metadata__":{"a":1}})", 0,
       "__metadata__.\"a\" must not be the number 1"},
      {"metadata is a list", R"({"__metadata__":[]})", 0, "must not be a list"},
      {"control characters in a name", "{\"a\\n\\u001b[31m\":1}", 0, "\"a\\x0a\\x1b[31m\""},
  };
  for (const Hostile& hostile : table) {
    const Error error = error_of(file_of(hostile.json, hostile.data_bytes));
    EXPECT_EQ(error.code(), Code::corrupt) << hostile.what << ": " << error.message();
    EXPECT_NE(error.message().find(hostile.words), std::string::npos)
        << hostile.what << ": " << error.message();
    EXPECT_EQ(error.message().find('\n'), std::string::npos) << hostile.what;
  }
}

TEST(Safetensors, RefusesLengthsThatLie) {
  EXPECT_EQ(error_of("").code(), Code::corrupt);
  EXPECT_EQ(error_of("1234567").code(), Code::corrupt);
  const Error over = error_of(with_length("{}", 3));
  EXPECT_EQ(over.code(), Code::corrupt);
  EXPECT_NE(over.message().find("a header of 3 bytes in a file of 10"), std::string::npos) << over.message();
  EXPECT_NE(error_of(with_length("{}", 100'000'001)).message().find("over the limit"), std::string::npos);
  EXPECT_EQ(error_of(with_length("{}", UINT64_MAX)).code(), Code::corrupt);
  EXPECT_EQ(error_of(with_length("{}", UINT64_MAX - 7)).code(), Code::corrupt);
}

TEST(Safetensors, EveryTruncationIsCorrupt) {
  const std::string whole = file_of(kGood, 24);
  ASSERT_EQ(error_of(whole).code(), Code::ok);
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_EQ(error_of(whole.substr(0, length)).code(), Code::corrupt) << length;
  EXPECT_EQ(error_of(whole + "x").code(), Code::corrupt);
}

TEST(Safetensors, EverySingleByteChangeIsReadOrRefused) {
  const std::string whole = file_of(kGood, 24);
  for (size_t at = 0; at < 8; ++at)
    for (int value = 0; value < 256; value += 51) {
      std::string changed = whole;
      changed[at] = static_cast<char>(value);
      const Code code = error_of(changed).code();
      EXPECT_TRUE(code == Code::ok || code == Code::corrupt) << at << " " << value;
    }
  const std::string json = kGood;
  for (size_t at = 0; at < json.size(); ++at)
    for (int value = 0; value < 256; ++value) {
      std::string changed = json;
      changed[at] = static_cast<char>(value);
      try {
        parse_safetensors_header(changed, 24);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::corrupt) << at << " " << value;
      }
    }
}

TEST(Safetensors, MetadataOfNullAreNone) {
  EXPECT_TRUE(parse_safetensors_header(R"({"__metadata__":null})", 0).metadata.empty());
}

// Every dtype that the format has and this library has not, and more dims than a tensor may have here.
TEST(Safetensors, ATensorThatCannotBeReadIsRefusedOnlyByWhoWantsIt) {
  struct Row {
    const char *dtype, *shape;
    size_t bytes;
    const char* words;
  };
  const Row table[] = {
      {"F8_E8M0", "[8]", 8, "is F8_E8M0, a dtype that this library does not read"},
      {"F8_E4M3FNUZ", "[8]", 8, "F8_E4M3FNUZ"},
      {"F8_E5M2FNUZ", "[8]", 8, "F8_E5M2FNUZ"},
      {"F6_E2M3", "[4]", 3, "F6_E2M3"},
      {"F6_E3M2", "[2,2]", 3, "F6_E3M2"},
      {"F4", "[16]", 8, "F4"},
      {"U8", "[1,1,1,1,1,1,1,1,1]", 1, "has 9 dimensions, but this library reads at most 8"}};
  for (const Row& row : table) {
    const std::string json = R"({"a":{"dtype":")" + std::string(row.dtype) + R"(","shape":)" + row.shape +
                             R"(,"data_offsets":[0,)" + std::to_string(row.bytes) +
                             R"(]},"b":{"dtype":"U8","shape":[1],"data_offsets":[)" +
                             std::to_string(row.bytes) + "," + std::to_string(row.bytes + 1) + "]}}";
    const SafetensorsHeader header = parse_safetensors_header(json, row.bytes + 1);
    EXPECT_NO_THROW(check_readable(header.tensors.at("b"), "b", "file", "load"));
    try {
      check_readable(header.tensors.at("a"), "a", "file", "load");
      ADD_FAILURE() << row.dtype;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::not_supported);
      EXPECT_NE(error.message().find(row.words), std::string::npos) << error.message();
    }
  }
}

TEST(Safetensors, AFileOfAnotherFormatIsNamed) {
  for (const std::string& begin :
       {std::string("PK\x03\x04"), std::string("\x80\x02}q"), std::string("GGUF")}) {
    const Error error = error_of(begin + std::string(100, 'x'));
    EXPECT_EQ(error.code(), Code::not_supported) << error.message();
    EXPECT_NE(error.message().find(begin == "GGUF" ? "llama.cpp" : "save_pretrained"), std::string::npos)
        << error.message();
  }
}

TEST(Safetensors, SystemErrorsAreIo) {
  for (const char* path : {"/nonexistent/file", "/tmp"}) {
    try {
      SafetensorsFile file(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io);
      EXPECT_NE(error.message().find(path), std::string::npos);
    }
  }
}

TEST(Safetensors, WritesWhatItReads) {
  SafetensorsHeader header;
  header.metadata = {{"note", "line \"one\"\nline two"}};
  header.tensors["w"] = {DType::bf16, Shape{3, 1}, 0, 0};
  header.tensors["v"] = {DType::f64, Shape{2}, 0, 0};
  header.tensors["scalar"] = {DType::f64, Shape{}, 0, 0};
  header.tensors["none"] = {DType::f32, Shape{0, 4}, 0, 0};
  const std::string bytes = make_safetensors_header(header);
  EXPECT_EQ(bytes.size() % 8, 0u);
  EXPECT_EQ(header.tensors["scalar"].first, 0u);
  EXPECT_EQ(header.tensors["v"].first, 8u);
  EXPECT_EQ(header.tensors["w"].first, 24u);
  const SafetensorsHeader again = parse_safetensors_header(std::string_view(bytes).substr(8), 30);
  EXPECT_EQ(again.metadata, header.metadata);
  ASSERT_EQ(again.tensors.size(), header.tensors.size());
  for (const auto& [name, tensor] : header.tensors) {
    EXPECT_EQ(again.tensors.at(name).dtype, tensor.dtype);
    EXPECT_EQ(again.tensors.at(name).shape, tensor.shape);
    EXPECT_EQ(again.tensors.at(name).first, tensor.first);
    EXPECT_EQ(again.tensors.at(name).last, tensor.last);
  }
}

TEST(Safetensors, DimensionsBesideAZeroAreCheckedToo) {
  const std::string json =
      R"({"w": {"dtype": "F32", "shape": [0, 4611686018427387904], "data_offsets": [0, 0]}})";
  try {
    parse_safetensors_header(json, 0);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::corrupt) << error.message();
    EXPECT_NE(error.message().find("tensor \"w\".shape"), std::string::npos) << error.message();
  }
}

TEST(Safetensors, RefusesToWriteWhatTheFormatLacks) {
  SafetensorsHeader header;
  header.tensors["w"] = {DType::c128, Shape{1}, 0, 0};
  EXPECT_THROW(make_safetensors_header(header), Error);
  header.tensors["w"].dtype = DType::f32;
  header.metadata["note"] = "\xff";
  EXPECT_THROW(make_safetensors_header(header), Error);
}

}  // namespace
}  // namespace gangway
