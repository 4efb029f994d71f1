// Attention over split sequences equals its definition over the whole sequence, for every method.
#include "parallel/context/dense.h"

#include "gang/local/fake.h"

namespace gangway::test {
namespace {

std::vector<Problem> problems(int ranks) {
  std::vector<Problem> all;
  const int64_t w = ranks;
  for (const bool causal : {true, false}) {
    all.push_back({1, 2 * w, w, w, 1, causal});           // one token in a chunk
    all.push_back({2, 6 * w, 2 * w, w, 5, causal});       // key/value heads are divided
    all.push_back({1, 10 * w, 2 * w, 1, 3, causal});      // key/value heads are repeated
    all.push_back({2, 4 * w, 4 * w, 2 * w, 33, causal});  // two key/value heads on each rank
    all.push_back({0, 4 * w, w, w, 4, causal});
  }
  // two key/value heads, each for several ranks
  if (ranks % 2 == 0) all.push_back({2, 4 * w, 2 * w, 2, 7, true});
  if (ranks == 1) all.push_back({1, 70, 2, 1, 16, true});
  return all;
}

// Documents that divide by nothing, with windows that are shorter than, as long as and longer than they are.
std::vector<Problem> masked_problems(int ranks) {
  std::vector<Problem> all;
  const int64_t w = ranks;
  for (const int64_t window : {0, 1, 3, 5, 1000})
    all.push_back({2, 12 * w, 2 * w, w, 5, true, window, 0, false, {5, 1, 7, 2, 3}});
  for (const int64_t window : {1, 4, 9}) all.push_back({2, 8 * w, w, w, 3, true, window});
  all.push_back({2, 8 * w, w, w, 3, false, 0, 0, false, {3, 11}});  // each token sees its whole document
  all.push_back({1, 6 * w, w, w, 4, true, 2, 0.7, true});
  all.push_back({2, 10 * w, 2 * w, w, 4, true, 4, 0.7, true, {9, 2, 1, 30}});
  all.push_back({1, 4 * w, 2 * w, 2 * w, 4, true, 0, 0.5, true});
  all.push_back({0, 4 * w, w, w, 4, true, 2, 0, true, {3}});
  return all;
}

void expect_dense(const Problem& p, ContextMethod method, DType dtype, double tolerance, int ranks) {
  const Dense dense(p);
  std::vector<Vector> dsinks(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Gang& gang) {
    CoreRig rig(gang);
    const auto core = core_of(p, gang, method);
    const Values got = run_core(*core, p, dense, dtype, gang, rig);
    const Vector* const want[] = {&dense.out, &dense.dq, &dense.dk, &dense.dv};
    const char* const names[] = {"out", "dq", "dk", "dv"};
    for (size_t i = 0; i < 4; ++i) {
      const Shape shape = i < 2 ? p.q_shape() : p.k_shape();
      EXPECT_EQ(got[i].dtype(), dtype);
      const Vector part = local_of(*want[i], shape, gang.rank(), ranks);
      // With few keys some gradients are zero up to rounding, so the tolerance is at least absolute.
      double largest = 1;
      for (const double x : part) largest = std::max(largest, std::abs(x));
      const Vector values = get(got[i]);
      ASSERT_EQ(values.size(), part.size());
      for (size_t e = 0; e < part.size(); ++e)
        ASSERT_LE(std::abs(values[e] - part[e]), tolerance * largest)
            << names[i] << " of " << name(method) << " over " << ranks << ", " << p.text();
    }
    EXPECT_EQ(rig.temporaries.used_bytes(), 0u);
    if (p.sinks) dsinks[static_cast<size_t>(gang.rank())] = get(got[4]);
  });
  for (size_t h = 0; p.sinks && h < dense.dsinks.size(); ++h) {
    double sum = 0;
    for (const Vector& of_rank : dsinks) sum += of_rank.at(h);
    EXPECT_NEAR(sum, dense.dsinks[h], tolerance * std::max(1.0, std::abs(dense.dsinks[h])))
        << "sink of head " << h << ", " << name(method) << " over " << ranks << ", " << p.text();
  }
}

// A rank whose peers do not exist. The fake gang records what it would have sent and received. It works only
// on a CPU, where the fake engine can invent the peers' data.
GangPtr alone_as(int rank, int ranks) {
  GangOptions options = thread_rank_options();
  options.device = "cpu";
  return Gang::create_fake(rank, ranks, options, /*record=*/true);
}

class EachMethod : public testing::TestWithParam<ContextMethod> {};

TEST_P(EachMethod, EqualsDenseAttentionInF64) {
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const Problem& p : problems(ranks)) expect_dense(p, GetParam(), DType::f64, 1e-12, ranks);
}

