#include "parallel/model/mesh_tensors.h"

#include <algorithm>
#include <numeric>

#include "parallel/model/model.h"

namespace gangway {
namespace {

constexpr AxisSet kStage = kAllAxes & ~axis_bit(Axis::pp);

bool splits_stages(const Placement& p) { return p.axis == name(Axis::pp); }

AxisSet split_of(Layout layout) {
  std::erase_if(layout, splits_stages);
  const std::string axes = shard_axes(layout);
  return axes.empty() ? AxisSet{0} : parse_axes(axes);
}

// The numbers of a box as ranks exchange them.
constexpr size_t kNumbers = 2 * kMaxDims;
void write_box(const Box& box, int64_t* out) {
  for (int d = 0; d < box.shape.rank(); ++d) {
    out[d] = box.first[static_cast<size_t>(d)];
    out[kMaxDims + d] = box.shape[d];
  }
}
Box read_box(const int64_t* in, int rank) {
  Box box;
  box.shape = Shape(std::span(in + kMaxDims, static_cast<size_t>(rank)));
  std::copy_n(in, rank, box.first.begin());
  return box;
}

}  // namespace

// One all_to_all of packed boxes. The counts come first; sent() and got() are the buffers for them.
class MeshTensors::Exchange {
 public:
  Exchange(int ranks, DType dtype) : counts_(2 * static_cast<size_t>(ranks)), ranks_(ranks), dtype_(dtype) {}

  void send(int to, const Box& box) {
    counts_[static_cast<size_t>(to)] = static_cast<size_t>(box.shape.count());
  }
  void receive(int from, const Box& box) {
    counts_[static_cast<size_t>(ranks_ + from)] = static_cast<size_t>(box.shape.count());
  }
  void allocate(Stack& temporaries) {
    sent_ = temporaries.allocate(dtype_, Shape{sum(0)});
    got_ = temporaries.allocate(dtype_, Shape{sum(ranks_)});
  }
  // The part of a buffer for one rank; absent if the counts have nothing for it.
  Tensor sent(int to) const { return part(sent_, 0, to); }
  Tensor got(int from) const { return part(got_, ranks_, from); }
  void run(Gang& gang, Stream& stream) const {
    Collective c;
    c.op = CollectiveOp::all_to_all;
    c.in = sent_.raw();
    c.out = got_.raw();
    c.count = counts_[0];
    c.counts = counts_.data();
    c.dtype = dtype_;
    const WorkPtr work = gang.run(Channel::fsdp_gather, c, &stream);
    work->order(stream);
    work->order_input(stream);
  }

 private:
  int64_t sum(int first) const {
    const auto begin = counts_.begin() + first;
    return static_cast<int64_t>(std::accumulate(begin, begin + ranks_, size_t{0}));
  }
  Tensor part(const Tensor& buffer, int side, int rank) const {
    const auto begin = counts_.begin() + side;
    const auto first = static_cast<int64_t>(std::accumulate(begin, begin + rank, size_t{0}));
    const auto count = static_cast<int64_t>(begin[rank]);
    return count == 0 ? Tensor() : buffer.slice(0, first, first + count);
  }

  std::vector<size_t> counts_;  // sent to each rank, then got from each
  const int ranks_;
  const DType dtype_;
  Tensor sent_, got_;
};

MeshTensors::MeshTensors(const Gangs& gangs, Ops& ops, Stack& temporaries,
                         std::vector<NamedParameter> parameters)
    : ops_(ops), temporaries_(temporaries), parameters_(std::move(parameters)), gangs_(gangs) {
  for (const int r : gangs.mesh().group(kStage, gangs.root()->rank())) {
    if (r == gangs.root()->rank()) rank_ = ranks();
    coordinates_.push_back(gangs.mesh().coordinates(r));
  }
}

GangPtr MeshTensors::stage() const { return gangs_.by_axes(axes_text(kStage)); }

bool MeshTensors::holds(const Parameter& parameter) const {
  for (size_t i = 0; i < parameter.layout.size(); ++i) {
    const Placement& p = parameter.layout[i];
    if (!splits_stages(p) || p.kind != Placement::Kind::shard) continue;
    const auto at = static_cast<size_t>(parameter.place[i]);
    if (p.bounds[at] == p.bounds[at + 1]) return false;
  }
  return true;
}

const MeshTensors::Places& MeshTensors::places_of(const Parameter& parameter) {
  if (places_.empty()) exchange_places();
  return places_.at(&parameter);
}

void MeshTensors::exchange_places() {
  const auto count = static_cast<size_t>(ranks());
  const size_t each = parameters_.size() * kNumbers;
  std::vector<int64_t> own(each), all(each * count);
  for (size_t i = 0; i < parameters_.size(); ++i)
    write_box(parameters_[i].parameter->box(), own.data() + i * kNumbers);
  Collective c;
  c.op = CollectiveOp::all_gather;
  c.in = own.data();
  c.out = all.data();
  c.count = each;
  c.dtype = DType::i64;
  stage()->run_now(Channel::control, c);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = *parameters_[i].parameter;
    Places& places = places_[&parameter];
    places.split = split_of(parameter.layout);
    for (size_t r = 0; r < count; ++r)
      places.boxes.push_back(read_box(all.data() + r * each + i * kNumbers, parameter.shape.rank()));
  }
}

