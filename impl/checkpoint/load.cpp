// Loading: every rank opens the files, the ranks compare which files they have opened, then each rank reads
// its own rows. The ranks agree on all checks before the version gate opens. If a read fails after that, all
// ranks throw its error, and the values are undefined.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/line.h"
#include "checkpoint/config_json.h"
#include "checkpoint/folders.h"
#include "checkpoint/named_tensors.h"
#include "checkpoint/pieces.h"
#include "checkpoint/row_copies.h"
#include "gang/agreement.h"
#include "nn/lora.h"
#include "parallel/collective_call.h"
#include "parallel/fsdp/replica_check.h"

namespace gangway {
namespace {

// The places and entries of one parameter in the files: its own name first, then the other names of a tied
// parameter.
using Found = std::vector<std::pair<FilePlace, Source::Entry>>;

void check_tensor(const FilePlace& place, const StoredTensor& stored, const std::string& path) {
  const std::string& name_there = place.name;
  check_readable(stored, name_there, path, "load");
  // A scalar is one row in a model; files of other programs give it no dims.
  const bool scalar = stored.shape.rank() == 0 && place.shape == Shape{1};
  if (!scalar && !(stored.shape == place.shape))
    fail(Code::invalid_argument, "load: ", name_there, " has shape ", stored.shape.text(), " in ", path, ", ",
         place.shape.text(), " in the model");
  if (!is_floating(stored.dtype))
    fail(Code::invalid_argument, "load: ", name_there, " is ", name(stored.dtype), " in ", path,
         ", not a floating dtype");
}

bool is_derived(const TensorsToLoad& what, const std::string& tensor) {
  return what.is_derived && what.is_derived(tensor);
}

// Throws unless the model has every tensor in the files.
void check_extra(const Source& source, const std::set<std::string>& known, const TensorsToLoad& what,
                 const std::string& path) {
  for (const auto& [tensor, entry] : source.tensors())
    if (known.count(tensor) == 0 && !is_derived(what, tensor))
      fail(Code::invalid_argument, "load: ", path, " has a tensor ", printable(tensor),
           " that the model does not have");
}

TensorsToLoad all_of(const std::vector<NamedParameter>& parameters, const std::vector<NamedParameter>& names,
                     const Module& root, const Source& source) {
  const auto places = std::make_shared<FilePlaces>(root, names);
  places->fit_prefix(source.tensors());
  TensorsToLoad what;
  for (const NamedParameter& named : parameters) what.parameters.push_back(named.parameter);
  for (const NamedParameter& alias : names) what.names.push_back({alias.parameter, places->of(alias.name)});
  what.is_derived = [places](const std::string& tensor) { return places->is_derived(tensor); };
  return what;
}

// Returns the name of a parameter's first tensor in the files.
const std::string& first_name(const TensorsToLoad& what, const ParameterPtr& parameter) {
  return std::find_if(what.names.begin(), what.names.end(),
                      [&](const PlacedParameter& alias) { return alias.parameter == parameter; })
      ->place.name;
}

// Finds each parameter in the files; the result is in the order of `what.parameters`. It is empty for an
// adapter that the files of a model do not have.
std::vector<Found> match(const TensorsToLoad& what, const Source& source, const std::string& path,
                         const LoadOptions& options) {
  const bool only_adapters = std::all_of(what.parameters.begin(), what.parameters.end(),
                                         [](const ParameterPtr& p) { return is_adapter(*p); });
  std::set<std::string> known;
  for (const PlacedParameter& alias : what.names) known.insert(alias.place.name);
  if (!options.ignore_extra)
    for (const auto& [tensor, error] : source.absent())
      if (known.count(tensor) == 0 && !is_derived(what, tensor)) throw error;
  std::vector<Found> all;
  for (const ParameterPtr& parameter : what.parameters) {
    Found found;
    std::string absent;
    for (const PlacedParameter& alias : what.names) {
      if (alias.parameter != parameter) continue;
      const FilePlace& place = alias.place;
      const auto at = source.tensors().find(place.name);
      if (at == source.tensors().end() && source.absent().count(place.name) != 0) absent = place.name;
      if (at == source.tensors().end() || (options.ignore_extra && !found.empty())) continue;
      check_tensor(place, at->second.tensor, path);
      found.emplace_back(place, at->second);
    }
    if (found.empty() && !absent.empty()) throw source.absent().at(absent);
    if (found.empty() && (only_adapters || !is_adapter(*parameter)))
      fail(Code::not_found, "load: ", path, " has no tensor ", first_name(what, parameter));
    all.push_back(std::move(found));
  }
  if (!options.ignore_extra) check_extra(source, known, what, path);
  return all;
}

void check_config(const Module& module, const Source& source, const LoadOptions& options) {
  const DecoderOptions* own = decoder_options(module);
  if (own == nullptr || source.config() == nullptr || options.ignore_config) return;
  const std::string& path = source.config()->path();
  check_same_function(parse_config_json(source.config_text(), path), *own, path);
}

// Throws MISMATCH unless this rank opened the same files as rank 0. `expected`: the lines of rank 0's Source.
void check_same_files(const Source& source, const std::string& expected, const Gang& root) {
  std::istringstream theirs(expected);
  theirs.exceptions(std::ios::badbit);  // otherwise getline would report out-of-memory as the end of the text
  const std::vector<std::string> own = source.lines(root.shared_memory() != nullptr);
  std::string line;
  for (size_t i = 0;; ++i) {
    const bool more = static_cast<bool>(std::getline(theirs, line));
    if (!more && i == own.size()) return;
    if (more && i < own.size() && own[i] == line) continue;
    fail(Code::mismatch, "load: rank ", root.rank(), " opened ", i < own.size() ? own[i] : "no further file",
         ", rank 0 ", more ? line : "no further file", "; all ranks must read the same files");
  }
}

double value_at(const char* bytes, DType dtype) {
  const auto as = [&](auto value) {
    std::memcpy(&value, bytes, sizeof value);
    return value;
  };
  if (dtype == DType::f64) return as(double{});
  if (dtype == DType::f32) return static_cast<double>(as(float{}));
  return static_cast<double>(dtype == DType::bf16 ? to_f32(as(bf16_t{})) : to_f32(as(f16_t{})));
}

// Throws INVALID_ARGUMENT if the files have several tensors for a tied parameter and they differ in this
// rank's rows.
void check_tied(const Parameter& parameter, const Found& found, const std::string& path) {
  if (found.empty()) return;
  const std::string& name = found.front().first.name;
  const Source::Entry& entry = found.front().second;
  const size_t item = item_bytes(entry.tensor.dtype);
  if (!found.front().first.is_plain(parameter.shape)) return;  // no family ties such a parameter
  for (size_t i = 1; i < found.size(); ++i) {
    const std::string& other_name = found[i].first.name;
    const Source::Entry& other = found[i].second;
    const std::string what = text("load: ", path, " has another ", other_name, " than ", name);
    const std::string advice = ", but the model ties them; make an untied model, or load with ignore_extra";
    if (other.tensor.dtype != entry.tensor.dtype)
      fail(Code::invalid_argument, what, " (", gangway::name(other.tensor.dtype), " and ",
           gangway::name(entry.tensor.dtype), ")", advice);
    std::vector<char> a(kPieceBytes), b(kPieceBytes);
    for_pieces(parameter, item, [&](int64_t, int64_t count, uint64_t from) {
      const size_t bytes = static_cast<size_t>(count) * item;
      entry.file->read(entry.tensor, from, from + bytes, a.data());
      other.file->read(other.tensor, from, from + bytes, b.data());
      const auto differs =
          std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(bytes), b.begin());
      const auto at = static_cast<size_t>(differs.first - a.begin()) / item * item;
      if (at < bytes)
        fail(Code::invalid_argument, what, " (", value_at(b.data() + at, other.tensor.dtype), " and ",
             value_at(a.data() + at, entry.tensor.dtype), " as element ", (from + at) / item, ")", advice);
    });
  }
}

void read_rows(const Parameter& parameter, const Found& found, RowReader& reader) {
  if (!parameter.shard || found.empty()) return;
  const auto& [place, entry] = found.front();
  for_pieces(place, parameter.box(), parameter.shard, item_bytes(entry.tensor.dtype),
             [&, &entry = entry](const Tensor& rows, std::span<const FileRun> runs) {
               reader.read(*entry.file, entry.tensor, runs, rows);
             });
}

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

}  // namespace

