#include "parallel/fsdp/wrap.h"

#include <algorithm>
#include <map>
#include <set>

#include "nn/custom.h"
#include "parallel/fsdp/fully_sharded_module.h"
#include "parallel/fsdp/replicate.h"

namespace gangway {
namespace {

const FullyShardedModule* as_fully_sharded(const Module& module) {
  return dynamic_cast<const FullyShardedModule*>(&module);
}

std::string label_of(const Module& parent, const Module::Child& child, const std::string& path) {
  if (!child.name.empty() || parent.is_wrapper()) return path;
  std::string words;  // describes an unnamed child by the names of its children
  for (const Module::Child& below : unwrapped(*child.module).children())
    words += (words.empty() ? "" : " + ") + below.name;
  return words;
}

// Appends every place below `module`, which is itself in `out` already.
void collect_places(const ModulePtr& module, const std::string& path, std::vector<ModulePlace>& out) {
  Module& inner = unwrapped(*module);
  for (size_t i = 0; i < inner.children().size(); ++i) {
    const Module::Child& child = inner.children()[i];
    const std::string below =
        path.empty() || child.name.empty() ? path + child.name : path + "." + child.name;
    out.push_back({label_of(inner, child, below), &inner, i, child.module, below, !child.name.empty()});
    collect_places(child.module, below, out);
  }
}

ModulePlace root_place(const ModulePtr& root) { return {"(root)", nullptr, 0, root, "", true}; }

// Counts how often each parameter occurs in a tree.
void count_uses(const Module& module, std::map<const Parameter*, int>& uses) {
  for (const ParameterPtr& p : module.parameters()) ++uses[p.get()];
  for (const Module::Child& child : module.children()) count_uses(*child.module, uses);
}

void collect_free(const Module& module, const std::set<const Parameter*>& owned,
                  std::vector<ParameterPtr>& out) {
  for (const ParameterPtr& p : module.parameters())
    if (!owned.contains(p.get()) && std::find(out.begin(), out.end(), p) == out.end()) out.push_back(p);
  for (const Module::Child& child : module.children()) collect_free(*child.module, owned, out);
}

void collect_owned(const Module& module, std::set<const Parameter*>& owned) {
  if (const FullyShardedModule* wrapper = as_fully_sharded(module))
    for (const NamedParameter& p : wrapper->group().parameters()) owned.insert(p.parameter.get());
  for (const Module::Child& child : module.children()) collect_owned(*child.module, owned);
}

bool holds_group(const Module& module) {
  if (as_fully_sharded(module) != nullptr) return true;
  return std::any_of(module.children().begin(), module.children().end(),
                     [](const Module::Child& child) { return holds_group(*child.module); });
}

bool holds(const Module& outer, const Module& wanted) {
  return std::any_of(outer.children().begin(), outer.children().end(), [&](const Module::Child& child) {
    return child.module.get() == &wanted || holds(*child.module, wanted);
  });
}

const FullyShardedModule* wrapper_around(const Module& from, const Module& wanted,
                                         const FullyShardedModule* inside) {
  if (const FullyShardedModule* wrapper = as_fully_sharded(from)) inside = wrapper;
  if (&from == &wanted) return inside;
  for (const Module::Child& child : from.children())
    if (const FullyShardedModule* found = wrapper_around(*child.module, wanted, inside)) return found;
  return nullptr;
}

std::string refusal(const Module& module, DType compute) {
  if (as_fully_sharded(module) != nullptr) return {};
  const auto* custom = dynamic_cast<const Custom*>(&module);
  if (custom != nullptr && !custom->behaviour().accepts(compute))
    return module.full_name().empty() ? module.kind() : module.full_name();
  for (const Module::Child& child : module.children())
    if (std::string found = refusal(*child.module, compute); !found.empty()) return found;
  return {};
}

struct Product {
  std::string name;  // of the weight; empty: no product was found yet
  DType dtype = DType{};
};

// `first` is the first of the products that pass values to each other without a cast.
void check_dtypes_below(const Module& module, const ShardOptions& options, DType master, Product& first) {
  const auto* custom = dynamic_cast<const Custom*>(&module);
  const bool product = module.is_linear();
  for (const ParameterPtr& p : module.parameters()) {
    const DType dtype = compute_dtype(options, p->full_name, master);
    if (custom != nullptr && !custom->behaviour().accepts(dtype))
      fail(Code::not_supported, "module ", module.full_name().empty() ? module.kind() : module.full_name(),
           " does not compute in ", name(dtype), ", the dtype of parameter ", p->full_name);
    if (!product) continue;
    if (first.name.empty()) first = {p->full_name, dtype};
    if (first.dtype != dtype)
      fail(Code::invalid_argument, "the dtype rules make parameter ", first.name, " ", name(first.dtype),
           " and ", p->full_name, " ", name(dtype),
           "; both compute in one parameter group and must have one dtype");
  }
  for (const Module::Child& child : module.children()) {
    Product own;
    const FullyShardedModule* wrapper = as_fully_sharded(*child.module);
    if (wrapper != nullptr)
      check_dtypes_below(child.module->child(0), wrapper->group().options(), master, own);
    else
      check_dtypes_below(*child.module, options, master, custom != nullptr ? own : first);
  }
}

std::vector<ModulePlace> children_with_parameters(const ModulePtr& root) {
  std::vector<ModulePlace> out;
  Module& inner = unwrapped(*root);
  for (size_t i = 0; i < inner.children().size(); ++i) {
    const Module::Child& child = inner.children()[i];
    if (!named_parameters(*child.module).empty())
      out.push_back({label_of(inner, child, child.name), &inner, i, child.module, child.name, true});
  }
  return out;
}

// Returns the patterns of the parameter groups that the module names.
std::vector<std::string> patterns_of(const ModulePlace& place) {
  const auto* custom = dynamic_cast<const Custom*>(&unwrapped(*place.module));
  return custom != nullptr ? custom->parameter_groups() : std::vector<std::string>();
}

// Marks the places that the module at `by` names as its parameter groups.
void mark_declared(const std::vector<ModulePlace>& all, const ModulePlace& by, std::vector<bool>& chosen) {
  const size_t start = by.path.empty() ? 0 : by.path.size() + 1;
  for (const std::string& pattern : patterns_of(by)) {
    bool found = false;
    for (size_t i = 0; i < all.size(); ++i) {
      const ModulePlace& place = all[i];
      if (!place.named || place.path.size() <= start || !holds(*by.module, *place.module) ||
          !path_matches(pattern, place.path.substr(start)) || named_parameters(*place.module).empty())
        continue;
      found = chosen[i] = true;
    }
    if (!found)
      fail(Code::not_found, unwrapped(*by.module).kind(), " ", by.label,
           ": no module with parameters matches \"", pattern, "\" of its parameter_groups");
  }
}

// Returns the places that modules name as their parameter groups, each before those around it.
std::vector<ModulePlace> declared_places(const ModulePtr& root) {
  const std::vector<ModulePlace> all = all_places(root);
  std::vector<bool> chosen(all.size());
  for (const ModulePlace& place : all) mark_declared(all, place, chosen);
  std::vector<ModulePlace> places;
  for (size_t i = 0; i < all.size(); ++i)
    if (chosen[i]) places.push_back(all[i]);
  const auto depth = [&](const ModulePlace& p) {
    return std::count_if(places.begin(), places.end(), [&](const ModulePlace& around) {
      return around.path != p.path && holds(*around.module, *p.module);
    });
  };
  std::vector<std::pair<std::ptrdiff_t, size_t>> order;
  for (size_t i = 0; i < places.size(); ++i) order.emplace_back(-depth(places[i]), i);
  std::sort(order.begin(), order.end());
  std::vector<ModulePlace> sorted;
  for (const auto& [minus_depth, i] : order) sorted.push_back(places[i]);
  return sorted;
}

// Returns a parameter of `module` that occurs outside of it, too, or null.
const Parameter* shared_with_rest(const ModulePtr& root, const Module& module) {
  std::map<const Parameter*, int> everywhere, here;
  count_uses(*root, everywhere);
  count_uses(module, here);
  for (const auto& [p, uses] : here)
    if (everywhere[p] != uses) return p;
  return nullptr;
}

void check_group(const ModulePtr& root, const ModulePlace& place, const ShardOptions& options, DType master) {
  if (const FullyShardedModule* wrapper = wrapper_around(*root, *place.module, nullptr); wrapper != nullptr)
    fail(Code::invalid_state, "fully_shard: ", place.label,
         wrapper == place.module.get()
             ? " is a parameter group already"
             : " lies in parameter group " + wrapper->group().name() +
                   "; parameter groups are made from the inside out, the root last");
  if (place.parent != nullptr && place.parent->reads_child_parameters())
    fail(Code::invalid_argument, "fully_shard: ", place.label, " is computed by the module around it (",
         place.parent->kind(), ") and cannot be a parameter group of its own");
  if (const Parameter* tied = shared_with_rest(root, *place.module))
    fail(Code::invalid_argument, "fully_shard: parameter ", tied->full_name, " of parameter group ",
         place.label, " is tied to a module outside of it; leave it to a parameter group that holds both");
  const DType compute = options.param_dtype == DType{} ? master : options.param_dtype;
  if (compute == DType{}) return;
  if (const std::string path = refusal(*place.module, compute); !path.empty())
    fail(Code::not_supported, "module ", path, " does not compute in ", name(compute));
}

// `buckets` hold the gradients of NO_SHARD, else null.
void wrap_group(ModulePtr& root, const ModulePlace& place, const ShardOptions& options,
                const std::shared_ptr<FsdpState>& state, const std::shared_ptr<Buckets>& buckets,
                bool scheduled) {
  std::set<const Parameter*> owned;
  collect_owned(*place.module, owned);
  std::vector<ParameterPtr> own;
  collect_free(*place.module, owned, own);
  std::vector<NamedParameter> named;
  for (const ParameterPtr& p : own) named.push_back({p->full_name, p});
  const bool is_root = place.parent == nullptr || holds_group(*place.module);
  const GroupRole role = scheduled ? GroupRole::stage : is_root ? GroupRole::root : GroupRole::child;
  const auto group = std::make_shared<ParameterGroup>(place.label, std::move(named), options, role, buckets);
  state->add(group);
  replace(root, place, std::make_shared<FullyShardedModule>(place.module, group, state));
}

}  // namespace

std::vector<ModulePlace> all_places(const ModulePtr& root) {
  std::vector<ModulePlace> places{root_place(root)};
  collect_places(root, "", places);
  return places;
}

std::vector<ModulePlace> match_places(const ModulePtr& root, const std::string& pattern) {
  std::vector<ModulePlace> matches = all_places(root);
  // A pattern for many modules skips those that have nothing to shard.
  const bool many = pattern.find('*') != std::string::npos;
  std::erase_if(matches, [&](const ModulePlace& p) {
    return !p.named || !path_matches(pattern, p.path) || (many && named_parameters(*p.module).empty());
  });
  if (matches.empty()) fail(Code::not_found, "no module matches \"", pattern, "\"");
  return matches;
}

std::vector<ModulePlace> default_places(const ModulePtr& root) {
  std::vector<ModulePlace> places;
  std::set<const Parameter*> taken;
  const auto take = [&](const ModulePlace& place) {
    const size_t before = taken.size();
    for (const NamedParameter& p : named_parameters(*place.module)) taken.insert(p.parameter.get());
    if (taken.size() != before) places.push_back(place);
  };
  for (const ModulePlace& place : declared_places(root)) take(place);
  if (patterns_of(root_place(root)).empty())
    for (const ModulePlace& child : children_with_parameters(root))
      if (shared_with_rest(root, *child.module) == nullptr) take(child);
  places.push_back(root_place(root));
  return places;
}

std::vector<ModulePlace> block_places(const ModulePtr& root) {
  std::vector<ModulePlace> places = all_places(root);
  std::erase_if(places, [](const ModulePlace& p) { return !unwrapped(*p.module).is_block(); });
  return places.empty() ? children_with_parameters(root) : places;
}

void check_groups(const ModulePtr& root, const std::vector<ModulePlace>& places, const ShardOptions& options,
                  DType master) {
  for (const ModulePlace& place : places) check_group(root, place, options, master);
}

void check_dtypes(const Module& root, DType master) {
  Product first;
  const FullyShardedModule* wrapper = as_fully_sharded(root);
  check_dtypes_below(wrapper != nullptr ? root.child(0) : root,
                     wrapper != nullptr ? wrapper->group().options() : ShardOptions{}, master, first);
}

void check_apart(const std::vector<ModulePlace>& places) {
  for (const ModulePlace& outer : places)
    for (const ModulePlace& inner : places)
      if (&outer != &inner && holds(*outer.module, *inner.module))
        fail(Code::invalid_argument, "fully_shard: the pattern matches ", outer.label, " and ", inner.label,
             " inside of it; a call for each, from the inside out, says which parameters belong together");
}

void wrap_groups(ModulePtr& root, const std::vector<ModulePlace>& places, const ShardOptions& options,
                 const std::shared_ptr<FsdpState>& state, bool scheduled) {
  const std::shared_ptr<Buckets> buckets =
      options.strategy == Strategy::no_shard ? state->make_buckets() : nullptr;
  for (ModulePlace place : places) {
    if (place.parent == nullptr) place.module = root;  // wrapping an earlier place may have replaced the root
    wrap_group(root, place, options, state, buckets, scheduled);
  }
}

void replace(ModulePtr& root, const ModulePlace& place, ModulePtr wrapper) {
  wrapper->set_full_name(place.module->full_name());
  if (place.parent == nullptr)
    root = std::move(wrapper);
  else
    place.parent->set_child(place.index, std::move(wrapper));
}

std::vector<const ParameterGroup*> groups_in(const Module& root) {
  std::vector<const ParameterGroup*> groups;
  if (const FullyShardedModule* wrapper = as_fully_sharded(root)) groups.push_back(&wrapper->group());
  for (const Module::Child& child : root.children())
    for (const ParameterGroup* below : groups_in(*child.module)) groups.push_back(below);
  return groups;
}

std::vector<NamedParameter> free_parameters(const Module& root) {
  std::set<const Parameter*> owned;
  collect_owned(root, owned);
  std::vector<NamedParameter> all = named_parameters(root);
  std::erase_if(all, [&](const NamedParameter& p) { return owned.contains(p.parameter.get()); });
  return all;
}

}  // namespace gangway
