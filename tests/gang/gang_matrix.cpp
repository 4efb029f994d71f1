#include "gang/gang_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gang/gang_matrix_values.h"

namespace gangway::test {
namespace {

enum class Where { gang, plain, mixed };  // mixed: ranks differ

// Memory of a rank for one call: of the gang or plain.
class Memory {
 public:
  Memory(Gang& gang, bool of_gang, size_t bytes) {
    if (of_gang)
      buffer_ = Buffer::allocate(gang.allocator(), bytes);
    else
      plain_.resize(bytes + 64);
  }
  char* data() {
    if (buffer_) return static_cast<char*>(buffer_->data());
    return plain_.data() + (64 - reinterpret_cast<uintptr_t>(plain_.data()) % 64) % 64;
  }

 private:
  std::shared_ptr<Buffer> buffer_;
  std::vector<char> plain_;
};

std::string describe(const Case& c, const Gang& gang, DType dtype) {
  return text(name(c.op), " ", name(c.reduce), " of ", c.count, c.counts.empty() ? " " : "+ ", name(dtype),
              " root ", c.root, c.in_place ? " in place" : "", c.accumulate ? " accumulating" : "",
              " on rank ", gang.rank(), " of ", gang.size());
}

// Sums in another order than the serial fold's.
template <typename T>
bool near(const std::vector<T>& want, const T* got) {
  if constexpr (kFloats<T>) {
    const double step = sizeof(T) == 8 ? 0x1p-45 : sizeof(T) == 4 ? 0x1p-18 : 0x1p-6;
    for (size_t i = 0; i < want.size(); ++i) {
      const double a = static_cast<double>(Kind<T>::load(want[i])),
                   b = static_cast<double>(Kind<T>::load(got[i]));
      if (!(std::abs(a - b) <= step * (2 + std::abs(a)))) return false;
    }
    return true;
  }
  return want.empty() || std::memcmp(want.data(), got, want.size() * sizeof(T)) == 0;
}

template <typename T>
bool equal(const std::vector<T>& want, const T* got, bool rounded_twice) {
  if constexpr (sizeof(T) == 2) {
    if (rounded_twice) {  // out + result may be rounded once or twice
      for (size_t i = 0; i < want.size(); ++i) {
        const float a = Kind<T>::load(want[i]), b = Kind<T>::load(got[i]);
        if (!(std::abs(a - b) <= 0x1p-6f * (2 + std::abs(a)))) return false;
      }
      return true;
    }
  }
  (void)rounded_twice;
  return want.empty() || std::memcmp(want.data(), got, want.size() * sizeof(T)) == 0;
}

template <typename T>
void check(Gang& gang, const Case& c, Memory& in_memory, Memory& out_memory) {
  const int rank = gang.rank(), size = gang.size();
  const std::vector<T> in = input<T>(c, rank, size);
  std::vector<T> want = expected<T>(c, rank, size);
  T* in_at = reinterpret_cast<T*>(in_memory.data());
  T* out_at = reinterpret_cast<T*>(out_memory.data());
  if (c.in_place) {  // where the form puts the one buffer inside the other
    if (c.op == Op::all_gather || c.op == Op::gather) {
      in_at = out_at + (c.op == Op::gather && rank != c.root ? 0 : before(c, rank));
    } else if (c.op == Op::reduce_scatter || c.op == Op::scatter) {
      out_at = in_at + (c.op == Op::scatter && rank != c.root ? 0 : before(c, rank));
    } else {
      in_at = out_at;
    }
  }
  for (size_t i = 0; i < want.size(); ++i) out_at[i] = base<T>(i);
  if (!in.empty()) std::memcpy(in_at, in.data(), in.size() * sizeof(T));
  if constexpr (kFloats<T>)
    for (size_t i = 0; c.accumulate && i < want.size(); ++i)
      want[i] = Kind<T>::store(Kind<T>::load(base<T>(i)) + Kind<T>::load(want[i]));

  Collective record;
  record.op = c.op;
  record.in = in_at;
  record.out = out_at;
  record.count = c.count;
  record.dtype = Kind<T>::dtype;
  record.reduce = c.reduce;
  record.peer = c.root;
  record.accumulate = c.accumulate;
  std::vector<size_t> counts = c.counts;
  if (c.op == Op::all_to_all && !counts.empty()) {
    counts.clear();
    for (int r = 0; r < size; ++r) counts.push_back(pair(c, rank, r, size));
    for (int r = 0; r < size; ++r) counts.push_back(pair(c, r, rank, size));
  }
  if (!counts.empty()) record.counts = counts.data();
  gang.run_now(Channel::user, record);

  const bool in_order = gang.engine().facts().folds_in_rank_order || c.reduce == Reduce::none;
  if (!(in_order ? equal(want, out_at, c.accumulate) : near(want, out_at)))
    fail(Code::internal, "wrong result: ", describe(c, gang, record.dtype));
  if (!c.in_place && !in.empty() && std::memcmp(in.data(), in_at, in.size() * sizeof(T)) != 0)
    fail(Code::internal, "changed input: ", describe(c, gang, record.dtype));
}

bool is_rooted(Op op) {
  return op == Op::reduce || op == Op::broadcast || op == Op::gather || op == Op::scatter;
}

// Every form of every operation of one type and count.
template <typename T>
void all_cases(Gang& gang, size_t count, Memory& a, Memory& b) {
  const int size = gang.size();
  std::vector<Case> cases;
  const auto add = [&](Op op, Reduce reduce) {
    Case c;
    c.op = op;
    c.reduce = reduce;
    c.count = count;
    const int roots[] = {0, size - 1, size / 2};
    for (int k = 0; k < (is_rooted(op) ? (size == 1 ? 1 : size == 2 ? 2 : 3) : 1); ++k) {
      c.root = roots[k];
      cases.push_back(c);
      if (op == Op::all_to_all) continue;
      c.in_place = true;
      cases.push_back(c);
      c.in_place = false;
    }
  };
  for (const Op op : {Op::all_gather, Op::broadcast, Op::gather, Op::scatter, Op::all_to_all})
    add(op, Reduce::none);
  if constexpr (!std::is_same_v<T, Sixteen>)
    for (const Op op : {Op::all_reduce, Op::reduce_scatter, Op::reduce})
      for (const Reduce r : {Reduce::sum, Reduce::mean, Reduce::product, Reduce::min, Reduce::max}) {
        if (r == Reduce::mean && !kFloats<T>) continue;
        if (std::is_same_v<T, Bool> && r != Reduce::min && r != Reduce::max) continue;
        add(op, r);
        if (!kFloats<T>) continue;
        Case more = cases.back();
        more.in_place = false;
        more.accumulate = true;
        cases.push_back(more);
      }
  const size_t plain = cases.size();
  for (size_t i = 0; i < plain; ++i) {  // counts per rank, some of them 0
    Case c = cases[i];
    if (c.op == Op::all_reduce || c.op == Op::reduce || c.op == Op::broadcast) continue;
    const int lists = c.op == Op::all_to_all ? size : 1;
    for (int k = 0; k < lists * size; ++k)
      c.counts.push_back(k % 3 == 1 ? 0 : (count * static_cast<size_t>(k % 4 + 1)) / 4);
    c.count = 0;
    cases.push_back(c);
  }
  for (const Case& c : cases) check<T>(gang, c, a, b);
}

// What a receive took is what its peer had.
template <typename T>
void expect_got(Gang& gang, const Collective& receive, const char* what) {
  const T* const got = static_cast<const T*>(receive.out);
  for (size_t i = 0; i < receive.count; ++i) {
    const T want = element<T>(receive.peer, i);
    if (std::memcmp(&want, got + i, sizeof(T)) != 0)
      fail(Code::internal, what, " of ", receive.count, " ", name(receive.dtype), " from ", receive.peer,
           " on rank ", gang.rank(), " of ", gang.size(), " is wrong at ", i);
  }
}

// Everybody sends to the next and to the one after it, and to itself, in one batch.
template <typename T>
void exchange(Gang& gang, size_t count, Memory& a, Memory& b) {
  const int size = gang.size(), rank = gang.rank();
  T* in = reinterpret_cast<T*>(a.data());
  T* out = reinterpret_cast<T*>(b.data());
  for (size_t i = 0; i < count; ++i) in[i] = element<T>(rank, i);
  std::vector<Collective> batch;
  for (int step = 0; step < 3; ++step) {
    Collective c;
    c.count = count;
    c.dtype = Kind<T>::dtype;
    c.op = Op::recv;
    c.peer = ((rank - step) % size + size) % size;
    c.out = out + static_cast<size_t>(step) * count;
    batch.push_back(c);
    c.op = Op::send;
    c.peer = (rank + step) % size;
    c.in = in;
    c.out = nullptr;
    batch.push_back(c);
  }
  const WorkPtr work = gang.run(Channel::user, batch);
  work->wait(Deadline::never());
  work->wait_input(Deadline::never());
  for (int step = 0; step < 3; ++step) expect_got<T>(gang, batch[static_cast<size_t>(2 * step)], "exchange");
}

// The same round a ring by single calls that block, each with its neighbours.
template <typename T>
void ring(Gang& gang, size_t count, Memory& a, Memory& b) {
  const int size = gang.size(), rank = gang.rank();
  if (size == 1) return;  // a call that waits for its own rank's next one
  T* in = reinterpret_cast<T*>(a.data());
  for (size_t i = 0; i < count; ++i) in[i] = element<T>(rank, i);
  Collective send, receive;
  send.op = Op::send;
  send.peer = (rank + 1) % size;
  send.in = in;
  receive.op = Op::recv;
  receive.peer = (rank + size - 1) % size;
  receive.out = b.data();
  send.count = receive.count = count;
  send.dtype = receive.dtype = Kind<T>::dtype;
  gang.run_now(Channel::user, rank == 0 ? send : receive);
  gang.run_now(Channel::user, rank == 0 ? receive : send);
  expect_got<T>(gang, receive, "ring");
}

template <typename T>
void of_type(Gang& gang, size_t count, Memory& a, Memory& b) {
  all_cases<T>(gang, count, a, b);
  exchange<T>(gang, count, a, b);
  ring<T>(gang, count, a, b);
}

struct Places {
  Memory a, b;
  Places(Gang& gang, Where where, size_t bytes)
      : a(gang, of_gang(gang, where), bytes), b(gang, of_gang(gang, where), bytes) {}
  static bool of_gang(Gang& gang, Where where) {
    return where == Where::gang || (where == Where::mixed && gang.rank() % 2 == 1);
  }
};

constexpr Where kPlaces[] = {Where::gang, Where::plain, Where::mixed};

}  // namespace

namespace {

void matrix_of(Gang& gang, std::initializer_list<size_t> counts, std::span<const Where> places) {
  for (const size_t count : counts)
    for (const Where where : places) {
      Places at(gang, where, (count * static_cast<size_t>(std::max(3, gang.size())) + 8) * 16);
      of_type<float>(gang, count, at.a, at.b);
      of_type<double>(gang, count, at.a, at.b);
      of_type<bf16_t>(gang, count, at.a, at.b);
      of_type<f16_t>(gang, count, at.a, at.b);
      of_type<int64_t>(gang, count, at.a, at.b);
      of_type<int32_t>(gang, count, at.a, at.b);
      of_type<uint8_t>(gang, count, at.a, at.b);
      of_type<Bool>(gang, count, at.a, at.b);
      of_type<Sixteen>(gang, count, at.a, at.b);
      gang.barrier();
    }
}

}  // namespace

void matrix(Gang& gang) { matrix_of(gang, {0, 1, 7, 4096}, kPlaces); }

void small_matrix(Gang& gang) { matrix_of(gang, {0, 1, 7}, std::array{Where::plain}); }

void several_chunks(Gang& gang) {
  constexpr size_t kCount = 33 * 16384 + 7;  // a ring holds 32 chunks of 64 KiB
  for (const Where where : kPlaces) {
    Places at(gang, where, (kCount * static_cast<size_t>(std::max(3, gang.size())) + 8) * sizeof(float));
    for (const Op op : {Op::all_reduce, Op::reduce_scatter, Op::reduce, Op::all_gather, Op::broadcast,
                        Op::gather, Op::scatter, Op::all_to_all}) {
      Case c;
      c.op = op;
      c.count = kCount;
      c.root = 1;
      if (op == Op::all_reduce || op == Op::reduce_scatter || op == Op::reduce) c.reduce = Reduce::sum;
      check<float>(gang, c, at.a, at.b);
      if (op == Op::all_to_all) continue;
      c.in_place = true;
      check<float>(gang, c, at.a, at.b);
    }
    exchange<float>(gang, kCount, at.a, at.b);
    ring<float>(gang, kCount, at.a, at.b);
  }
}

}  // namespace gangway::test
