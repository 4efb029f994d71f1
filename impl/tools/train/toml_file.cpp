#include "tools/train/toml_file.h"

#include <toml++/toml.h>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace gangway::train {
namespace {

using Type = TomlValue::Type;

TomlValue value_of(const toml::node& node, const std::string& file);

std::string origin_of(const toml::node& node, const std::string& file) {
  return file.empty() ? "the command line" : file + ":" + std::to_string(node.source().begin.line);
}

// Returns the shortest text that gives the same double.
std::string shortest(double number) {
  std::ostringstream out;
  out.precision(17);
  for (int digits = 1; digits <= 17; ++digits) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.*g", digits, number);
    if (std::strtod(buffer, nullptr) == number) return buffer;
  }
  out << number;
  return out.str();
}

std::vector<std::pair<std::string, TomlValue>> fields_of(const toml::table& table, const std::string& file) {
  std::vector<std::pair<std::string, TomlValue>> fields;
  for (const auto& [key, node] : table) fields.emplace_back(std::string(key.str()), value_of(node, file));
  return fields;
}

TomlValue value_of(const toml::node& node, const std::string& file) {
  TomlValue value;
  value.origin = origin_of(node, file);
  if (const auto* integer = node.as_integer()) {
    value.type = Type::integer;
    value.text = std::to_string(integer->get());
  } else if (const auto* number = node.as_floating_point()) {
    value.type = Type::number;
    value.text = shortest(number->get());
  } else if (const auto* text = node.as_string()) {
    value.type = Type::text;
    value.text = text->get();
  } else if (const auto* flag = node.as_boolean()) {
    value.type = Type::flag;
    value.text = flag->get() ? "true" : "false";
  } else if (const auto* array = node.as_array()) {
    value.type = Type::array;
    for (const toml::node& item : *array) value.items.push_back(value_of(item, file));
  } else if (const auto* table = node.as_table()) {
    value.type = Type::table;
    value.fields = fields_of(*table, file);
  } else {
    value.type = Type::other;
  }
  return value;
}

void flatten(const toml::table& table, const std::string& prefix, const std::string& file,
             std::vector<std::pair<std::string, TomlValue>>& all) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const auto* section = node.as_table())
      flatten(*section, name + ".", file, all);
    else
      all.emplace_back(name, value_of(node, file));
  }
}

toml::table parse(const std::string& text, const std::string& file) {
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw SettingsError(file + ":" + std::to_string(error.source().begin.line) + ": " +
                        std::string(error.description()));
  }
}

}  // namespace

const char* name_of(Type type) {
  switch (type) {
    case Type::integer: return "a whole number";
    case Type::number: return "a number";
    case Type::text: return "a text";
    case Type::flag: return "true or false";
    case Type::array: return "a list";
    case Type::table: return "a table";
    case Type::other: break;
  }
  return "a date or time";
}

std::vector<std::pair<std::string, TomlValue>> read_toml(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw SettingsError("cannot read " + path + ": " + std::strerror(errno));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) throw SettingsError("cannot read " + path + ": it is no regular file");
  std::vector<std::pair<std::string, TomlValue>> all;
  flatten(parse(text, path), "", path, all);
  return all;
}

TomlValue parse_value(const std::string& text) {
  try {
    const toml::table table = toml::parse("value = " + text);
    if (table.size() == 1)
      if (const toml::node* node = table.get("value")) return value_of(*node, "");
  } catch (const toml::parse_error&) {  // a bare word, such as auto
  }
  TomlValue value;
  value.text = text;
  value.origin = "the command line";
  return value;
}

}  // namespace gangway::train
