// Saving and loading a model's values.
#include <gangway/checkpoint.h>

#include "checkpoint/model_files.h"
#include "module_handle.h"

using namespace gangway;
using namespace gangway::capi;

void gw_save_options_init(gw_save_options* options, size_t size) { start_struct(options, size); }

gw_status gw_module_save(gw_module* model, const char* folder, const gw_save_options* options) {
  return guarded([&] {
    SaveOptions s;
    std::string path;
    Model& m = required(model, "model").ready();
    CollectiveCall(m.gangs(), "save").read([&] {
      const gw_save_options o = read_struct(options, gw_save_options_init, "options");
      s.dtype = optional_dtype(o.dtype);
      if (o.max_file_bytes < 0)
        fail(Code::invalid_argument, "options.max_file_bytes is ", o.max_file_bytes, ", below 0");
      s.max_file_bytes = static_cast<uint64_t>(o.max_file_bytes);
      path = &required(folder, "folder");
    });
    save_model(m, path, s);
  });
}

void gw_load_options_init(gw_load_options* options, size_t size) { start_struct(options, size); }

gw_status gw_module_load(gw_module* model, const char* path, const gw_load_options* options) {
  return guarded([&] {
    LoadOptions l;
    std::string from;
    Model& m = required(model, "model").ready();
    CollectiveCall(m.gangs(), "load").read([&] {
      const gw_load_options o = read_struct(options, gw_load_options_init, "options");
      l = {o.ignore_extra != 0, o.ignore_config != 0};
      from = &required(path, "path");
    });
    load_model(m, from, l);
  });
}
