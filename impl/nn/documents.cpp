#include "nn/documents.h"

#include <algorithm>
#include <compare>
#include <map>
#include <span>
#include <tuple>
#include <unordered_set>

#include "nn/gradient.h"
#include "nn/kv_cache.h"
#include "tensor/host_staging.h"

namespace gangway {
namespace {

// The most entries of each map that keeps tensors; of the ranges, for each rank whose keys they are. Each
// length of a sequence has entries of its own.
constexpr size_t kMostKept = 64;

void check_rows(const char* what, const Tensor& rows) {
  if (rows.rank() != 2 || (rows.dtype() != DType::i32 && rows.dtype() != DType::i64))
    fail(Code::invalid_argument, what, " is ", rows.text(), ", wanted i32 or i64 [rows, sequence]");
  if (!rows.on_host() || !rows.contiguous())
    fail(Code::invalid_argument, what, " (", rows.text(), ") must lie in host memory, row-major");
  if (rows.dim(1) >= INT32_MAX)
    fail(Code::invalid_argument, what, " has rows of ", rows.dim(1), " tokens; the most is ", INT32_MAX - 1);
}

int64_t number_at(const Tensor& rows, int64_t at) {
  return rows.dtype() == DType::i32 ? rows.data<int32_t>()[at] : rows.data<int64_t>()[at];
}

// INVALID_ARGUMENT: a number comes again after another one. Padding may come again.
void add_documents_of_row(const Tensor& ids, int64_t row, std::vector<Document>& all) {
  const int64_t tokens = ids.dim(1), start = row * tokens;
  std::unordered_set<int64_t> seen;
  for (int64_t first = 0; first < tokens;) {
    const int64_t id = number_at(ids, start + first);
    int64_t end = first + 1;
    while (end < tokens && number_at(ids, start + end) == id) ++end;
    if (id >= 0 && !seen.insert(id).second)
      fail(Code::invalid_argument, "batch.documents: document ", id, " comes again at token ", first,
           " of row ", row, ", after another one; the tokens of a document follow each other");
    all.push_back({row, first, end, id < 0});
    first = end;
  }
}

// The number of keys of `chunks` that stand before `position` in the whole row. Both chunks ascend, so that
// the keys between two positions are consecutive on their rank, too.
int64_t keys_before(std::span<const Chunk> chunks, int64_t position) {
  int64_t keys = 0;
  for (const Chunk& c : chunks) keys += std::clamp<int64_t>(position - c.position, 0, c.count);
  return keys;
}

// Returns the smallest interval that has every query which sees a key, and the end of the keys that are seen.
// `first` and `end` are [rows, count].
KeyRanges used(const std::vector<int32_t>& first, const std::vector<int32_t>& end, int64_t count) {
  KeyRanges found{{}, {}, count, 0, 0};
  for (size_t at = 0; at < first.size(); ++at) {
    if (first[at] >= end[at]) continue;
    const int64_t query = static_cast<int64_t>(at) % count;
    found.first_query = std::min(found.first_query, query);
    found.end_query = std::max(found.end_query, query + 1);
    found.end_of_keys = std::max<int64_t>(found.end_of_keys, end[at]);
  }
  found.first_query = std::min(found.first_query, found.end_query);
  return found;
}

std::vector<int32_t> columns(const std::vector<int32_t>& x, int64_t rows, int64_t first, int64_t end) {
  std::vector<int32_t> some;
  some.reserve(static_cast<size_t>(rows * (end - first)));
  const int64_t count = rows == 0 ? 0 : static_cast<int64_t>(x.size()) / rows;
  for (int64_t row = 0; row < rows; ++row)
    some.insert(some.end(), x.begin() + row * count + first, x.begin() + row * count + end);
  return some;
}

}  // namespace

struct Documents::Wanted {
  enum class Queries : uint8_t { own, whole } queries = Queries::own;
  int source = -1;  // the rank whose keys they are; -1: those of whole rows
  int64_t tokens = 0;
  KeyMask mask = {};
};

struct Documents::State {
  SequencePart part;
  int64_t rows = 0, tokens = 0;      // of the caller; 0: any
  bool is_given = false;             // whether there are rows of the caller
  std::vector<Document> documents;   // empty: each row is one
  std::vector<int32_t> document_of;  // [rows, tokens]: indices of `documents`
  std::vector<int32_t> positions;    // [rows, tokens]; empty: 0, 1, 2, ... in each row
  std::vector<int64_t> lengths;      // of each document, or row: the positions that it goes through
  int64_t position_count = 0;

  struct Key {
    const Device* device;
    Wanted::Queries queries;
    int source;
    int64_t tokens, window;
    bool causal;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, KeyRanges> ranges;
  std::map<std::tuple<const Device*, int64_t, int64_t>, Tensor> position_rows;