TEST_P(EachMethod, EqualsDenseAttentionWithDocumentsWindowsCapsAndSinks) {
  for (const int ranks : {1, 2, 3, 4})
    for (const Problem& p : masked_problems(ranks)) expect_dense(p, GetParam(), DType::f64, 1e-12, ranks);
}

TEST_P(EachMethod, AnotherDocumentLeavesTheBitsOfThisOneAlone) {
  Problem p{1, 24, 4, 2, 8, true, 6, 0, true, {7, 17}};
  const Dense dense(p);
  Dense changed = dense;
  for (size_t e = 0; e < 7 * 2 * 8; ++e) {  // keys and values of the first document
    changed.k[e] += 1;
    changed.v[e] = -changed.v[e];
  }
  run_ranks(2, [&](Gang& gang) {
    std::vector<Vector> outs;
    for (const Dense& values : {dense, changed}) {
      CoreRig rig(gang);
      const auto core = core_of(p, gang, GetParam());
      outs.push_back(get(run_core(*core, p, values, DType::bf16, gang, rig)[0]));
    }
    const std::vector<int64_t> tokens = tokens_of(24, gang.rank(), 2);
    for (size_t t = 0; t < tokens.size(); ++t) {
      const auto of_token = [&](const Vector& out) {
        return Vector(out.begin() + static_cast<ptrdiff_t>(t) * 32,
                      out.begin() + static_cast<ptrdiff_t>(t + 1) * 32);
      };
      EXPECT_EQ(of_token(outs[0]) == of_token(outs[1]), tokens[t] >= 7) << "token " << tokens[t];
    }
  });
}

TEST_P(EachMethod, RoundsOnceInNarrowTypes) {
  for (const int ranks : {2, 3, 8}) {
    const int64_t w = ranks;
    for (const Problem& p : {Problem{2, 8 * w, 2 * w, w, 16, true}, Problem{1, 8 * w, 2 * w, 1, 16, false}}) {
      expect_dense(p, GetParam(), DType::f32, 2e-5, ranks);
      // The output, which backward reads, is rounded, and so is each gradient. All else is computed in f32.
      expect_dense(p, GetParam(), DType::bf16, 2 * 0x1p-8 + 2e-5, ranks);
    }
  }
}

// Later rounds reuse the memory of the frame and of the temporaries, and nothing of an earlier round must
// remain in it.
TEST_P(EachMethod, MemoryIsUsedAgain) {
  const Problem p{1, 16, 4, 2, 8, true};
  const Dense dense(p);
  run_ranks(4, [&](Gang& gang) {
    CoreRig rig(gang);
    const auto core = core_of(p, gang, GetParam());
    std::vector<Vector> first;
    for (int round = 0; round < 3; ++round) {
      std::vector<Vector> now;
      for (const Tensor& t : run_core(*core, p, dense, DType::bf16, gang, rig)) now.push_back(get(t));
      if (round == 0) first = now;
      EXPECT_EQ(now, first);
      rig.frame.reset();
    }
  });
}

// Without a frame nothing is kept. A frame keeps this rank's own q, k, v, out and lse, whatever the method.
TEST_P(EachMethod, AFrameKeepsWhatDenseAttentionKeeps) {
  const Problem p{2, 32, 4, 2, 16, true};
  const Dense dense(p);
  run_ranks(2, [&](Gang& gang) {
    CoreRig rig(gang), other(gang);
    run_core(*core_of(p, gang, GetParam()), p, dense, DType::f32, gang, rig);
    run_core(*std::make_shared<AttentionCore>(p.options()), p, dense, DType::f32, gang, other);
    EXPECT_EQ(rig.frame.saved_bytes(), other.frame.saved_bytes());
  });
}

using Moved = std::map<CollectiveOp, uint64_t>;

