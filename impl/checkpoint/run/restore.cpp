#include "checkpoint/run/restore.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/line.h"
#include "checkpoint/config_json.h"
#include "checkpoint/folders.h"
#include "checkpoint/lora_files.h"
#include "checkpoint/pieces.h"
#include "checkpoint/row_copies.h"

namespace gangway {
namespace {

// Throws unless a tensor in the files can be read and converted to what is kept in memory.
void check_tensor(const std::string& what, const Source::Entry& entry, const Shape& shape, DType dtype) {
  const StoredTensor& stored = entry.tensor;
  check_readable(stored, what, entry.file->file().path(), "restore");
  // A scalar is one row in a model; files of other programs give it no dims.
  const bool scalar = stored.shape.rank() == 0 && shape == Shape{1};
  if (!scalar && !(stored.shape == shape))
    fail(Code::invalid_argument, "restore: ", what, " has shape ", stored.shape.text(),
         " in the checkpoint, ", shape.text(), " now");
  const bool converts = is_floating(stored.dtype) && is_floating(dtype);
  if (!converts && stored.dtype != dtype)
    fail(Code::invalid_argument, "restore: ", what, " is ", name(stored.dtype), " in the checkpoint, ",
         name(dtype), " now, and they cannot be converted");
}

void read_all(Model& model, const std::vector<RowsToRead>& all, Stream& stream) {
  RowReader reader(model, stream);
  for (const RowsToRead& to : all) {
    if (!to.rows || to.rows.count() == 0) continue;
    for_pieces(to.place, to.box, to.rows, item_bytes(to.entry.tensor.dtype),
               [&](const Tensor& rows, std::span<const FileRun> runs) {
                 reader.read(*to.entry.file, to.entry.tensor, runs, rows);
               });
  }
}

// The places of each parameter: that of its own name first, then those of names under which it is tied.
std::map<const Parameter*, std::vector<FilePlace>> places_of(Model& model) {
  const std::vector<NamedParameter> names = model.inspect().names();
  const FilePlaces all(model.root(), names);
  std::map<const Parameter*, std::vector<FilePlace>> places;
  for (const NamedParameter& named : names) places[named.parameter.get()].push_back(all.of(named.name));
  return places;
}

}  // namespace

void LeftOut::add(Code code, const std::string& line) {
  if (strict_) fail(code, "restore: ", line);
  list_.push_back(line);
}

ModelValues::ModelValues(Model& model, std::string folder, Source source)
    : model_(model), folder_(std::move(folder)), source_(std::move(source)) {
  source_.check_complete();
}

ModelValues::ModelValues(Model& model, const std::string& folder, LeftOut& left_out)
    : ModelValues(model, absolute_path(folder), Source::open(folder)) {
  const DecoderOptions* const own = decoder_options(model.root());
  if (own != nullptr && source_.config() != nullptr) {
    const std::string& path = source_.config()->path();
    check_same_function(parse_config_json(source_.config_text(), path), *own, path);
  }
  find(model.inspect().parameters(), places_of(model), left_out);
}

ModelValues ModelValues::of_adapters(Model& model, const std::string& folder, LeftOut& left_out) {
  const AdapterFiles files = adapter_files(model);
  const size_t slash = files.stem.rfind('/');
  const std::string inside = slash == std::string::npos ? "" : "/" + files.stem.substr(0, slash);
  ModelValues values(model, absolute_path(folder),
                     Source::open(folder + inside, files.stem.substr(slash + 1)));
  values.of_adapters_ = true;
  Places places;
  for (const PlacedParameter& placed : files.tensors) places[placed.parameter.get()].push_back(placed.place);
  std::vector<NamedParameter> adapters = model.inspect().parameters();
  std::erase_if(adapters, [](const NamedParameter& named) { return !is_adapter(*named.parameter); });
  values.find(adapters, places, left_out);
  return values;
}

void ModelValues::find(const std::vector<NamedParameter>& parameters, const Places& places,
                       LeftOut& left_out) {
  std::set<std::string> used;
  for (const NamedParameter& named : parameters) {
    const Parameter& p = *named.parameter;
    bool found = false;
    for (const FilePlace& place : places.at(&p)) {
      const auto at = source_.tensors().find(place.name);
      if (at == source_.tensors().end()) continue;
      used.insert(place.name);
      if (std::exchange(found, true)) continue;
      check_tensor(place.name, at->second, place.shape, p.dtype);
      rows_.push_back({place, p.box(), p.shard, at->second});
    }
    if (!found) left_out.add(Code::not_found, text("the checkpoint has no parameter ", named.name));
  }
  for (const auto& [name, entry] : source_.tensors())
    if (used.count(name) == 0)
      left_out.add(Code::invalid_argument,
                   text("the checkpoint has a parameter ", printable(name), " that the model does not have"));
}

void ModelValues::read(Stream& stream) const {
  read_all(model_, rows_, stream);
  source_.check_unchanged();
  // A folder from which the model was loaded before outlives the checkpoints of a run, and is the base of
  // adapters.
  const bool has_adapters = lora_settings(model_.inspect().parameters()) != nullptr;
  if (!of_adapters_) {
    model_.origin().base_hash.reset();
    if (has_adapters && model_.origin().folder.empty()) model_.origin().is_saved_with_adapters = true;
  }
  if (source_.config() != nullptr && model_.origin().config.empty() && !has_adapters)
    model_.origin() = {folder_, source_.config_text()};
}

OptimizerStates::OptimizerStates(Model& model, Optimizer& optimizer, Source source, LeftOut& left_out)
    : model_(model), optimizer_(optimizer), source_(std::move(source)), places_(model, optimizer) {
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) find(i, left_out);
  check_extra(left_out);
}

