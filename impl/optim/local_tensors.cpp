#include "ops/ops.h"
#include "optim/whole_tensors.h"

namespace gangway {
namespace {

class LocalTensors final : public WholeTensors {
 public:
  explicit LocalTensors(Ops& ops) : ops_(ops), temporaries_(ops.device().allocator()) {}

  int ranks() const override { return 1; }
  int rank() const override { return 0; }
  bool holds(const Parameter&) const override { return true; }
  Stack& temporaries() override { return temporaries_; }
  void gather(std::span<const Parameter* const>, std::span<const Tensor> pieces, const Tensor& whole,
              Stream& stream) override {
    ops_.cast(pieces[0], whole, stream);
  }
  void scatter(std::span<const Parameter* const>, const Tensor& whole, std::span<const Tensor> pieces,
               Stream& stream) override {
    ops_.cast(whole, pieces[0], stream);
  }
  void sum(const std::string&, const Tensor&, Stream&) override {}

 private:
  Ops& ops_;
  Stack temporaries_;
};

}  // namespace

std::unique_ptr<WholeTensors> make_local_tensors(Ops& ops) { return std::make_unique<LocalTensors>(ops); }

}  // namespace gangway
