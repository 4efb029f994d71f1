#include "gang/work.h"

namespace gangway {
namespace {

class FinishedWork : public Work {
 public:
  bool poll() override { return true; }
  bool poll_input() override { return true; }
  void wait(Deadline) override {}
  void wait_input(Deadline) override {}
  void order(Stream&) override {}
  void order_input(Stream&) override {}
  std::optional<Error> error() const override { return std::nullopt; }
};

}  // namespace

WorkPtr finished_work() {
  static const WorkPtr work = std::make_shared<FinishedWork>();
  return work;
}

}  // namespace gangway
