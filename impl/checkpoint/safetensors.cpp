#include "checkpoint/safetensors.h"

#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/line.h"
#include "checkpoint/header_json.h"

namespace gangway {
namespace {

struct DtypeName {
  const char* name;
  DType dtype;
};

// The format's names of dtypes that this library reads.
constexpr DtypeName kNames[] = {
    {"F64", DType::f64},      {"F32", DType::f32},         {"BF16", DType::bf16},       {"F16", DType::f16},
    {"I64", DType::i64},      {"I32", DType::i32},         {"I16", DType::i16},         {"I8", DType::i8},
    {"U64", DType::u64},      {"U32", DType::u32},         {"U16", DType::u16},         {"U8", DType::u8},
    {"BOOL", DType::boolean}, {"F8_E4M3", DType::f8_e4m3}, {"F8_E5M2", DType::f8_e5m2}, {"C64", DType::c64},
};

constexpr size_t kLengthBytes = 8;     // before the JSON
constexpr size_t kDataAlignment = 64;  // of the data section in files that this library writes

// The format's other names, with the bits of an element.
constexpr std::pair<std::string_view, uint64_t> kUnread[] = {
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};

// Returns the product of the dims and `first`. CORRUPT: it overflows.
uint64_t product(uint64_t first, const RawTensor& raw, const std::string& where) {
  for (const uint64_t dim : raw.shape)
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(first, dim, &first))
      fail(Code::corrupt, where, ".shape: dimension ", dim, " makes it larger than 2^64 bytes");
  return first;
}

// Sets the dtype, or says why the tensor cannot be read. Returns the number of its bytes.
uint64_t parse_dtype(const RawTensor& raw, const std::string& where, StoredTensor& tensor) {
  for (const DtypeName& entry : kNames)
    if (raw.dtype == entry.name) {
      tensor.dtype = entry.dtype;
      return product(item_bytes(entry.dtype), raw, where);
    }
  for (const auto& [name, bits] : kUnread)
    if (raw.dtype == name) {
      tensor.unreadable = text("is ", name, ", a dtype that this library does not read");
      const uint64_t all = product(bits, raw, where);
      if (all % 8 != 0) fail(Code::corrupt, where, ".shape: ", all, " bits of ", name, " are no whole bytes");
      return all / 8;
    }
  fail(Code::corrupt, where, ".dtype is ", printable(raw.dtype), ", which is unknown");
}

// Checks the dims once more: if one of them is 0, the number of bytes does not limit the others.
Shape checked_shape(const RawTensor& raw, const std::string& where) {
  const std::vector<int64_t> dims(raw.shape.begin(), raw.shape.end());
  try {
    return Shape(std::span<const int64_t>(dims));
  } catch (const Error& error) {
    fail(Code::corrupt, where, ".shape: ", error.message());
  }
}

StoredTensor check_tensor(const RawTensor& raw, uint64_t data_bytes) {
  const std::string where = "tensor " + printable(raw.name);
  StoredTensor tensor;
  const uint64_t bytes = parse_dtype(raw, where, tensor);
  tensor.first = raw.first;
  tensor.last = raw.last;
  if (raw.first > raw.last || raw.last > data_bytes)
    fail(Code::corrupt, where, ".data_offsets [", raw.first, ", ", raw.last,
         "] are not inside the data section of ", data_bytes, " bytes");
  if (raw.last - raw.first != bytes)
    fail(Code::corrupt, where, ".data_offsets [", raw.first, ", ", raw.last, "] hold ", raw.last - raw.first,
         " bytes, its dtype and shape need ", bytes);
  if (raw.shape.size() > static_cast<size_t>(kMaxDims))
    tensor.unreadable =
        text("has ", raw.shape.size(), " dimensions, but this library reads at most ", kMaxDims);
  if (tensor.unreadable.empty()) tensor.shape = checked_shape(raw, where);
  return tensor;
}

// Throws CORRUPT unless the tensors cover the data section exactly, without gap and overlap.
void check_cover(const std::map<std::string, StoredTensor>& tensors, uint64_t data_bytes) {
  std::vector<const std::pair<const std::string, StoredTensor>*> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.first, a->second.last) < std::pair(b->second.first, b->second.last);
  });
  uint64_t end = 0;
  for (const auto* entry : order) {
    if (entry->second.first != end)
      fail(Code::corrupt, "tensor ", printable(entry->first), ".data_offsets begin at ", entry->second.first,
           entry->second.first < end ? ", inside the tensor before it, which ends at " : ", a gap after ",
           end);
    end = entry->second.last;
  }
  if (end != data_bytes)
    fail(Code::corrupt, "the tensors end at byte ", end, " of a data section of ", data_bytes, " bytes");
}