  void read(const DocumentRows& given);
  Document document_at(int64_t row, int64_t token, int64_t whole) const {
    if (documents.empty()) return {row, 0, whole, false};
    return documents[static_cast<size_t>(document_of[static_cast<size_t>(row * tokens + token)])];
  }
  KeyRanges make(Context& ctx, const Wanted& wanted) const;
  size_t run_at(int64_t row, int64_t token) const {  // index of `lengths`
    return documents.empty() ? static_cast<size_t>(row)
                             : static_cast<size_t>(document_of[static_cast<size_t>(row * tokens + token)]);
  }
  bool has_long(ShortLength most, int64_t whole) const {
    if (!is_given) return most.exceeded_by(whole);
    return std::any_of(lengths.begin(), lengths.end(), [&](int64_t n) { return most.exceeded_by(n); });
  }
  int32_t position_at(int64_t row, int64_t token, int64_t whole, ShortLength most) const;
  Tensor make_positions(Context& ctx, int64_t own_tokens, ShortLength most) const;
};

void Documents::State::read(const DocumentRows& given) {
  if (given.ids) check_rows("batch.documents", given.ids);
  if (given.positions) check_rows("batch.positions", given.positions);
  if (given.ids && given.positions && !(given.ids.shape() == given.positions.shape()))
    fail(Code::invalid_argument, "batch.documents is ", given.ids.text(), " and batch.positions is ",
         given.positions.text(), "; they have one shape");
  const Tensor& any = given.ids ? given.ids : given.positions;
  is_given = true;
  rows = any.dim(0);
  tokens = any.dim(1);
  const auto count = static_cast<size_t>(rows * tokens);
  if (given.ids) {
    for (int64_t row = 0; row < rows; ++row) add_documents_of_row(given.ids, row, documents);
    document_of.reserve(count);
    for (size_t d = 0; d < documents.size(); ++d)
      document_of.insert(document_of.end(), static_cast<size_t>(documents[d].end - documents[d].first),
                         static_cast<int32_t>(d));
  }
  positions.resize(count);
  lengths.resize(given.ids ? documents.size() : static_cast<size_t>(rows));
  for (int64_t at = 0; at < rows * tokens; ++at) {
    const int64_t row = at / tokens, token = at % tokens;
    const int64_t position =
        given.positions ? number_at(given.positions, at) : token - document_at(row, token, tokens).first;
    if (position < 0 || position >= given.most_positions)
      fail(Code::invalid_argument, "batch.positions: token ", token, " of row ", row, " has position ",
           position, ", outside of [0, ", given.most_positions, ")");
    positions[static_cast<size_t>(at)] = static_cast<int32_t>(position);
    int64_t& length = lengths[run_at(row, token)];
    length = std::max(length, position + 1);
    position_count = std::max(position_count, position + 1);
  }
}

KeyRanges Documents::State::make(Context& ctx, const Wanted& wanted) const {
  const int64_t whole = wanted.tokens * part.ranks;
  const std::array<Chunk, 2> every = chunks_of(whole, 0, 1);
  const std::array<Chunk, 2> queries =
      wanted.queries == Wanted::Queries::whole ? every : chunks_of(wanted.tokens, part.rank, part.ranks);
  const std::array<Chunk, 2> keys =
      wanted.source < 0 ? every : chunks_of(wanted.tokens, wanted.source, part.ranks);
  const int64_t batch = documents.empty() ? 1 : rows;
  std::vector<int32_t> first, end;
  for (int64_t row = 0; row < batch; ++row)
    for (const Chunk& c : queries)
      for (int64_t i = c.position; i < c.position + c.count; ++i) {
        const Document document = document_at(row, i, whole);
        const int64_t in_window = wanted.mask.window == 0 ? 0 : i - wanted.mask.window + 1;
        const int64_t last = wanted.mask.causal ? i + 1 : document.end;
        first.push_back(static_cast<int32_t>(keys_before(keys, std::max(document.first, in_window))));
        end.push_back(static_cast<int32_t>(keys_before(keys, last)));
      }

  const int64_t count = batch == 0 ? 0 : static_cast<int64_t>(first.size()) / batch;
  KeyRanges made = used(first, end, count);
  if (wanted.source < 0) {
    made.first_query = 0;
    made.end_query = count;
  }
  const Shape shape{batch, made.end_query - made.first_query};
  made.first_key = i32_tensor(ctx, columns(first, batch, made.first_query, made.end_query), shape);
  made.end_key = i32_tensor(ctx, columns(end, batch, made.first_query, made.end_query), shape);
  return made;
}

int32_t Documents::State::position_at(int64_t row, int64_t token, int64_t whole, ShortLength most) const {
  const int64_t length = is_given ? lengths[run_at(row, token)] : whole;
  const int64_t position = is_given ? positions[static_cast<size_t>(row * tokens + token)] : token;
  return static_cast<int32_t>(position + (most.exceeded_by(length) ? most.value : 0));
}

Tensor Documents::State::make_positions(Context& ctx, int64_t own_tokens, ShortLength most) const {
  std::vector<int32_t> own;
  const int64_t whole = own_tokens * part.ranks;
  const int64_t batch = is_given ? rows : 1;
  for (int64_t row = 0; row < batch; ++row)
    for (const Chunk& c : chunks_of(own_tokens, part.rank, part.ranks))
      for (int64_t i = c.position; i < c.position + c.count; ++i)
        own.push_back(position_at(row, i, whole, most));
  return i32_tensor(ctx, own, is_given ? Shape{rows, own_tokens} : Shape{own_tokens});
}

Documents::Documents(SequencePart part) : state_(std::make_shared<State>()) { state_->part = part; }

Documents::Documents(const DocumentRows& rows, SequencePart part) : Documents(part) {
  state_->read(rows);
  end_ = state_->rows;
}

Documents Documents::rows(int64_t first, int64_t end) const {
  Documents some = *this;
  some.first_ = first_ + first;
  some.end_ = first_ + end;
  return some;
}

void Documents::check(const char* who, const std::string& name, int64_t batch, int64_t tokens) const {
  if (!state_->is_given) return;
  const int64_t whole = tokens * state_->part.ranks;
  if (batch == end_ - first_ && whole == state_->tokens) return;
  fail(Code::invalid_argument, who, name.empty() ? "" : " ", name, ": got ", batch, " sequences of ", whole,
       " tokens, but the batch has documents or positions of ", end_ - first_, " rows of ", state_->tokens,
       " tokens");
}

Tensor Documents::of_these_rows(const Tensor& x) const {
  return first_ == 0 && end_ == x.dim(0) ? x : x.slice(0, first_, end_);
}

Positions Documents::positions(Context& ctx, int64_t tokens, ShortLength most) const {
  State& s = *state_;
  const int64_t whole = tokens * s.part.ranks;
  const bool has_long = s.has_long(most, whole);
  if (!s.is_given && s.part.ranks == 1 && !has_long) return {tokens, {}};
  if (s.is_given) check("positions", "", end_ - first_, tokens);
  if (s.is_given && first_ == end_) return {whole, {}};
  const int64_t added = has_long ? most.value : 0;
  const std::tuple<const Device*, int64_t, int64_t> key{&ctx.ops.device(), tokens, added};
  auto found = s.position_rows.find(key);
  if (found == s.position_rows.end()) {
    if (s.position_rows.size() >= kMostKept) s.position_rows.clear();
    found = s.position_rows.emplace(key, s.make_positions(ctx, tokens, most)).first;
  }
  return s.is_given ? Positions{s.position_count + added, of_these_rows(found->second)}
                    : Positions{whole + added, found->second};
}

KeyRanges Documents::ranges(Context& ctx, const Wanted& wanted) const {
  State& s = *state_;
  const bool has_window = wanted.mask.window != 0 && wanted.mask.window < wanted.tokens * s.part.ranks;
  if (s.documents.empty() && !has_window) return {};
  const State::Key key{&ctx.ops.device(), wanted.queries,     wanted.source,
                       wanted.tokens,     wanted.mask.window, wanted.mask.causal};
  auto found = s.ranges.find(key);
  if (found == s.ranges.end()) {
    if (s.ranges.size() >= kMostKept * static_cast<size_t>(s.part.ranks)) s.ranges.clear();
    found = s.ranges.emplace(key, s.make(ctx, wanted)).first;
  }
  KeyRanges made = found->second;
  if (!s.documents.empty()) {
    made.first_key = of_these_rows(made.first_key);
    made.end_key = of_these_rows(made.end_key);
  }
  return made;
}

KeyRanges Documents::of_own_queries(Context& ctx, int64_t tokens, const KeyMask& mask) const {
  return ranges(ctx, {Wanted::Queries::own, -1, tokens, mask});
}

KeyRanges Documents::of_whole_rows(Context& ctx, int64_t tokens, const KeyMask& mask) const {
  return ranges(ctx, {Wanted::Queries::whole, -1, tokens, mask});
}

KeyRanges Documents::of_keys_of(int source, Context& ctx, int64_t tokens, const KeyMask& mask) const {
  return ranges(ctx, {Wanted::Queries::own, source, tokens, mask});
}

SequencePart Documents::part() const { return state_->part; }

const std::vector<Document>& Documents::all() const { return state_->documents; }

std::vector<Tensor> Documents::made() const {
  std::vector<Tensor> all;
  for (const auto& [key, rows] : state_->position_rows) all.push_back(rows);
  for (const auto& [key, ranges] : state_->ranges) {
    all.push_back(ranges.first_key);
    all.push_back(ranges.end_key);
  }
  return all;
}

Tensor i32_tensor(Context& ctx, const std::vector<int32_t>& values, const Shape& shape) {
  const Tensor made = Tensor::allocate(ctx.ops.device().allocator(), DType::i32, shape);
  if (on_meta(ctx) || values.empty()) return made;
  const HostStaging host(made);
  std::copy(values.begin(), values.end(), host.data<int32_t>());
  host.send(ctx.stream);
  return made;
}

Positions positions_of(Context& ctx, int64_t tokens, const Documents& alone, ShortLength most) {
  if (ctx.cache != nullptr) return ctx.cache->positions(ctx, tokens, most);
  return (ctx.documents == nullptr ? alone : *ctx.documents).positions(ctx, tokens, most);
}

}  // namespace gangway