Moved moved(const Problem& p, ContextMethod method, DType dtype, int ranks) {
  const Dense dense(p);
  const auto gang = alone_as(ranks / 2, ranks);
  CoreRig rig(*gang);
  run_core(*core_of(p, *gang, method), p, dense, dtype, *gang, rig);
  Moved all;
  for (const RecordedCollective& c : recorded(gang->engine())) {
    EXPECT_EQ(c.channel, Channel::cp);
    EXPECT_TRUE(c.ordered);
    EXPECT_FALSE(c.host_waited);
    all[c.op] += c.bytes;
  }
  return all;
}

TEST(ContextBytes, AreThoseOfTheFormulas) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (const uint64_t w : {2, 3, 4, 8})
      for (const int64_t kv_heads : {static_cast<int64_t>(w), int64_t{1}}) {
        const Problem p{2, static_cast<int64_t>(6 * w), static_cast<int64_t>(2 * w), kv_heads, 5, true};
        const int ranks = static_cast<int>(w);
        const uint64_t e = item_bytes(dtype), s = dtype == DType::f64 ? 8 : 4;
        const uint64_t q = 2 * 6 * 2 * w * 5,
                       kv = 2 * 2 * 6 * static_cast<uint64_t>(kv_heads) * 5;  // in elements
        const Moved ring = moved(p, ContextMethod::ring, dtype, ranks);
        EXPECT_EQ(ring.at(CollectiveOp::recv), 2 * (w - 1) * kv * e + w * kv * s);
        const Moved gather = moved(p, ContextMethod::all_gather, dtype, ranks);
        EXPECT_EQ(gather.at(CollectiveOp::all_gather), 2 * (w - 1) * kv * e);
        EXPECT_EQ(gather.at(CollectiveOp::reduce_scatter), (w - 1) * kv * s);
        const Moved exchange = moved(p, ContextMethod::all_to_all, dtype, ranks);
        const bool repeated = kv_heads == 1;
        const uint64_t sent = repeated ? kv * w : kv;
        EXPECT_EQ(exchange.at(CollectiveOp::all_to_all),
                  (w - 1) * (6 * q * e + 2 * sent * e + sent * (repeated ? s : e)) / w);
      }
}

// All ranks compute the same number of the visible pairs of a query and a key.
TEST_P(EachMethod, AllRanksDoEqualWork) {
  for (const bool causal : {true, false})
    for (const int ranks : {2, 3, 4, 8}) {
      const Problem p{2, 10 * ranks, 2 * ranks, 1, 4, causal};
      const Dense dense(p);
      const int64_t whole = 2 * 2 * ranks * p.tokens * (causal ? p.tokens + 1 : 2 * p.tokens) / 2;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto gang = alone_as(rank, ranks);
        int64_t pairs = 0;
        CoreRig rig(*gang, [&](int64_t more) { pairs += more; });
        run_core(*core_of(p, *gang, GetParam()), p, dense, DType::f32, *gang, rig);
        EXPECT_EQ(pairs, 2 * whole / ranks) << "rank " << rank << " of " << ranks;  // forward and backward
      }
    }
}

// The next keys are on their way while the rank computes: the send starts before the operation and the wait
// comes after it.
TEST(RingAttention, TheNextKeysTravelWhileTheRankComputes) {
  const Problem p{1, 12, 2, 1, 4, true};
  const Dense dense(p);
  const auto gang = alone_as(1, 3);
  std::vector<bool> under_way;
  CoreRig rig(*gang, [&](int64_t) { under_way.push_back(!recorded(gang->engine()).back().ordered); });
  run_core(*core_of(p, *gang, ContextMethod::ring), p, dense, DType::f64, *gang, rig);
  // Nothing follows the third step of forward. After the third step of backward the gradients go back to
  // their rank.
  EXPECT_EQ(under_way, (std::vector<bool>{true, true, false, true, true, true}));
}

