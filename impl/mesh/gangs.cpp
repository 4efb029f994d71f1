#include "mesh/gangs.h"
#include "base/fork.h"
#include "gang/agreement.h"

#include <utility>

namespace gangway {
namespace {

void check_factor(const char* axis, int degree, int size) {
  if (degree < 1 || size % degree != 0)
    fail(Code::invalid_argument, axis, " ", degree, " is not a factor of the root gang's ", size, " ranks");
}

struct Place {
  const char* name;
  const GangPtr& gang;
  AxisSet axes;
};

void check_places(const GangsByAxis& p, std::span<const Place> all, const Mesh& mesh) {
  const std::vector<int>& members = p.root->members();
  if (p.root->rank() == 0)
    for (const Place& place : all)
      if (place.gang->rank() != 0)
        fail(Code::invalid_argument, "rank 0 of the root gang is rank ", place.gang->rank(), " of ",
             place.name, ", but must be rank 0 of every gang");
  for (const Place& place : all) {
    std::vector<int> expected;
    for (const int r : mesh.group(place.axes, p.root->rank()))
      expected.push_back(members[static_cast<size_t>(r)]);
    if (place.gang->members() != expected)
      fail(Code::invalid_argument, "the members of ", place.name, " on rank ", p.root->rank(),
           " of the root gang are not those of the mesh ", describe(mesh.options()));
  }
}

}  // namespace

GangsPtr Gangs::create(const GangPtr& root, bool owns_root, const MeshOptions& options) {
  Mesh mesh;
  root->agreement().agree_on([&] { mesh = Mesh::resolve(options, root->size()); },
                             text("the mesh ", describe(options)));
  GangsPtr gangs(new Gangs(root, mesh, owns_root));
  gangs->make_all();
  return gangs;
}

GangsPtr create_gangs(GangPtr root, const MeshOptions& options) {
  const bool owns_root = root == nullptr;
  if (owns_root) root = Gang::create(GangOptions{});
  return root->in_mid_call([&] { return Gangs::create(root, owns_root, options); });
}

GangsPtr create_parallel_gangs(GangPtr root, int tp, int pp, int cp) {
  const bool owns_root = root == nullptr;
  if (owns_root) root = Gang::create(GangOptions{});
  MeshOptions options;
  options.tp = tp;
  options.pp = pp;
  options.cp = cp;
  return root->in_mid_call([&] {
    root->agreement().agree_on(
        [&] {
          check_factor("tp", tp, root->size());
          check_factor("pp", pp, root->size());
          check_factor("cp", cp, root->size());
        },
        text("the degrees tp ", tp, ", pp ", pp, ", cp ", cp));
    return Gangs::create(root, owns_root, options);
  });
}

GangsPtr create_fsdp_gangs(const Gangs& gangs, std::optional<int> intra_node_size) {
  const Mesh& mesh = gangs.mesh();
  const int dp = mesh.degree(kDataAxes);
  MeshOptions options = mesh.options();
  const auto check = [&] {
    if (options.cp != 1)
      fail(Code::invalid_argument, "gangs for FSDP by node take no context parallelism, but cp is ",
           options.cp);
    if (intra_node_size && (*intra_node_size <= 1 || dp % *intra_node_size != 0))
      fail(Code::invalid_argument, "intra_node_size ", *intra_node_size,
           " is not a factor over 1 of the dp gang's ", dp, " ranks");
  };
  gangs.root()->in_mid_call([&] {
    gangs.root()->agreement().agree_on(
        check, text("intra_node_size ", intra_node_size ? std::to_string(*intra_node_size) : "none"));
  });
  options.dp_shard = intra_node_size.value_or(dp);
  options.dp_replicate = dp / options.dp_shard;
  return create_gangs(gangs.root(), options);
}

GangsPtr create_fake_gangs(const std::string& device) {
  GangOptions options;
  options.device = device;
  return create_gangs(Gang::create_fake(0, 1, options, /*record=*/false), MeshOptions{});
}

GangsPtr create_gangs_of(const GangsByAxis& p) {
  if (!p.root) fail(Code::invalid_argument, "the root gang is missing");
  const Place all[] = {{"dp", p.dp, kDataAxes},
                       {"rdp", p.rdp, axis_bit(Axis::dp_replicate)},
                       {"sdp", p.sdp, axis_bit(Axis::dp_shard)},
                       {"tp", p.tp, axis_bit(Axis::tp)},
                       {"pp", p.pp, axis_bit(Axis::pp)},
                       {"cp", p.cp, axis_bit(Axis::cp)}};
  Mesh mesh;
  p.root->agreement().agree_on([&] {
    for (const Place& place : all)
      if (!place.gang) fail(Code::invalid_argument, "the ", place.name, " gang is missing");
    mesh = Mesh::resolve({p.pp->size(), p.rdp->size(), p.sdp->size(), p.cp->size(), p.tp->size()},
                         p.root->size());
    check_places(p, all, mesh);
  });
  return p.root->in_mid_call([&] {
    GangsPtr gangs(new Gangs(p.root, mesh, /*owns_root=*/false));
    for (const Place& place : all) gangs->places_[place.axes] = place.gang;
    gangs->make_all();
    return gangs;
  });
}

Gangs::Gangs(GangPtr root, const Mesh& mesh, bool owns_root)
    : root_(std::move(root)), mesh_(mesh), coordinates_(mesh.coordinates(root_->rank())) {
  if (owns_root) owned_.push_back(root_);
}

const GangPtr& Gangs::made(AxisSet axes) const {
  const std::lock_guard lock(mutex_);
  return places_.at(axes);
}

void Gangs::make_all() {
  for (AxisSet axes = 1; axes <= kAllAxes; ++axes) {
    if (places_.count(axes) != 0) continue;  // the caller's own gang
    const AxisSet plain = mesh_.without_trivial_axes(axes);
    const auto found = places_.find(plain);
    places_[axes] = found != places_.end() ? found->second : places_[plain] = make(plain);
  }
}

GangPtr Gangs::make(AxisSet plain) {
  GangPtr own;
  const std::string name = text(root_->name(), ".", plain == 0 ? "one" : axes_text(plain));
  if (plain == 0) {
    own = root_->alone(name);
  } else if (mesh_.degree(plain) == root_->size()) {
    own = root_->duplicate(name);
  } else {
    for (const std::vector<int>& ranks : mesh_.groups(plain))
      if (GangPtr gang = root_->create_gang(ranks, name)) own = std::move(gang);
  }
  owned_.push_back(own);
  return own;
}

GangPtr Gangs::fsdp_subgang(int ranks) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = subgangs_.find(ranks);
    if (found != subgangs_.end()) return found->second;
  }
  const AxisSet axes = mesh_.without_trivial_axes(axis_bit(Axis::dp_shard) | axis_bit(Axis::cp));
  const std::string name = text(root_->name(), ".", axes_text(axes), "/", ranks);
  GangPtr own;
  root_->in_mid_call([&] {
    for (const std::vector<int>& all : mesh_.groups(axes))
      for (auto first = all.begin(); first != all.end(); first += ranks)
        if (GangPtr gang = root_->create_gang(std::vector<int>(first, first + ranks), name)) own = gang;
  });
  const std::lock_guard lock(mutex_);
  owned_.push_back(own);
  return subgangs_[ranks] = own;
}