void OptimizerStates::find(size_t i, LeftOut& left_out) {
  size_t found = 0;
  bool found_ema = false;
  for (const Optimizer::Slot& slot : optimizer_.state(i)) {
    const std::vector<FilePlace> candidates = places_.candidates(i, slot);
    const auto place = std::find_if(candidates.begin(), candidates.end(), [&](const FilePlace& candidate) {
      return source_.tensors().count(candidate.name) != 0;
    });
    if (place == candidates.end()) {
      left_out.add(
          Code::not_found,
          text("the checkpoint has no state ", candidates.front().name,
               "; if the parameter was frozen there, restore without `strict`: its state begins anew"));
      continue;
    }
    ++found;
    found_ema |= slot.name == "ema";
    used_.insert(place->name);
    const Source::Entry& entry = source_.tensors().at(place->name);
    check_tensor(place->name, entry, place->shape, slot.tensor.dtype());
    rows_.push_back({*place, slot.box(), slot.tensor, entry});
  }
  if (optimizer_.state(i).empty()) return;
  if (found == 0) without_.push_back(i);
  // An average that is kept from now on begins with the values.
  else if (optimizer_.has_ema() && !found_ema)
    without_average_.push_back(i);
}

void OptimizerStates::check_extra(LeftOut& left_out) const {
  std::vector<std::string> elsewhere;  // ends of names of states that only other ranks have
  for (size_t i = 0; i < optimizer_.parameters().size(); ++i)
    if (!optimizer_.parameters()[i].parameter->shard)
      for (std::string& end : places_.ends(i)) elsewhere.push_back(std::move(end));
  for (const auto& [name, entry] : source_.tensors()) {
    const std::string& state = name;
    const bool known = used_.count(name) != 0 || name == kStepName ||
                       std::any_of(elsewhere.begin(), elsewhere.end(),
                                   [&](const std::string& end) { return state.ends_with(end); });
    if (!known)
      left_out.add(Code::invalid_argument,
                   text("the checkpoint has a state ", printable(name), " that the optimizer does not have"));
  }
}

void OptimizerStates::read(Stream& stream) const {
  read_all(model_, rows_, stream);
  for (const size_t i : without_average_) optimizer_.restart_ema(i, stream);
  source_.check_unchanged();
}

}  // namespace gangway