TEST(ContextAttention, HeadsThatDoNotDivideAreRefusedWithTheirNumbers) {
  run_ranks(4, [](Gang& gang) {
    const Problem heads{1, 8, 6, 2, 4, true}, kv{1, 8, 12, 6, 4, true};
    const auto check = [&](const Problem& p, ContextMethod method) {
      CoreRig rig(gang);
      const Shape q = local_shape(p.q_shape(), 4), k = local_shape(p.k_shape(), 4);
      const Spec specs[] = {{DType::f32, q}, {DType::f32, k}, {DType::f32, k}};
      core_of(p, gang, method)->check_forward(rig.ctx, specs);
    };
    expect_refusal(Code::invalid_argument, [&] { check(heads, ContextMethod::all_to_all); },
                   {"6 heads", "4 ranks", "ring"});
    expect_refusal(Code::invalid_argument, [&] { check(kv, ContextMethod::all_to_all); },
                   {"6 key/value heads", "4 ranks", "ring"});
    for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_gather}) {
      check(heads, method);
      check(kv, method);
    }
    for (const ContextMethod method : kMethods)
      expect_refusal(Code::invalid_argument,
                     [&] {
                       check({1, 12, 4, 4, 4, true}, method);
                     },
                     {"3 tokens", "4 ranks", "8 equal chunks"});
  });
}

AttentionOptions layer(int64_t heads, int64_t kv_heads) {
  AttentionOptions o;
  o.dim = 24;
  o.heads = heads;
  o.kv_heads = kv_heads;
  return o;
}

TEST(ApplyContext, PutsTheMethodInPlaceOfEveryCore) {
  run_ranks(2, [](Gang& gang) {
    for (const ContextMethod method : kMethods) {
      const ModulePtr root = make_sequential({make_block({layer(4, 2), 32}), make_block({layer(4, 2), 32})});
      assign_full_names(*root);
      EXPECT_FALSE(is_context_parallel(root, 2));
      apply_context(root, gang.shared_from_this(), method);
      EXPECT_TRUE(is_context_parallel(root, 2));
      EXPECT_FALSE(is_context_parallel(root, 4));
      int cores = 0;
      for (const NamedModule& m : named_modules(root))
        if (m.path == text(cores, ".self_attn.core_attention")) {
          EXPECT_EQ(m.module->full_name(), m.path);
          ++cores;
        }
      EXPECT_EQ(cores, 2);
      expect_refusal(Code::invalid_state, [&] { apply_context(root, gang.shared_from_this(), method); },
                     {"0.self_attn.core_attention", "already"});
    }
  });
}

TEST(ApplyContext, ARefusalChangesNothing) {
  run_ranks(4, [](Gang& gang) {
    const GangPtr four = gang.shared_from_this();
    const ModulePtr root = make_sequential({make_attention(layer(4, 4)), make_attention(layer(6, 3))});
    expect_refusal(Code::invalid_argument, [&] { apply_context(root, four, ContextMethod::all_to_all); },
                   {"6 heads", "4 ranks"});
    expect_refusal(Code::invalid_argument, [&] { apply_context(root, four, static_cast<ContextMethod>(3)); },
                   {"method 3"});
    for (const NamedModule& m : named_modules(root))
      EXPECT_EQ(dynamic_cast<ContextAttention*>(m.module.get()), nullptr) << m.path;
    expect_refusal(Code::invalid_argument, [&] { apply_context(nullptr, four, ContextMethod::ring); },
                   {"null"});
    expect_refusal(Code::invalid_argument, [&] { apply_context(root, nullptr, ContextMethod::ring); },
                   {"null"});
    expect_refusal(Code::invalid_argument,
                   [&] { apply_context(make_linear(2, 2, false), four, ContextMethod::ring); },
                   {"Linear", "no attention"});
  });
}

// Tensor parallelism has divided the heads before.
TEST(ApplyContext, HeadsAreThoseThatTensorParallelismLeaves) {
  run_ranks(4, [](Gang& gang) {
    const auto apply = [&](int tp) {
      apply_context(make_sequential({make_attention(layer(12, 12))}), gang.shared_from_this(),
                    ContextMethod::all_to_all, tp);
    };
    apply(1);
    apply(3);
    expect_refusal(Code::invalid_argument, [&] { apply(2); }, {"6 heads", "4 ranks"});
  });
}

TEST(ApplyContext, OneRankStaysAsItIs) {
  run_ranks(1, [](Gang& gang) {
    const ModulePtr root = make_sequential({make_attention(layer(4, 2))});
    apply_context(root, gang.shared_from_this(), ContextMethod::ring);
    for (const NamedModule& m : named_modules(root))
      EXPECT_EQ(dynamic_cast<ContextAttention*>(m.module.get()), nullptr) << m.path;
  });
}

INSTANTIATE_TEST_SUITE_P(Methods, EachMethod, testing::ValuesIn(kMethods),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace gangway::test