// Throws NOT_SUPPORTED if the file begins as files of PyTorch or llama.cpp do, which users often give
// instead.
void refuse_other_formats(const unsigned char* prefix) {
  const std::string_view begin(reinterpret_cast<const char*>(prefix), 4);
  // torch.save writes a zip archive, older versions a pickle.
  if (begin == "PK\x03\x04" || begin.starts_with("\x80\x02"))
    fail(Code::not_supported, "it is a file of torch.save, not of safetensors; ", kHowToConvert);
  if (begin == "GGUF") fail(Code::not_supported, "it is a GGUF file of llama.cpp, not of safetensors");
}

}  // namespace

void check_readable(const StoredTensor& tensor, const std::string& name, const std::string& path,
                    const char* call) {
  if (!tensor.unreadable.empty())
    fail(Code::not_supported, call, ": tensor ", printable(name), " of ", path, " ", tensor.unreadable);
}

std::string safetensors_dtype(DType dtype) {
  for (const DtypeName& entry : kNames)
    if (dtype == entry.dtype) return entry.name;
  return {};
}

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes) {
  RawHeader raw = read_header_json(json);
  SafetensorsHeader header;
  header.metadata = std::move(raw.metadata);
  for (const RawTensor& tensor : raw.tensors)
    if (!header.tensors.emplace(tensor.name, check_tensor(tensor, data_bytes)).second)
      fail(Code::corrupt, "tensor ", printable(tensor.name), " stands there twice");
  check_cover(header.tensors, data_bytes);
  return header;
}

std::string make_safetensors_header(SafetensorsHeader& header) {
  std::vector<std::pair<const std::string, StoredTensor>*> order;
  for (auto& entry : header.tensors) {
    if (safetensors_dtype(entry.second.dtype).empty())
      fail(Code::invalid_argument, "safetensors: ", entry.first, " is ", name(entry.second.dtype),
           ", which the format cannot hold");
    order.push_back(&entry);
  }
  // The widest dtypes come first, so that every tensor is aligned to the size of its elements.
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return item_bytes(a->second.dtype) > item_bytes(b->second.dtype);
  });
  RawHeader raw;
  raw.metadata = header.metadata;
  uint64_t end = 0;
  for (auto* entry : order) {
    StoredTensor& tensor = entry->second;
    tensor.first = end;
    end += static_cast<uint64_t>(tensor.shape.count()) * item_bytes(tensor.dtype);
    tensor.last = end;
    raw.tensors.push_back({entry->first,
                           safetensors_dtype(tensor.dtype),
                           {tensor.shape.dims().begin(), tensor.shape.dims().end()},
                           tensor.first,
                           tensor.last});
  }
  std::string json = write_header_json(raw);
  json.append((kDataAlignment - (kLengthBytes + json.size()) % kDataAlignment) % kDataAlignment, ' ');
  if (json.size() > kSafetensorsHeaderLimit)
    fail(Code::invalid_argument, "safetensors: a header of ", json.size(), " bytes is over the format's ",
         kSafetensorsHeaderLimit);
  std::string out(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) out[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return out + json;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  try {
    parse();
  } catch (const Error& error) {
    if (error.code() != Code::corrupt && error.code() != Code::not_supported) throw;
    fail(error.code(), "safetensors: ", path, ": ", error.message());
  }
}

void SafetensorsFile::parse() {
  const uint64_t size = file_.opened().bytes;
  if (size < 8) fail(Code::corrupt, "it has ", size, " bytes, fewer than the 8 of the header's length");
  unsigned char prefix[9] = {};  // the length and the brace of the header
  file_.read(0, std::min<uint64_t>(size, sizeof prefix), prefix);
  if (prefix[8] != '{') refuse_other_formats(prefix);
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= static_cast<uint64_t>(prefix[i]) << (8 * i);
  if (length > kSafetensorsHeaderLimit)
    fail(Code::corrupt, "a header of ", length, " bytes is over the limit of ", kSafetensorsHeaderLimit);
  if (length > size - 8) fail(Code::corrupt, "a header of ", length, " bytes in a file of ", size);
  std::string json(static_cast<size_t>(length), '\0');
  file_.read(8, length, json.data());
  data_start_ = 8 + length;
  header_hash_ = XXH3_64bits(json.data(), json.size());
  header_ = parse_safetensors_header(json, size - data_start_);
}

void SafetensorsFile::read(const StoredTensor& tensor, uint64_t first, uint64_t last, void* out) const {
  GW_CHECK(first, <=, last);
  GW_CHECK(last, <=, tensor.last - tensor.first);
  file_.read(data_start_ + tensor.first + first, last - first, out);
}

}  // namespace gangway
