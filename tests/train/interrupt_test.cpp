// The caller's interrupt hook in calls that compute and never wait.
#include <barrier>
#include <filesystem>

#include "base/interrupt.h"
#include "checkpoint/model_files.h"
#include "support/scratch.h"
#include "train/rig.h"

namespace gangway {
namespace {

using test::error_of;
using test::Rig;
using test::SquareLoss;

// While an object lives, the interrupt hook of this thread interrupts the call that asks it for the `last`-th
// time.
class Interrupt {
 public:
  explicit Interrupt(int last) : last_(last) {
    set_interrupt([](void* user) { return static_cast<Interrupt*>(user)->ask(); }, this, nullptr);
  }
  ~Interrupt() { set_interrupt(nullptr, nullptr, nullptr); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  int asked() const { return asked_; }

 private:
  int ask() { return ++asked_ >= last_ ? 1 : 0; }
  const int last_;
  int asked_ = 0;
};

template <typename Call>
void expect_ended(const char* name, int question, Call&& call) {
  Interrupt interrupt(question);
  const Error error = error_of(call);
  EXPECT_EQ(error.code(), Code::caller) << name << ": " << error.message();
  EXPECT_NE(error.message().find("interrupt hook"), std::string::npos) << name << ": " << error.message();
  EXPECT_EQ(interrupt.asked(), question) << name;
}

TEST(Interrupt, EndsAStepOfOneRankAmongItsMicrobatches) {
  test::run_ranks(1, [](Gang& root) {
    const auto loss = std::make_shared<SquareLoss>();
    const Rig rig = test::square_rig(root, loss);
    loss->forward_takes = std::chrono::milliseconds(30);
    StepOptions options;
    options.microbatches = 2;
    expect_ended("train_step", 2, [&] { rig.step(loss->batch(*rig.model, 0, 0), options); });
    EXPECT_FALSE(root.error()) << "a rank that is alone works on";
    loss->forward_takes = {};
    EXPECT_EQ(rig.step(loss->batch(*rig.model, 0, 0), options).skipped, Skip::none);
  });
}

TEST(Interrupt, EndsEvaluationAndGeneration) {
  test::run_ranks(1, [](Gang& root) {
    const Rig rig = test::llama_rig(root);
    expect_ended("eval_step", 1, [&] {
      eval_step(*rig.model, test::pattern_batch(*rig.model, 2, 6, 0), StepOptions{}, rig.stream());
    });
  });
  test::run_ranks(1, [](Gang& root) {
    const Rig rig = test::llama_rig(root);
    const std::vector<int64_t> prompt{3, 1, 4};
    const GenerateOptions options{.new_tokens = 4};
    expect_ended("generate", 1, [&] { generate(*rig.model, prompt, options, rig.stream()); });
  });
}

TEST(Interrupt, AnInterruptOfOneRankReachesItsPeers) {
  // Not a barrier of the gang: the slower rank could still be in it when the gang breaks.
  std::barrier both(2);
  test::run_ranks(2, [&](Gang& root) {
    const Rig rig = test::llama_rig(root);
    both.arrive_and_wait();
    std::optional<Interrupt> interrupt;
    if (root.rank() == 1) interrupt.emplace(1);
    const Error error = error_of([&] { rig.step(test::pattern_batch(*rig.model, 2, 6, 0)); });
    EXPECT_EQ(error.code(), root.rank() == 1 ? Code::caller : Code::aborted) << error.message();
    EXPECT_NE(error.message().find("interrupt hook"), std::string::npos) << error.message();
    const bool told = root.rank() == 1 || error.message().find("rank 1") != std::string::npos;
    EXPECT_TRUE(told) << error.message();
  });
}

TEST(Interrupt, EndsInitialisationSavingAndLoadingAndTheModelWorksOn) {
  Scratch folder;
  test::run_ranks(1, [&](Gang& root) {
    const Rig rig = test::llama_rig(root);
    Model other(make_decoder(test::small_llama()), test::make_gangs(root));
    expect_ended("parallelize", 1, [&] { other.build().parallelize(test::parallel(Strategy::full_shard)); });
    other.build().parallelize(test::parallel(Strategy::full_shard));
    expect_ended("save", 1, [&] { save_model(*rig.model, folder.path(), SaveOptions{}); });
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    save_model(*rig.model, folder.path(), SaveOptions{});
    expect_ended("load", 1, [&] { load_model(*rig.model, folder.path()); });
    load_model(*rig.model, folder.path());
    rig.step(test::pattern_batch(*rig.model, 2, 6, 0));
  });
}

}  // namespace
}  // namespace gangway