std::vector<GangPtr> Gangs::fsdp_subgangs() const {
  const std::lock_guard lock(mutex_);
  std::vector<GangPtr> all;
  for (const auto& [ranks, gang] : subgangs_) all.push_back(gang);
  return all;
}

GangPtr Gangs::by_axes(std::string_view axes) const {
  const AxisSet set = parse_axes(axes);
  const std::lock_guard lock(mutex_);
  if (closed_)
    fail(Code::invalid_state, "the gangs were closed; a gang by axes \"", axes, "\" cannot be had");
  return places_.at(set);
}

void Gangs::data_shard(int* index, int* count) const {
  *index = coordinate(Axis::dp_replicate) * mesh_.degree(Axis::dp_shard) + coordinate(Axis::dp_shard);
  *count = mesh_.degree(kDataAxes);
}

void Gangs::close(int64_t timeout_ms) {
  std::vector<GangPtr> owned;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    owned.swap(owned_);
  }
  std::optional<Error> first;
  for (size_t i = owned.size(); i-- > 0;) {
    if (owned[i]->is_shut_down() || owned[i]->error()) continue;
    try {
      owned[i]->shutdown(timeout_ms);
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  if (first) throw *first;
}

void Gangs::abort(const char* reason) {
  check_fork();
  root_->request_abort(reason);
  for (const auto& place : places_) place.second->request_abort(reason);
  // What is left are gangs that were made later. Their list has a lock, so the thread of requests reads it.
  const auto act = [](void* object, const char* why) noexcept {
    try {
      static_cast<Gangs*>(object)->abort(Error(Code::aborted, why));
    } catch (const std::bad_alloc&) {
      static_cast<Gangs*>(object)->abort(Error(Code::aborted, "no memory"));
    }
  };
  abort_request_.make(root_->abort_thread(), weak_from_this().lock(), act, reason);
  abort_request_.wait_a_while();
}

void Gangs::abort(const Error& error) noexcept {
  root_->abort(error);
  const std::lock_guard lock(mutex_);  // the lists are not copied: there may be no memory left
  for (const GangPtr& gang : owned_) gang->abort(error);
  for (const auto& place : places_) place.second->abort(error);
}

}  // namespace gangway
