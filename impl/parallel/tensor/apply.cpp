#include "parallel/tensor/apply.h"

#include <algorithm>

#include "nn/layers.h"

namespace gangway {
namespace {

// Rows for the modules below `prefix`, from the caller, a module or a family's plan.
struct Source {
  std::string name;  // empty: the caller
  std::string prefix;
  std::vector<PlanRow> rows;
  bool built_in = false;  // a family's plan, of which some rows may match no module
};

std::string below(const std::string& prefix, const std::string& path) {
  return prefix.empty() || path.empty() ? prefix + path : prefix + "." + path;
}

std::vector<PlanRow> rows_of(const Module& module, const std::string& who) {
  try {
    return plan_from_text(module.parallel_plan());
  } catch (const Error& error) {
    fail(error.code(), who, ": ", error.message());
  }
}

// Returns the sources in order of precedence, the strongest first.
std::vector<Source> sources_of(const std::vector<ModulePlace>& places, const TensorOptions& options) {
  std::vector<Source> all = {{"", "", options.rows}}, built_in;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    const Module& module = unwrapped(*place->module);
    const std::string who = "module " + place->label;
    if (!module.parallel_plan().empty()) all.push_back({who, place->path, rows_of(module, who)});
    if (const DecoderOptions* decoder = decoder_options(module))
      built_in.push_back({"the " + decoder->family + " plan", place->path,
                          plan_from_text(family_plan(*decoder, options.family)), true});
  }
  all.insert(all.end(), built_in.begin(), built_in.end());
  return all;
}

}  // namespace

TensorPlan::TensorPlan(const ModulePtr& root, const TensorOptions& options, GangPtr gang)
    : gang_(std::move(gang)), chunks_(options.overlap_chunks) {
  if (root == nullptr || gang_ == nullptr)
    fail(Code::invalid_argument, "tensor parallel: the ", root == nullptr ? "module" : "gang", " is null");
  resolve(root, options);
  LayoutsOfModules layouts;
  for (const StyledModule& styled : modules_) {
    check_style(styled, *gang_);
    layouts.emplace(&unwrapped(*styled.place.module), layouts_of(styled));
  }
  Walk walk;
  for (const StyledModule& styled : modules_) walk.styled.emplace(&unwrapped(*styled.place.module), &styled);
  plan_parameters(*root, nullptr, walk);
  if (modules_.empty() && !parameters_.empty() && gang_->size() > 1)
    fail(Code::not_supported, "tp is ", gang_->size(), ", but there is no tensor parallel plan for ",
         root->kind(), ": neither the caller nor a module gives one; give rows, or a mesh with tp 1");
  check_layouts(*root, layouts);
  check_chunks();
}

void TensorPlan::check_chunks() const {
  if (chunks_ < 1)
    fail(Code::invalid_argument, "overlap_chunks is ", chunks_,
         "; it must be 1 (a sequence travels whole) or more");
  if (chunks_ > 1 && gang_->size() > 1 && std::none_of(modules_.begin(), modules_.end(), moves_sequence))
    fail(Code::invalid_argument, "overlap_chunks is ", chunks_,
         ", but no row of the plan gathers a sequence or sums into its parts; set sequence_parallel, or 1");
}

void TensorPlan::resolve(const ModulePtr& root, const TensorOptions& options) {
  const std::vector<ModulePlace> places = all_places(root);
  const std::vector<Source> sources = sources_of(places, options);
  struct Chosen {
    const Source* source = nullptr;
    PlanRow row;
  };
  std::vector<Chosen> chosen(places.size());
  for (const Source& source : sources)
    for (PlanRow row : source.rows) {
      row.pattern = below(source.prefix, row.pattern);
      bool found = false;
      for (size_t i = 0; i < places.size(); ++i) {
        if (!places[i].named || !path_matches(row.pattern, places[i].path)) continue;
        found = true;
        if (chosen[i].source == &source)
          fail(Code::invalid_argument, "plan rows \"", text(chosen[i].row), "\" and \"", text(row), "\"",
               source.name.empty() ? "" : " of ", source.name, " are both for ", places[i].label,
               "; a module has one row");
        if (chosen[i].source == nullptr) chosen[i] = {&source, row};
      }
      if (!found && !source.built_in)
        fail(Code::not_found, "plan row \"", text(row), "\"", source.name.empty() ? "" : " of ", source.name,
             ": no module of ", root->kind(), " matches its pattern");
    }
  for (size_t i = 0; i < places.size(); ++i)
    if (chosen[i].source != nullptr) modules_.push_back({places[i], chosen[i].row, chosen[i].source->name});
}

// `outer`: the sequence_parallel row of a module that contains this one, or null.
void TensorPlan::plan_parameters(const Module& wrapped, const StyledModule* outer, Walk& walk) {
  const Module& module = unwrapped(wrapped);
  const auto found = walk.styled.find(&module);
  const StyledModule* const own = found == walk.styled.end() ? nullptr : found->second;
  if (own != nullptr) outer = own->row.style == TensorStyle::sequence_parallel ? own : nullptr;
  const StyledModule* const row = own != nullptr ? own : outer;
  const bool split = is_split(module);
  if (split && own != nullptr)
    fail(Code::invalid_state, label(*own), ": the parameters of ", own->place.label, " lie over tp already");
  for (size_t i = 0; i < module.parameters().size() && !split; ++i)
    add_parameter(module.parameters()[i],
                  row != nullptr ? parameter_layout(*row, own != nullptr ? i : 0, gang_->size())
                                 : ParameterLayout{Placement::replicate(kTensorAxis), false, ""},
                  walk);
  for (const Module::Child& child : module.children()) plan_parameters(*child.module, outer, walk);
}

void TensorPlan::add_parameter(const ParameterPtr& parameter, const ParameterLayout& layout, Walk& walk) {
  const auto [known, fresh] = walk.parameters.emplace(parameter.get(), parameters_.size());
  if (fresh) parameters_.push_back({parameter, layout});
  const ParameterLayout& first = parameters_[known->second].layout;
  if (first == layout) return;
  const auto said = [](const ParameterLayout& l) {
    return text(describe({l.placement}), l.partial_gradient ? " with a partial gradient" : "", " by ",
                l.row.empty() ? "a module without a row" : l.row);
  };
  fail(Code::invalid_argument, "parameter ", parameter->full_name,
       " is tied and has two layouts: ", said(first), ", and ", said(layout),
       "; give both modules rows that split it alike");
}

void TensorPlan::apply(ModulePtr& root) const {
  if (gang_->size() == 1) return;
  std::vector<ModulePtr> modules;
  for (const StyledModule& styled : modules_) modules.push_back(styled_module(styled, gang_, chunks_));
  for (const auto& [parameter, layout] : parameters_) {
    parameter->layout.insert(parameter->layout.begin(), layout.placement);
    if (layout.partial_gradient)
      parameter->grad_partial_axes +=
          (parameter->grad_partial_axes.empty() ? "" : "+") + std::string(kTensorAxis);
  }
  for (size_t i = 0; i < modules.size(); ++i)
    if (modules[i] != modules_[i].place.module) replace(root, modules_[i].place, modules[i]);
}

bool is_tensor_parallel(const ModulePtr& root) {
  const std::vector<NamedParameter> parameters = named_parameters(*root);
  return !parameters.empty() && std::all_of(parameters.begin(), parameters.end(), [](const auto& p) {
    return find_axis(p.parameter->layout, kTensorAxis) != nullptr;
  });
}

}  // namespace gangway
