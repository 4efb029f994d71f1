#include <cmath>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "checkpoint/run/restore.h"
#include "parallel/collective_call.h"

namespace gangway {
namespace {

template <typename T>
double number_at(const unsigned char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return static_cast<double>(value);
}

// Returns the number of steps that a file of states says, if it does.
std::optional<int64_t> steps_of(const Source& source, const std::string& path) {
  const auto at = source.tensors().find(kStepName);
  if (at == source.tensors().end()) return std::nullopt;
  const StoredTensor& stored = at->second.tensor;
  if (stored.shape.count() != 1)
    fail(Code::invalid_argument, "load_optimizer: step has shape ", stored.shape.text(), " in ", path,
         ", not one number");
  unsigned char bytes[sizeof(int64_t)] = {};
  double steps = -1;
  const auto read = [&](auto type) {
    at->second.file->read(stored, 0, sizeof type, bytes);
    steps = number_at<decltype(type)>(bytes);
  };
  switch (stored.dtype) {
    case DType::f32: read(float{}); break;
    case DType::f64: read(double{}); break;
    case DType::i32: read(int32_t{}); break;
    case DType::i64: read(int64_t{}); break;
    default:
      fail(Code::invalid_argument, "load_optimizer: step is ", name(stored.dtype), " in ", path,
           ", not f32, f64, i32 or i64");
  }
  if (!(steps >= 0 && steps <= 0x1p53 && steps == std::floor(steps)))
    fail(Code::invalid_argument, "load_optimizer: step is ", steps, " in ", path, ", not a number of steps");
  return static_cast<int64_t>(steps);
}

}  // namespace

void load_optimizer(Model& model, Optimizer& optimizer, const std::string& path) {
  std::optional<OptimizerStates> states;
  std::optional<int64_t> steps;
  std::vector<std::string> nothing;
  std::string arguments;
  const CollectiveCall call(model.gangs(), "load_optimizer");
  call.check(
      [&] {
        check_parts({{"", &model, &optimizer}}, model.gangs(), "load_optimizer");
        LeftOut left_out(nothing, /*strict=*/true);
        states.emplace(model, optimizer, Source::open(path, "optimizer"), left_out);
        steps = steps_of(states->source(), path);
        arguments = "load_optimizer";
        for (const std::string& line : states->source().lines(/*same_host=*/false)) arguments += "\n" + line;
      },
      arguments);
  std::optional<Error> unread;
  call.run([&] { unread = error_thrown_by([&] { states->read(model.device().stream()); }); });
  call.check([&] {
    if (unread) throw *unread;
    if (steps) optimizer.set_steps(*steps);
  });
}

}  // namespace gangway
