// The tensor layer. Belongs here: shapes, strides, shared buffers, views, stacks of temporaries, layouts as
// data. Does not belong here: mathematics (ops), gangs, what a layout means for a collective (parallel).
//
// A Tensor is a strided view of a shared Buffer. Copying a Tensor shares its memory. A Buffer owns one block
// of an Allocator, or refers to memory of another owner. An empty Tensor (no buffer) means "absent" in
// argument structs.
//
// Thread rule: the reference count is atomic. Callers must order accesses to the contents.
#pragma once

#include <memory>
#include <string>

#include "base/dtype.h"
#include "device/device.h"
#include "tensor/shape.h"

namespace gangway {

class Buffer {
 public:
  // Takes a block from the allocator, which the buffer keeps alive.
  static std::shared_ptr<Buffer> allocate(std::shared_ptr<Allocator> from, size_t bytes);
  // Refers to memory of another owner. The buffer holds `keep` as long as it lives. With a null `keep`, the
  // caller must keep the memory alive.
  static std::shared_ptr<Buffer> borrow(Device& device, MemoryKind kind, void* data, size_t bytes,
                                        std::shared_ptr<void> keep, bool read_only = false);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return block_.data; }
  size_t bytes() const { return block_.bytes; }
  Device& device() const { return *device_; }
  MemoryKind kind() const { return kind_; }
  bool read_only() const { return read_only_; }

 private:
  Buffer() = default;
  Block block_;
  Device* device_ = nullptr;
  MemoryKind kind_ = MemoryKind::host;
  bool read_only_ = false;
  std::shared_ptr<Allocator> from_;  // null when borrowed
  std::shared_ptr<void> keep_;
};

// Returns whether others hold the buffer too. First starts the operations that a stream has held back, since
// they hold their buffers.
bool is_shared(const std::shared_ptr<Buffer>& buffer);

class Tensor {
 public:
  Tensor() = default;  // absent
  // A row-major view of the buffer from byte `offset` on.
  Tensor(std::shared_ptr<Buffer> buffer, size_t offset, DType dtype, const Shape& shape);
  Tensor(std::shared_ptr<Buffer> buffer, size_t offset, DType dtype, const Shape& shape,
         std::span<const int64_t> strides);

  static Tensor allocate(const std::shared_ptr<Allocator>& from, DType dtype, const Shape& shape);
  // Returns a row-major view of the caller's memory on `device`. The caller keeps it alive.
  static Tensor borrow(Device& device, void* data, DType dtype, const Shape& shape, bool read_only = false);

  explicit operator bool() const { return buffer_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const { return shape_[i < 0 ? shape_.rank() + i : i]; }
  int64_t stride(int i) const { return strides_[static_cast<size_t>(i < 0 ? shape_.rank() + i : i)]; }
  int64_t count() const { return shape_.count(); }
  size_t bytes() const { return static_cast<size_t>(count()) * item_bytes(dtype_); }
  DType dtype() const { return dtype_; }
  Device& device() const { return buffer_->device(); }
  bool on_host() const { return is_on_host(buffer_->kind()); }  // whether host code may access it in place
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  size_t byte_offset() const { return offset_; }
  // Returns whether the tensor is row-major without gaps. Strides of dims of size 0 or 1 do not matter.
  bool contiguous() const;

  // Returns the address of the first element, or null on meta and for zero bytes.
  void* raw() const;
  template <typename T>
  T* data() const {
    return static_cast<T*>(raw());
  }

  // Views. They throw INTERNAL on misuse, since only the library calls them.
  Tensor reshape(const Shape& shape) const;                  // contiguous only
  Tensor slice(int dim, int64_t first, int64_t last) const;  // rows [first, last) of dim
  Tensor transpose(int a, int b) const;
  // [everything but the last dim, last dim]; the rows may have gaps, which are equal.
  Tensor flatten2() const;

  std::string text() const;  // "f32 [2, 3]"

 private:
  std::shared_ptr<Buffer> buffer_;
  size_t offset_ = 0;  // in bytes
  DType dtype_ = DType::f32;
  Shape shape_;
  std::array<int64_t, kMaxDims> strides_{};  // in elements
};

}  // namespace gangway