void check_loads(const Module& module, const std::string& path) {
  const Source source = Source::open(path);
  match(all_of(named_parameters(module), named_parameters_with_aliases(module), module, source), source, path,
        {});
}

Source load_tensors(Model& model, const std::string& path, const std::string& stem,
                    const LoadOptions& options, const std::function<TensorsToLoad(const Source&)>& describe) {
  Gang& root = *model.gangs().root();
  Stream& stream = model.device().stream();
  std::optional<Source> source;
  TensorsToLoad what;
  std::vector<Found> found;
  const CollectiveCall call(model.gangs(), "load");
  call.check(
      [&] {
        if (!model.materialized())
          fail(Code::invalid_state,
               "load: the model has no storage yet; call parallelize or materialize first");
        if (model.device().kind() == DeviceKind::meta)
          fail(Code::invalid_argument, "load: a meta device has no values");
        model.run().check_update();
        source = Source::open(path, stem);
      },
      text("load ", stem, ", ignore_extra ", options.ignore_extra, ", ignore_config ",
           options.ignore_config));

  const std::string expected = root.agreement().broadcast_bytes(
      Channel::control,
      root.in_mid_call([&] { return joined(source->lines(root.shared_memory() != nullptr)); }), 0);
  call.check([&] {
    check_same_files(*source, expected, root);
    what = describe(*source);
    found = match(what, *source, path, options);
    for (size_t i = 0; i < found.size(); ++i) check_tied(*what.parameters[i], found[i], path);
  });

  call.run([&] { model.run().begin_update(stream); });
  // Every rank reaches end_update, also after a failed read, so that the version gate closes and the gangs
  // stay usable.
  std::optional<Error> unread;
  call.run([&] {
    unread = error_thrown_by([&] {
      RowReader reader(model, stream);
      for (size_t i = 0; i < found.size(); ++i) read_rows(*what.parameters[i], found[i], reader);
      source->check_unchanged();
    });
  });
  call.run([&] { model.run().end_update(stream); });
  call.check([&] {
    if (unread) throw *unread;
  });
  check_replicas(model.fsdp(), "load", stream);
  return std::move(*source);
}

void load_model(Model& model, const std::string& path, const LoadOptions& options) {
  const Source source = load_tensors(model, path, "model", options, [&](const Source& opened) {
    check_config(model.root(), opened, options);
    return all_of(model.inspect().parameters(), model.inspect().names(), model.root(), opened);
  });
  // With ignore_config the file may be of another model.
  if (source.config() != nullptr && !options.ignore_config)
    model.origin() = {absolute_path(path), source.config_text()};
}

}  // namespace gangway
