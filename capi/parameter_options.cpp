#include "parameter_options.h"

#include <cstring>

using namespace gangway;
using namespace gangway::capi;

namespace gangway::capi {

class Initializers::Fill final : public Init::Initializer {
 public:
  using Function = decltype(gw_init_options::fill);
  Fill(Function fill, std::shared_ptr<Held> held) : fill_(fill), held_(std::move(held)) {}
  void fill(int64_t first_row, int64_t last_row, void* out, size_t count, DType dtype) override {
    run_callback("fill", "the initialiser",
                 [&] { return fill_(held_->user, first_row, last_row, out, count, gw_dtype_of(dtype)); });
  }

 private:
  Function fill_;
  std::shared_ptr<Held> held_;
};

const gw_init_options* Initializers::at(size_t i) const noexcept {
  const size_t step = first_->struct_size;
  if (step < offsetof(gw_parameter_options, initializer) + sizeof(void*) || step > kLargestStruct)
    return nullptr;
  const char* element = reinterpret_cast<const char*>(first_) + i * step;
  const gw_init_options* options = nullptr;
  std::memcpy(&options, element + offsetof(gw_parameter_options, initializer), sizeof options);
  return reaches_object(options) && options->free_user != nullptr ? options : nullptr;
}

Initializers::~Initializers() {
  if (taken_ || first_ == nullptr) return;
  for (size_t i = 0; i < count_; ++i) {
    const gw_init_options* options = at(i);
    bool earlier = false;
    for (size_t j = 0; j < i && !earlier; ++j) earlier = at(j) == options;
    if (options != nullptr && !earlier) options->free_user(options->user);
  }
}

void Initializers::take() noexcept {
  taken_ = true;
  for (auto& [options, held] : held_) held->taken = true;
}

Init Initializers::read(const gw_init_options* options) {
  const gw_init_options o = read_struct(options, gw_init_options_init, "initializer");
  std::shared_ptr<Held> held;
  for (const auto& [known, its] : held_)
    if (known == options) held = its;
  if (!held && options != nullptr) {
    held = std::make_shared<Held>();
    held->user = o.user;
    held->release = o.free_user;
    held_.emplace_back(options, held);
  }
  switch (o.kind) {
    case GW_INIT_NORMAL:
      if (!(finite(o.deviation, "initializer.deviation") >= 0))
        fail(Code::invalid_argument, "initializer.deviation is ", o.deviation, ", below 0");
      return Init::normal(o.deviation);
    case GW_INIT_ZEROS: return Init::zeros();
    case GW_INIT_ONES: return Init::ones();
    case GW_INIT_FILL: {
      if (o.fill == nullptr)
        fail(Code::invalid_argument, "initializer.kind is GW_INIT_FILL, but fill is null");
      Init init;
      init.kind = Init::Kind::fill;
      init.initializer = std::make_shared<Fill>(o.fill, std::move(held));
      return init;
    }
    default: fail(Code::invalid_argument, "initializer.kind is ", o.kind, ", not 0 to ", GW_INIT_FILL);
  }
}

Shape shape_of(const gw_parameter_options& o) {
  if (o.ndim < 0 || o.ndim > kMaxDims)
    fail(Code::invalid_argument, "parameter ", text_or(o.name, "?"), " has ndim ", o.ndim, ", not 0 to ",
         kMaxDims);
  if (o.ndim == 0) return {1};
  return Shape(std::span<const int64_t>(o.dims, static_cast<size_t>(o.ndim)));
}

}  // namespace gangway::capi

void gw_init_options_init(gw_init_options* options, size_t size) {
  gw_init_options d{};
  d.deviation = 0.02;
  init_struct(options, size, d);
}

void gw_parameter_options_init(gw_parameter_options* options, size_t size) { start_struct(options, size); }
