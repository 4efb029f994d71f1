#include "checkpoint/config_window.h"

#include <algorithm>
#include <vector>

#include "base/json_scalars.h"
#include "base/line.h"

namespace gangway {
namespace {

// Returns the letters of a period of n layers, of which the last has no window.
std::string letters_of_period(int64_t n) { return std::string(static_cast<size_t>(n - 1), 'w') + "f"; }

bool are_repeated(const std::string& all, const std::string& letters) {
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] != letters[i % letters.size()]) return false;
  return true;
}

int64_t period_of(const Fields& fields, const Family& family) {
  const char* const key = family.period.key;
  return key == nullptr || fields.find(key) == nullptr ? family.period.layers : fields.size(key, 1, 10'000);
}

// Returns the letters of the key that says the layers where layer_types does not.
std::string letters_by_number(const Fields& fields, const Family& family, int64_t layers) {
  if (family.window == WindowKeys::size) return "";
  if (family.window == WindowKeys::size_and_period) return letters_of_period(period_of(fields, family));
  fields.refuse_null("max_window_layers");
  const int64_t given = fields.find("max_window_layers") == nullptr ? kMissingMaxWindowLayers
                                                                    : fields.size("max_window_layers", 0);
  const int64_t full = std::min(given, layers);
  return std::string(static_cast<size_t>(full), 'f') + std::string(static_cast<size_t>(layers - full), 'w');
}

std::string letters_of_types(const Fields& fields, const JsonValue& types, int64_t layers) {
  if (types.kind != JsonValue::Kind::list || types.texts.size() != types.count ||
      types.count != static_cast<size_t>(layers))
    fields.corrupt("layer_types", types, text("not a text for each of ", layers, " layers"));
  std::string letters;
  for (const std::string& type : types.texts) {
    if (type != kFullAttention && type != kSlidingAttention)
      fields.unsupported(
          "layer_types", types,
          "one is " + printable(type) + ", but this library has full_attention and sliding_attention");
    letters += type == kSlidingAttention ? 'w' : 'f';
  }
  return letters;
}

// Returns sliding_window, or 0 if none is in use.
int64_t size_of(const Fields& fields, const Family& family) {
  if (family.window == WindowKeys::size_and_switch && !fields.flag_or("use_sliding_window", false)) return 0;
  if (fields.find("sliding_window") != nullptr) return fields.size("sliding_window", 1);
  return fields.is_null("sliding_window") ? 0 : kMissingWindow;
}

std::string types_text(const std::string& letters) {
  std::vector<const char*> types;
  for (const char letter : letters) types.push_back(letter == 'w' ? kSlidingAttention : kFullAttention);
  return json_list(types);
}

}  // namespace

std::set<std::string> window_keys(const Family& family) {
  std::set<std::string> keys;
  if (family.window == WindowKeys::none) return keys;
  keys.insert("sliding_window");
  if (family.window == WindowKeys::size) return keys;
  keys.insert("layer_types");
  if (family.window == WindowKeys::size_and_switch) keys.insert({"use_sliding_window", "max_window_layers"});
  if (family.period.key != nullptr) keys.insert(family.period.key);
  return keys;
}

void read_window(const Fields& fields, const Family& family, DecoderOptions& options) {
  options.window = 0;
  options.window_layers.clear();
  if (family.window == WindowKeys::none) return;
  const int64_t window = size_of(fields, family);
  const JsonValue* const types = family.window == WindowKeys::size ? nullptr : fields.find("layer_types");
  const bool by_number = types == nullptr && (window != 0 || family.window == WindowKeys::size_and_period);
  std::string letters = types != nullptr ? letters_of_types(fields, *types, options.layers)
                        : by_number      ? letters_by_number(fields, family, options.layers)
                                         : "";
  // A list that repeats the period is as if the period had said it.
  if (types != nullptr && family.window == WindowKeys::size_and_period)
    if (const std::string period = letters_of_period(period_of(fields, family));
        are_repeated(letters, period))
      letters = period;
  if (window == 0 && letters.find('w') != std::string::npos)
    fields.corrupt(types != nullptr ? "layer_types" : "sliding_window",
                   types != nullptr ? *types : JsonValue{},
                   "but a layer is sliding_attention and no sliding_window is in use");
  options.window = window;
  options.window_layers = letters.find('f') == std::string::npos ? "" : letters;
  if (layers_with_window(options).find('w') != std::string::npos) return;
  options.window = 0;
  options.window_layers.clear();
}

void write_window(JsonObject& json, const Family& family, const DecoderOptions& options,
                  const JsonMembers& origin) {
  if (family.window == WindowKeys::none) return;
  const std::string letters = layers_with_window(options);
  const int64_t window = letters.find('w') == std::string::npos ? 0 : options.window;
  if (family.window == WindowKeys::size_and_switch) json.add("use_sliding_window", json_scalar(window != 0));
  json.add("sliding_window", window == 0 ? "null" : json_scalar(window));
  if (family.window == WindowKeys::size) return;
  const bool has_types = find_member(origin, "layer_types") != nullptr;
  bool said = false;  // by other keys than layer_types
  if (family.window == WindowKeys::size_and_switch) {
    const size_t first = std::min(letters.find('w'), letters.size());
    said = window == 0 || letters.find('f', first) == std::string::npos;
    if (said && window != 0 && !has_types)
      json.add("max_window_layers", json_scalar(first));
    else if (const std::string_view* given = find_member(origin, "max_window_layers"))
      json.add("max_window_layers", std::string(*given));
  } else {
    const std::string& own = options.window_layers;
    const bool is_period = window != 0 && !own.empty() && own.find('f') == own.size() - 1;
    const auto period = static_cast<int64_t>(own.size());
    if (family.period.key != nullptr && is_period) json.add(family.period.key, json_scalar(period));
    said = is_period && (family.period.key != nullptr || period == family.period.layers);
  }
  if (!said || has_types) json.add("layer_types", types_text(letters));
}

}  // namespace gangway
