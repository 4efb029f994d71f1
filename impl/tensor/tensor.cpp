#include "tensor/tensor.h"

namespace gangway {

std::shared_ptr<Buffer> Buffer::allocate(std::shared_ptr<Allocator> from, size_t bytes) {
  std::shared_ptr<Buffer> b(new Buffer);
  b->block_ = from->allocate(bytes);
  b->device_ = &from->device();
  b->kind_ = from->kind();
  b->from_ = std::move(from);
  return b;
}

std::shared_ptr<Buffer> Buffer::borrow(Device& device, MemoryKind kind, void* data, size_t bytes,
                                       std::shared_ptr<void> keep, bool read_only) {
  std::shared_ptr<Buffer> b(new Buffer);
  b->block_ = {data, bytes, 0};
  b->device_ = &device;
  b->kind_ = kind;
  b->read_only_ = read_only;
  b->keep_ = std::move(keep);
  return b;
}

Buffer::~Buffer() {
  if (from_) from_->free(block_);
}

bool is_shared(const std::shared_ptr<Buffer>& buffer) {
  if (buffer.use_count() <= 1) return false;
  buffer->device().submit();
  return buffer.use_count() > 1;
}

Tensor::Tensor(std::shared_ptr<Buffer> buffer, size_t offset, DType dtype, const Shape& shape)
    : buffer_(std::move(buffer)), offset_(offset), dtype_(dtype), shape_(shape), strides_(row_major(shape)) {
  GW_CHECK(offset_ + bytes(), <=, buffer_->bytes());
}

Tensor::Tensor(std::shared_ptr<Buffer> buffer, size_t offset, DType dtype, const Shape& shape,
               std::span<const int64_t> strides)
    : buffer_(std::move(buffer)), offset_(offset), dtype_(dtype), shape_(shape) {
  GW_CHECK(static_cast<int>(strides.size()), ==, shape.rank());
  int64_t last = 0;  // the offset of the last element
  for (int i = 0; i < shape.rank(); ++i) {
    strides_[static_cast<size_t>(i)] = strides[static_cast<size_t>(i)];
    last += (shape[i] - 1) * strides[static_cast<size_t>(i)];
  }
  if (shape.count() > 0)
    GW_CHECK(offset_ + static_cast<size_t>(last + 1) * item_bytes(dtype), <=, buffer_->bytes());
}

Tensor Tensor::allocate(const std::shared_ptr<Allocator>& from, DType dtype, const Shape& shape) {
  return Tensor(Buffer::allocate(from, static_cast<size_t>(shape.count()) * item_bytes(dtype)), 0, dtype,
                shape);
}

Tensor Tensor::borrow(Device& device, void* data, DType dtype, const Shape& shape, bool read_only) {
  const size_t bytes = static_cast<size_t>(shape.count()) * item_bytes(dtype);
  return Tensor(Buffer::borrow(device, device.memory_kind(), data, bytes, nullptr, read_only), 0, dtype,
                shape);
}

bool Tensor::contiguous() const {
  if (count() == 0) return true;
  int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && stride(i) != step) return false;
    step *= shape_[i];
  }
  return true;
}

void* Tensor::raw() const {
  if (!buffer_ || buffer_->data() == nullptr) return nullptr;
  return static_cast<char*>(buffer_->data()) + offset_;
}

Tensor Tensor::reshape(const Shape& shape) const {
  GW_CHECK(shape.count(), ==, count());
  GW_CHECK(contiguous(), ==, true);
  Tensor t = *this;
  t.shape_ = shape;
  t.strides_ = row_major(shape);
  return t;
}

Tensor Tensor::slice(int dim, int64_t first, int64_t last) const {
  GW_CHECK(first, >=, 0);
  GW_CHECK(first, <=, last);
  GW_CHECK(last, <=, shape_[dim]);
  Tensor t = *this;
  t.offset_ += static_cast<size_t>(first * stride(dim)) * item_bytes(dtype_);
  t.shape_[dim] = last - first;
  return t;
}

Tensor Tensor::transpose(int a, int b) const {
  Tensor t = *this;
  std::swap(t.shape_[a], t.shape_[b]);
  std::swap(t.strides_[static_cast<size_t>(a)], t.strides_[static_cast<size_t>(b)]);
  return t;
}

Tensor Tensor::flatten2() const {
  const int64_t columns = shape_.rank() == 0 ? 1 : shape_.back();
  int64_t rows = 1, stride = columns;
  for (int i = 0; i + 1 < shape_.rank(); ++i) rows *= shape_[i];
  if (contiguous()) return reshape({rows, columns});
  int64_t inner = 1;  // rows of the dims so far
  for (int i = shape_.rank() - 2; i >= 0; --i) {
    if (shape_[i] == 1) continue;
    if (inner == 1) stride = this->stride(i);
    GW_CHECK(this->stride(i), ==, stride * inner);
    inner *= shape_[i];
  }
  return Tensor(buffer_, offset_, dtype_, {rows, columns}, std::array{stride, this->stride(-1)});
}

std::string Tensor::text() const { return name(dtype_) + " " + shape_.text(); }

}  // namespace gangway
