// Tensor parallel plans in their text form.
#include "parallel/plan.h"

#include <gtest/gtest.h>

#include "base/error_of.h"
#include "families/family.h"

namespace gangway::test {
namespace {

constexpr auto kRow = TensorStyle::rowwise;
constexpr auto kColumn = TensorStyle::colwise;

void expect_refusal(std::string_view text, std::initializer_list<const char*> words) {
  const Error error = error_of([&] { plan_from_text(text); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  for (const char* word : words)
    EXPECT_NE(error.message().find(word), std::string::npos) << error.message() << " is without " << word;
}

TEST(Plan, TextGivesRowsInOrder) {
  const std::vector<PlanRow> rows = plan_from_text(
      "# a comment\n"
      "\n"
      "  model.layers.*.self_attn ->prepare_input( Shard(1) , Varying )  # another\r\n"
      "a.q->colwise,input Varying\n"
      "a.o -> rowwise , output Shard(-1),input  Replicate\n"
      "n -> sequence_parallel\n"
      "x -> replicate\n"
      "y -> prepare_output(Partial, Replicate)\n"
      "-> sequence_parallel");
  const std::vector<PlanRow> want = {
      {"model.layers.*.self_attn",
       TensorStyle::prepare_input,
       ValueLayout::shard(1),
       {},
       ValueLayout::varying()},
      {"a.q", kColumn, ValueLayout::varying(), {}, {}},
      {"a.o", kRow, ValueLayout::replicate(), ValueLayout::shard(-1), {}},
      {"n", TensorStyle::sequence_parallel, {}, {}, {}},
      {"x", TensorStyle::replicate, {}, {}, {}},
      {"y", TensorStyle::prepare_output, {}, ValueLayout::replicate(), ValueLayout::partial()},
      {"", TensorStyle::sequence_parallel, {}, {}, {}}};
  ASSERT_EQ(rows.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(text(rows[i]), text(want[i])) << i;
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(rows[i].style, want[i].style) << i;
  EXPECT_TRUE(plan_from_text("").empty());
  EXPECT_TRUE(plan_from_text("\n# nothing\n").empty());
}

TEST(Plan, ARowFromItsPartsIsThatOfText) {
  const ValueLayout part = ValueLayout::shard(1), whole = ValueLayout::replicate();
  const auto row = [](TensorStyle style, std::optional<ValueLayout> input,
                      std::optional<ValueLayout> output) {
    return make_plan_row("a.*", style, input, output);
  };
  EXPECT_EQ(row(kRow, {}, part), plan_from_text("a.* -> rowwise, output Shard(1)")[0]);
  EXPECT_EQ(row(kColumn, ValueLayout::varying(), {}), plan_from_text("a.* -> colwise, input Varying")[0]);
  EXPECT_EQ(row(TensorStyle::replicate, {}, {}), plan_from_text("a.* -> replicate")[0]);
  EXPECT_EQ(row(TensorStyle::prepare_input, part, whole),
            plan_from_text("a.* -> prepare_input(Shard(1), Replicate)")[0]);
  EXPECT_EQ(row(TensorStyle::prepare_output, part, whole),
            plan_from_text("a.* -> prepare_output(Shard(1), Replicate)")[0]);
  for (const auto& [style, input] :
       {std::pair(TensorStyle::replicate, part), std::pair(TensorStyle::prepare_input, part),
        std::pair(kRow, ValueLayout::shard(kMaxDims))})
    EXPECT_EQ(error_of([&, s = style, in = input] { row(s, in, {}); }).code(), Code::invalid_argument)
        << name(style);
}

TEST(Plan, LocalAndWholeAreLayoutsOfTheStyle) {
  const std::vector<PlanRow> rows = plan_from_text(
      "a -> colwise, output local\n"
      "a -> rowwise, output local\n"
      "a -> sequence_parallel, output local\n"
      "a -> colwise, output whole\n");
  EXPECT_EQ(rows[0].output, ValueLayout::shard(-1));
  EXPECT_EQ(rows[1].output, ValueLayout::partial());
  EXPECT_EQ(rows[2].output, ValueLayout::shard(1));
  EXPECT_EQ(rows[3].output, ValueLayout::replicate());
}

TEST(Plan, EachFamilysPlanIsWrittenAndReadAsTheSameRows) {
  for (const Family& family : families())
    for (const bool sequence : {false, true})
      for (const bool loss : {false, true}) {
        const std::vector<PlanRow> rows = plan_from_text(family_plan(family.options, {sequence, loss}));
        const std::vector<PlanRow> again = plan_from_text(plan_to_text(rows));
        ASSERT_EQ(again.size(), rows.size()) << family.name;
        for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(text(again[i]), text(rows[i])) << family.name;
      }
}

TEST(Plan, ARowPreparesSeveralInputs) {
  const PlanRow row = plan_from_text("a -> prepare_input( Shard(1) , Varying ;; Replicate, Shard(-1))")[0];
  EXPECT_EQ(row.input, ValueLayout::shard(1));
  EXPECT_EQ(row.inner, ValueLayout::varying());
  ASSERT_EQ(row.further.size(), 2u);
  EXPECT_FALSE(row.further[0]);
  EXPECT_EQ(row.further[1], (PlanRow::Further{ValueLayout::replicate(), ValueLayout::shard(-1)}));
  EXPECT_EQ(text(row), "a -> prepare_input(Shard(1), Varying;; Replicate, Shard(-1))");
  EXPECT_EQ(plan_from_text(text(row))[0], row);
}

TEST(Plan, TheLlamaPlanIsWrittenLikeThis) {
  EXPECT_EQ(plan_to_text(plan_from_text(family_plan({}, {.sequence_parallel = true, .loss_parallel = true}))),
            "model.embed_tokens                        -> rowwise, output Shard(1)\n"
            "model.layers.*.input_layernorm            -> sequence_parallel\n"
            "model.layers.*.self_attn                  -> prepare_input(Shard(1), Varying)\n"
            "model.layers.*.self_attn.q_proj           -> colwise, input Varying\n"
            "model.layers.*.self_attn.k_proj           -> colwise, input Varying\n"
            "model.layers.*.self_attn.v_proj           -> colwise, input Varying\n"
            "model.layers.*.self_attn.o_proj           -> rowwise, output Shard(1)\n"
            "model.layers.*.post_attention_layernorm   -> sequence_parallel\n"
            "model.layers.*.pre_feedforward_layernorm  -> sequence_parallel\n"
            "model.layers.*.post_feedforward_layernorm -> sequence_parallel\n"
            "model.layers.*.mlp                        -> prepare_input(Shard(1), Varying)\n"
            "model.layers.*.mlp.gate_proj              -> colwise, input Varying\n"
            "model.layers.*.mlp.up_proj                -> colwise, input Varying\n"
            "model.layers.*.mlp.down_proj              -> rowwise, output Shard(1)\n"
            "model.norm                                -> sequence_parallel\n"
            "lm_head                                   -> colwise, input Shard(1), output Shard(-1)\n");
}

TEST(Plan, BadLinesAreRefusedWithNumberAndReason) {
  expect_refusal("a -> rowwise\nb rowwise", {"line 2", "b rowwise", "\"->\" is missing"});
  expect_refusal("a -> rowise", {"line 1", "style \"rowise\" is unknown", "colwise, rowwise"});
  expect_refusal("a -> ", {"style \"\" is unknown"});
  expect_refusal("a -> prepare_input", {"two layouts in parentheses"});
  expect_refusal("a -> prepare_input(Shard(1), Varying; Shard(1))", {"takes two layouts, but got 1"});
  expect_refusal("a -> prepare_input(; Shard(1), Varying)", {"takes two layouts, but got 1"});
  expect_refusal("a -> prepare_output(Partial, Replicate; Partial, Replicate)", {"got 2 pairs of layouts"});
  expect_refusal("a -> prepare_input(Shard(1))", {"takes two layouts, but got 1"});
  expect_refusal("a -> prepare_input(Shard(1), Varying", {"parenthesis is missing"});
  expect_refusal("a -> colwise(Shard(1), Varying)", {"takes no parentheses"});
  expect_refusal("a -> colwise, input", {"layout \"\" is unknown"});
  expect_refusal("a -> colwise, input Shard(x)", {"Shard(x)", "Replicate, Varying, Partial and Shard(d)"});
  expect_refusal("a -> colwise, input Shard(8)", {"Shard(8)"});
  expect_refusal("a -> colwise, input Shard()", {"Shard()"});
  expect_refusal("a -> colwise, inputs Varying", {"neither"});
  expect_refusal("a -> colwise, input Varying, input Varying", {"input is given twice"});
  expect_refusal("a -> replicate, input Varying", {"takes no input"});
  expect_refusal("a -> colwise, input local", {"layout \"local\" is unknown"});
}

}  // namespace
}  // namespace gangway::test