bool MeshTensors::same_replica(AxisSet split, int a, int b) const {
  const Coordinates &of_a = coordinates_[static_cast<size_t>(a)],
                    &of_b = coordinates_[static_cast<size_t>(b)];
  for (int axis = 0; axis < kAxes; ++axis)
    if ((split & axis_bit(static_cast<Axis>(axis))) == 0 &&
        of_a[static_cast<size_t>(axis)] != of_b[static_cast<size_t>(axis)])
      return false;
  return true;
}

void MeshTensors::gather(std::span<const Parameter* const> parameters, std::span<const Tensor> pieces,
                         const Tensor& whole, Stream& stream) {
  const StackScope scope(temporaries_);
  const int own = rank(), owners = static_cast<int>(parameters.size());
  Exchange exchange(ranks(), pieces[0].dtype());
  bool split = false;
  for (int owner = 0; owner < owners; ++owner) {
    const Places& places = places_of(*parameters[static_cast<size_t>(owner)]);
    split = split || places.split != 0;
    if (same_replica(places.split, own, owner)) exchange.send(owner, places.boxes[static_cast<size_t>(own)]);
  }
  if (!split) {  // every rank has every matrix whole
    if (own < owners) ops_.cast(pieces[static_cast<size_t>(own)], whole, stream);
    return;
  }
  const Places* const mine = own < owners ? &places_of(*parameters[static_cast<size_t>(own)]) : nullptr;
  for (int r = 0; mine != nullptr && r < ranks(); ++r)
    if (same_replica(mine->split, r, own)) exchange.receive(r, mine->boxes[static_cast<size_t>(r)]);
  exchange.allocate(temporaries_);
  for (int owner = 0; owner < owners; ++owner)
    if (const Tensor to = exchange.sent(owner)) {
      const Tensor& piece = pieces[static_cast<size_t>(owner)];
      ops_.cast(piece.reshape(to.shape()), to, stream);
    }
  exchange.run(*stage(), stream);
  for (int r = 0; r < ranks(); ++r)
    if (const Tensor from = exchange.got(r)) {
      const Box& box = mine->boxes[static_cast<size_t>(r)];
      ops_.cast(from.reshape(box.shape), slice(whole, box), stream);
    }
}

void MeshTensors::scatter(std::span<const Parameter* const> parameters, const Tensor& whole,
                          std::span<const Tensor> pieces, Stream& stream) {
  if (ranks() == 1) return ops_.cast(whole, pieces[0], stream);
  const StackScope scope(temporaries_);
  const int own = rank(), owners = static_cast<int>(parameters.size());
  Exchange exchange(ranks(), pieces[0].dtype());
  const Places* const mine = own < owners ? &places_of(*parameters[static_cast<size_t>(own)]) : nullptr;
  for (int r = 0; mine != nullptr && r < ranks(); ++r) exchange.send(r, mine->boxes[static_cast<size_t>(r)]);
  for (int owner = 0; owner < owners; ++owner)
    exchange.receive(owner,
                     places_of(*parameters[static_cast<size_t>(owner)]).boxes[static_cast<size_t>(own)]);
  exchange.allocate(temporaries_);
  for (int r = 0; r < ranks(); ++r)
    if (const Tensor to = exchange.sent(r)) {
      const Box& box = mine->boxes[static_cast<size_t>(r)];
      ops_.cast(slice(whole, box), to.reshape(box.shape), stream);
    }
  exchange.run(*stage(), stream);
  for (int owner = 0; owner < owners; ++owner)
    if (const Tensor from = exchange.got(owner)) {
      const Tensor& piece = pieces[static_cast<size_t>(owner)];
      ops_.cast(from.reshape(piece.shape()), piece, stream);
    }
}

void MeshTensors::sum(const std::string& axes, const Tensor& values, Stream& stream) {
  if (axes.empty() || values.count() == 0) return;
  const GangPtr gang = gangs_.by_axes(axes);
  if (gang->size() == 1) return;
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.in = c.out = values.raw();
  c.count = static_cast<size_t>(values.count());
  c.dtype = DType::f64;
  c.reduce = Reduce::sum;
  const WorkPtr work = gang->run(Channel::fsdp_reduce, c, &stream);
  work->order(stream);
  work->order_input(stream);
}

std::unique_ptr<WholeTensors> make_mesh_tensors(Model& model) {
  return std::make_unique<MeshTensors>(model.gangs(), model.ops(), model.temporaries(),
                                       model.inspect().parameters());
}

}  // namespace gangway
