#include "tensor/stack.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gangway {
namespace {

std::vector<size_t> sizes() { return {100, 3, 0, 500000, 1, 700000}; }

std::vector<void*> round(Stack& stack) {
  std::vector<void*> addresses;
  for (const size_t n : sizes())
    addresses.push_back(stack.allocate(DType::f32, {static_cast<int64_t>(n)}).raw());
  stack.reset();
  return addresses;
}

TEST(Stack, AddressesRepeatFromTheSecondRoundOn) {
  Stack stack(make_device("cpu")->allocator());
  round(stack);
  const auto second = round(stack);
  EXPECT_EQ(round(stack), second);
  for (void* address : second) EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 64, 0u);
}

TEST(Stack, TheHighWaterMarkIsTheSumOfPaddedSizesAndTheSameOnMeta) {
  Stack real(make_device("cpu")->allocator()), planned(make_device("meta")->allocator());
  size_t expected = 0;
  for (const size_t n : sizes()) expected += (n * 4 + 63) / 64 * 64;
  round(real);
  round(planned);
  EXPECT_EQ(real.high_water_bytes(), expected);
  EXPECT_EQ(planned.high_water_bytes(), expected);
  EXPECT_EQ(real.used_bytes(), 0u);
}

// Host memory that runs out on demand.
class Scarce final : public Allocator {
 public:
  explicit Scarce(std::shared_ptr<Allocator> from) : from_(std::move(from)) {}
  Device& device() override { return from_->device(); }
  MemoryKind kind() const override { return from_->kind(); }
  Block allocate(size_t bytes) override {
    if (empty) fail(Code::out_of_memory, "no ", bytes, " bytes left");
    return from_->allocate(bytes);
  }
  void free(const Block& block) noexcept override { from_->free(block); }
  bool empty = false;

 private:
  std::shared_ptr<Allocator> from_;
};

TEST(Stack, AScopeEndsWithoutTakingMemory) {
  const auto memory = std::make_shared<Scarce>(make_device("cpu")->allocator());
  Stack stack(memory);
  {
    const StackScope scope(stack);
    stack.allocate(DType::f32, {300000});
    stack.allocate(DType::f32, {3000000});  // a second chunk
    memory->empty = true;
    EXPECT_THROW(stack.allocate(DType::f32, {30000000}), Error);
  }
  EXPECT_THROW(stack.allocate(DType::f32, {1}), Error);
  EXPECT_EQ(stack.used_bytes(), 0u);
  memory->empty = false;
  EXPECT_EQ(stack.allocate(DType::f32, {1}).buffer()->bytes(), stack.high_water_bytes());
}

TEST(Stack, AScopeGivesBackWhatWasTakenInsideIt) {
  Stack stack(make_device("cpu")->allocator());
  const Tensor outer = stack.allocate(DType::f32, {16});
  const size_t before = stack.used_bytes();
  void* first = nullptr;
  {
    const StackScope scope(stack);
    first = stack.allocate(DType::f32, {1000}).raw();
    stack.allocate(DType::f32, {1000000});
  }
  EXPECT_EQ(stack.used_bytes(), before);
  EXPECT_EQ(stack.allocate(DType::f32, {1000}).raw(), first);
}

TEST(Stack, KnowsATensorThatIsTheOnlyAllocationSinceAMark) {
  for (const char* device : {"cpu", "meta"}) {
    Stack stack(make_device(device)->allocator()), other(make_device(device)->allocator());
    const Tensor first = stack.allocate(DType::f32, {10});
    const Stack::Mark mark = stack.mark();
    EXPECT_FALSE(stack.only(mark, first)) << "nothing was taken since";
    EXPECT_FALSE(other.only(Stack::Mark{}, first)) << "another stack's";
    const Tensor tensor = stack.allocate(DType::f32, {10});
    EXPECT_TRUE(stack.only(mark, tensor));
    EXPECT_FALSE(stack.only(mark, first));
    EXPECT_FALSE(stack.only(Stack::Mark{}, tensor));
    stack.allocate(DType::f32, {1});
    EXPECT_FALSE(stack.only(mark, tensor));
    stack.release(mark);
    const Tensor far = stack.allocate(DType::f32, {3000000});  // in a second chunk
    EXPECT_TRUE(stack.only(mark, far));
  }
}

TEST(Stack, ATensorPinsItsChunkThroughAReset) {
  Stack stack(make_device("cpu")->allocator());
  const Tensor kept = stack.allocate(DType::f32, {300000});
  kept.data<float>()[0] = 5;
  stack.allocate(DType::f32, {3000000});
  stack.reset();  // the chunks are replaced by one
  EXPECT_EQ(kept.data<float>()[0], 5);
}

}  // namespace
}  // namespace gangway
