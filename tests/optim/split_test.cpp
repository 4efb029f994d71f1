// States of parameters that are split over ranks: their own shapes and layouts, and what is refused.
#include "base/philox.h"
#include "optim/optim_testing.h"

namespace gangway {
namespace {

using test::Cpu;
using test::error_of;
using test::make_parameter;

// Rank `tp` of 2, and `shard` of 3, of a parameter [rows, columns] whose dim `dim` tp splits at `cut`.
NamedParameter piece_of(Cpu& cpu, const Shape& shape, int dim, int64_t cut, int tp, int shard) {
  NamedParameter named = make_parameter(cpu, "w", shape);
  Parameter& p = *named.parameter;
  p.layout = {Placement::shard("tp", dim, {0, cut, shape[dim]})};
  p.place = {tp};
  p.layout.push_back(Placement::shard("dp_shard", 0, ceil_bounds(p.local_shape()[0], 3)));
  p.place.push_back(shard);
  p.shard = Tensor::allocate(cpu.device->allocator(), DType::f32, p.local_shape());
  p.shard_grad = make_accumulator(Tensor::allocate(cpu.device->allocator(), DType::f32, p.local_shape()));
  return named;
}

const Optimizer::Slot& slot(const Optimizer& optimizer, const std::string& name) {
  for (const Optimizer::Slot& s : optimizer.state(0))
    if (s.name == name) return s;
  throw std::out_of_range(name);
}

TEST(SplitStates, AdamW8bitHasScalesForTheBlocksOfItsPiece) {
  Cpu cpu;
  const NamedParameter p = piece_of(cpu, Shape{7, 200}, 1, 128, 1, 2);  // rows 6 to 7, columns 128 to 200
  const auto optimizer = make_optimizer("adamw8bit", {p}, {}, *cpu.ops);
  const Optimizer::Slot& codes = slot(*optimizer, "exp_avg");
  EXPECT_EQ(codes.shape, (Shape{7, 200}));
  EXPECT_EQ(codes.tensor.shape(), (Shape{1, 72}));
  const Optimizer::Slot& scales = slot(*optimizer, "exp_avg_scale");
  EXPECT_EQ(scales.shape, (Shape{7, 4}));
  EXPECT_EQ(scales.tensor.shape(), (Shape{1, 2}));
  EXPECT_EQ(scales.box().first[0], 6);
  EXPECT_EQ(scales.box().first[1], 2);
  EXPECT_EQ(scales.box().shape, (Shape{1, 2}));
}

TEST(SplitStates, AdamW8bitRefusesACutInsideOfABlockWithTheNumbers) {
  Cpu cpu;
  const NamedParameter p = piece_of(cpu, Shape{7, 200}, 1, 100, 0, 0);
  EXPECT_EQ(
      error_of([&] { make_optimizer("adamw8bit", {p}, {}, *cpu.ops); }).message(),
      "adamw8bit: w is [7, 200], and tp cuts its rows at 100, inside of a block of 64 elements that share "
      "a scale; take a degree of tp that cuts at multiples of 64, or another optimizer");
}

TEST(SplitStates, AdafactorKeepsTheMeansOfItsRowsAndColumns) {
  Cpu cpu;
  const NamedParameter p = piece_of(cpu, Shape{7, 200}, 1, 100, 1, 1);  // rows 3 to 6, columns 100 to 200
  const auto optimizer = make_optimizer("adafactor", {p}, {}, *cpu.ops);
  const Optimizer::Slot &rows = slot(*optimizer, "row_var"), &columns = slot(*optimizer, "col_var");
  EXPECT_EQ(rows.shape, (Shape{7, 1}));
  EXPECT_EQ(rows.box().first[0], 3);
  EXPECT_EQ(rows.tensor.shape(), (Shape{3, 1}));
  EXPECT_EQ(columns.shape, (Shape{1, 200}));
  EXPECT_EQ(columns.box().first[1], 100);
  EXPECT_EQ(columns.tensor.shape(), (Shape{1, 100}));
}

TEST(SplitStates, ARankWithoutRowsHasTheMeansOfColumnsAllTheSame) {
  Cpu cpu;
  const NamedParameter p = piece_of(cpu, Shape{2, 10}, 1, 5, 0, 2);  // 2 rows over 3 ranks
  const auto optimizer = make_optimizer("adafactor", {p}, {}, *cpu.ops);
  EXPECT_EQ(slot(*optimizer, "row_var").tensor.shape(), (Shape{0, 1}));
  EXPECT_EQ(slot(*optimizer, "col_var").tensor.shape(), (Shape{1, 5}));
}

// Every piece over tp and dp_shard steps to the bits of its elements in the whole, also where states are
// rounded.
TEST(SplitStates, RoundedStatesHaveTheBitsOfTheWhole) {
  const Shape shape{7, 200};
  OptimizerOptions options;
  options.seed = 5;
  for (const char* const kind : {"adamw", "lion", "adamw8bit"}) {
    if (std::string(kind) != "adamw8bit") options.hyperparameters = {{"moment_dtype", DType::bf16}};
    const auto stepped = [&](Cpu& cpu, const NamedParameter& named) {
      named.parameter->full_name = "w";
      const Box box = local_box(named.parameter->layout, shape, named.parameter->place);
      const auto optimizer = make_optimizer(kind, {named}, options, *cpu.ops);
      for (int step = 0; step < 3; ++step) {
        std::vector<double> gradient;
        for (int64_t row = box.first[0]; row < box.last(0); ++row)
          for (int64_t column = box.first[1]; column < box.last(1); ++column)
            gradient.push_back(
                philox_normal(static_cast<uint64_t>(step), static_cast<uint64_t>(row * 200 + column)));
        float* const to = named.parameter->shard_grad->tensor.data<float>();
        std::copy(gradient.begin(), gradient.end(), to);
        named.parameter->shard_grad->written = true;
        optimizer->step(1, 1, cpu.stream);
      }
      std::vector<double> states;
      for (const char* const state : {"exp_avg", "exp_avg_sq"})
        for (const Optimizer::Slot& s : optimizer->state(0))
          if (s.name == state)
            for (int64_t i = 0; i < s.tensor.count(); ++i)
              states.push_back(s.tensor.dtype() == DType::u8 ? s.tensor.data<uint8_t>()[i]
                                                             : to_f32(s.tensor.data<bf16_t>()[i]));
      return states;
    };
    Cpu cpu;
    const std::vector<double> whole = stepped(cpu, make_parameter(cpu, "w", shape));
    for (const int dim : {0, 1})
      for (const int tp : {0, 1})
        for (const int shard : {0, 1, 2}) {
          const NamedParameter piece = piece_of(cpu, shape, dim, dim == 0 ? 3 : 128, tp, shard);
          const Box box = local_box(piece.parameter->layout, shape, piece.parameter->place);
          std::vector<double> want;
          for (size_t state = 0; state < whole.size() / 1400; ++state)
            for (int64_t row = box.first[0]; row < box.last(0); ++row)
              for (int64_t column = box.first[1]; column < box.last(1); ++column)
                want.push_back(whole[state * 1400 + static_cast<size_t>(row * 200 + column)]);
          EXPECT_EQ(stepped(cpu, piece), want)
              << kind << " dim " << dim << " tp " << tp << " shard " << shard;
        }
    options.hyperparameters.clear();
  }
}

// The rows of another pipeline stage are not here, and neither are the means.
TEST(SplitStates, AnotherStagesMeansOfColumnsAreNotHere) {
  Cpu cpu;
  NamedParameter p = make_parameter(cpu, "w", Shape{4, 10});
  p.parameter->layout = {Placement::shard("pp", 0, {0, 0, 4})};
  for (const int stage : {0, 1}) {
    p.parameter->place = {stage};
    p.parameter->shard = Tensor::allocate(cpu.device->allocator(), DType::f32, p.parameter->local_shape());
    const auto optimizer = make_optimizer("adafactor", {p}, {}, *cpu.ops);
    EXPECT_EQ(slot(*optimizer, "col_var").tensor.shape(), (Shape{stage, 10}));
    EXPECT_EQ(slot(*optimizer, "col_var").box().shape, (Shape{stage, 10}));
  }
}

}  // namespace
}  // namespace gangway
