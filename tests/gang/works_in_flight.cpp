#include "gang/works_in_flight.h"

#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace gangway::test {
namespace {

using Op = CollectiveOp;

enum class Shared { reads_output, overwrites_input, overwrites_output };
enum class Form { two_calls, waits_for_second_first, second_waits_itself, one_launch };
constexpr const char* kForms[] = {"two calls", "two calls, waiting for the second first",
                                  "the second without a work", "one launch"};
constexpr const char* kShared[] = {"reads its output", "overwrites its input", "overwrites its output"};

constexpr Op kOps[] = {Op::all_reduce, Op::all_gather, Op::reduce_scatter, Op::broadcast,
                       Op::reduce,     Op::gather,     Op::scatter,        Op::all_to_all};

// Three buffers of a rank. Their values are small whole numbers, so that sums of sums are exact in any order.
struct Buffers {
  Buffers(int rank, size_t elements) {
    for (std::vector<float>& buffer : all) {
      buffer.resize(elements);
      for (size_t i = 0; i < elements; ++i)
        buffer[i] = static_cast<float>(
            (i + static_cast<size_t>(&buffer - all) * 3 + static_cast<size_t>(rank) * 5) % 11);
    }
  }
  std::vector<float> all[3];
};

class Pairs {
 public:
  explicit Pairs(Gang& gang) : gang_(gang), rank_(gang.rank()), size_(gang.size()) {
    for (int r = 0; r < size_; ++r) uneven_.push_back(static_cast<size_t>(r % 3));
    for (int r = 0; r < size_; ++r) exchanged_.push_back(static_cast<size_t>((rank_ + r) % 3));
    for (int r = 0; r < size_; ++r) exchanged_.push_back(static_cast<size_t>((rank_ + r) % 3));
  }

  void check(size_t count, bool with_counts, Form form, std::span<const Op> ops) {
    for (const Op first : ops)
      for (const Op second : ops)
        for (const Shared shared :
             {Shared::reads_output, Shared::overwrites_input, Shared::overwrites_output})
          check(first, second, shared, count, with_counts, form);
  }

  // The second work touches the shared memory from half a part on.
  void shift() { shift_ = 1; }

  // Many works of which each one reads what the one before has written, on one buffer.
  void check_chain(size_t count) {
    constexpr int kLength = 14;  // longer than an engine has slots
    std::vector<float> x(count, 1);
    std::vector<WorkPtr> works;
    float wanted = 1;
    for (int i = 0; i < kLength; ++i) {
      const bool adds = i % 2 == 0;
      works.push_back(gang_.run(
          Channel::user, record(adds ? Op::all_reduce : Op::broadcast, count, false, x.data(), x.data())));
      if (adds) wanted *= static_cast<float>(size_);
    }
    for (const WorkPtr& work : works) end(work);
    for (const float value : x)
      if (value != wanted)
        fail(Code::internal, "a chain of ", kLength, " works on ", count, " elements gives ", value, ", not ",
             wanted, ", on rank ", rank_, " of ", size_);
  }

 private:
  Collective record(Op op, size_t count, bool with_counts, const float* in, float* out) {
    Collective c;
    c.op = op;
    c.in = in;
    c.out = out;
    c.count = count;
    if (facts(op).reduces) c.reduce = Reduce::sum;
    if (facts(op).has_root) c.peer = size_ - 1;
    if (with_counts && facts(op).takes_counts) {
      const std::vector<size_t>& from = op == Op::all_to_all ? exchanged_ : uneven_;
      std::vector<size_t>& counts = op == Op::all_to_all ? scaled_exchange_ : scaled_;
      counts.clear();
      for (const size_t part : from) counts.push_back(part * count);
      c.counts = counts.data();
      c.count = 0;
    }
    return c;
  }

  void run(Buffers& b, Op first, Op second, Shared shared, size_t count, bool with_counts, const Form* form) {
    float *const x = b.all[0].data(), *const y = b.all[1].data(), *const z = b.all[2].data();
    const bool reads = shared == Shared::reads_output;
    float* const met = shift_ * count / 2 + (shared == Shared::overwrites_input ? x : y);
    Collective both[2] = {record(first, count, with_counts, x, y),
                          record(second, count, with_counts, reads ? met : z, reads ? z : met)};
    if (form == nullptr) {
      gang_.run_now(Channel::user, both[0]);
      return gang_.run_now(Channel::user, both[1]);
    }
    if (*form == Form::one_launch) return end(gang_.run(Channel::user, std::span<const Collective>(both)));
    const WorkPtr begun = gang_.run(Channel::user, both[0]);
    if (*form == Form::second_waits_itself) {
      gang_.run_now(Channel::user, both[1]);
      return end(begun);
    }
    const WorkPtr next = gang_.run(Channel::user, both[1]);
    const bool turned = *form == Form::waits_for_second_first;
    end(turned ? next : begun);
    end(turned ? begun : next);
  }

  static void end(const WorkPtr& work) { work->wait_input(Deadline::never()); }

  void check(Op first, Op second, Shared shared, size_t count, bool with_counts, Form form) {
    const size_t elements = 2 * count * static_cast<size_t>(size_);
    Buffers want(rank_, elements), got(rank_, elements);
    run(want, first, second, shared, count, with_counts, nullptr);
    run(got, first, second, shared, count, with_counts, &form);
    for (int i = 0; i < 3; ++i)
      if (std::memcmp(want.all[i].data(), got.all[i].data(), elements * sizeof(float)) != 0)
        fail(Code::internal, kForms[static_cast<int>(form)], ": ", name(second), " after ", name(first),
             " of ", count, with_counts ? " and more" : "", " elements, which ",
             kShared[static_cast<int>(shared)], ": other values on rank ", rank_, " of ", size_,
             " than one call after the other gives");
  }

  Gang& gang_;
  const int rank_, size_;
  size_t shift_ = 0;
  std::vector<size_t> uneven_, exchanged_, scaled_, scaled_exchange_;
};

}  // namespace

void dependent_works(Gang& gang) {
  Pairs pairs(gang);
  pairs.check(100, false, Form::two_calls, kOps);
  pairs.check(5000, false, Form::two_calls, kOps);  // more than rides in a note of the network
  constexpr Op kSome[] = {Op::all_reduce, Op::reduce_scatter, Op::broadcast};
  for (const Form form : {Form::waits_for_second_first, Form::second_waits_itself, Form::one_launch})
    pairs.check(100, false, form, kSome);
  constexpr Op kUneven[] = {Op::all_gather, Op::reduce_scatter, Op::all_to_all};
  pairs.check(100, true, Form::two_calls, kUneven);
  for (const size_t count : {size_t{1}, size_t{101}, size_t{5001}}) pairs.check_chain(count);
  pairs.shift();
  for (const size_t count : {size_t{101}, size_t{5001}}) pairs.check(count, false, Form::two_calls, kSome);
}

}  // namespace gangway::test
