#include "checkpoint/header_json.h"

#include "base/error.h"
#include "base/json.h"
#include "base/line.h"

namespace gangway {
namespace {

// Handles the events of the parser one by one instead of building a document: it takes no memory besides the
// result, accepts at most three levels of nesting, and detects duplicate keys.
class HeaderEvents final : public JsonEvents {
 public:
  explicit HeaderEvents(RawHeader& header) : header_(header) {}

  bool null() override {
    // The format's reference reader takes null for metadata that are absent.
    return (place_ == Place::top && key_ == "__metadata__") || unexpected("null");
  }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool integer(int64_t value) override { return unexpected(text("the number ", value)); }
  bool real(double, const std::string& token) override {
    return unexpected("the number " + printable(token));
  }

  bool unsigned_integer(uint64_t value) override {
    if (place_ == Place::shape) {
      // Above our limit of dims, and small enough to be cheap.
      if (tensor().shape.size() == 64) return refuse(text(where(), " has over 64 dimensions"));
      tensor().shape.push_back(value);
      return true;
    }
    if (place_ != Place::offsets) return unexpected(text("the number ", value));
    if (offsets_ == 2) return refuse(text(where(), " has over 2 numbers"));
    (offsets_++ == 0 ? tensor().first : tensor().last) = value;
    return true;
  }

  bool string(const std::string& value) override {
    if (place_ == Place::metadata) {
      header_.metadata[key_] = value;
      return true;
    }
    if (place_ != Place::tensor || key_ != "dtype") return unexpected("the text " + printable(value));
    tensor().dtype = value;
    return true;
  }

  bool start_object() override {
    switch (place_) {
      case Place::before: place_ = Place::top; return true;
      case Place::top:
        place_ = key_ == "__metadata__" ? Place::metadata : Place::tensor;
        if (place_ == Place::metadata) return true;
        header_.tensors.push_back({key_, {}, {}, 0, 0});
        fields_ = 0;
        return true;
      case Place::tensor:
      case Place::metadata:
      case Place::shape:
      case Place::offsets: break;
    }
    return unexpected("an object");
  }

  bool key(const std::string& key) override {
    key_ = key;
    if (place_ == Place::metadata && header_.metadata.count(key) != 0)
      return refuse("__metadata__." + printable(key) + " stands there twice");
    if (place_ == Place::top && key == "__metadata__" && metadata_seen_++ != 0)
      return refuse("__metadata__ stands there twice");
    if (place_ != Place::tensor) return true;
    const unsigned field = key == "dtype" ? 1u : key == "shape" ? 2u : key == "data_offsets" ? 4u : 0u;
    if (field == 0) return refuse(where() + " is no field of the format");
    if ((fields_ & field) != 0) return refuse(where() + " stands there twice");
    fields_ |= field;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor && fields_ != 7)
      return refuse("tensor " + printable(tensor().name) + " lacks " +
                    ((fields_ & 1) == 0   ? "dtype"
                     : (fields_ & 2) == 0 ? "shape"
                                          : "data_offsets"));
    place_ = Place::top;
    return true;
  }

  bool start_list() override {
    if (place_ != Place::tensor || key_ == "dtype") return unexpected("a list");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
    offsets_ = 0;
    return true;
  }

  bool end_list() override {
    if (place_ == Place::offsets && offsets_ != 2)
      return refuse(text(where(), " has ", offsets_, " numbers, not 2"));
    place_ = Place::tensor;
    return true;
  }

  void parse_error(JsonFault, size_t position) override {
    refuse(text("the header is not JSON at its byte ", position));
  }

  std::string refusal;

 private:
  enum class Place { before, top, metadata, tensor, shape, offsets };

  RawTensor& tensor() { return header_.tensors.back(); }

  std::string where() {
    switch (place_) {
      case Place::before: return "the header";
      case Place::top: return "tensor " + printable(key_);
      case Place::metadata: return "__metadata__." + printable(key_);
      case Place::tensor:
      case Place::shape:
      case Place::offsets: break;
    }
    return "tensor " + printable(tensor().name) + " ." + printable(key_);
  }

  bool refuse(std::string what) {
    if (refusal.empty()) refusal = std::move(what);
    return false;
  }
  bool unexpected(const std::string& what) { return refuse(where() + " must not be " + what); }

  RawHeader& header_;
  Place place_ = Place::before;
  std::string key_;
  unsigned fields_ = 0;  // bits of the fields that the current tensor has: 1 dtype, 2 shape, 4 data_offsets
  int offsets_ = 0;
  int metadata_seen_ = 0;
};

}  // namespace

RawHeader read_header_json(std::string_view json) {
  // The format allows nothing before the brace. The parser itself allows only white space after the object.
  if (json.empty() || json.front() != '{') fail(Code::corrupt, "the header does not begin with '{'");
  RawHeader header;
  HeaderEvents events(header);
  if (!read_json(json, events)) fail(Code::corrupt, events.refusal);
  return header;
}

std::string write_header_json(const RawHeader& header) {
  try {
    JsonObject json(0);
    if (!header.metadata.empty()) {
      JsonObject metadata(0);
      for (const auto& [key, value] : header.metadata) metadata.add(key, json_scalar(value));
      json.add("__metadata__", std::move(metadata).close());
    }
    for (const RawTensor& tensor : header.tensors) {
      JsonObject fields(0);
      fields.add("dtype", json_scalar(tensor.dtype));
      std::string shape;
      for (const uint64_t size : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
      fields.add("shape", "[" + shape + "]");
      fields.add("data_offsets", text("[", tensor.first, ",", tensor.last, "]"));
      json.add(tensor.name, std::move(fields).close());
    }
    return std::move(json).close();
  } catch (const NotUtf8&) {
    fail(Code::invalid_argument, "safetensors: a name or the metadata is not UTF-8");
  }
}

}  // namespace gangway
