#include "gpu_emulation/ptx/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <vector>

#include "gpu_emulation/ptx/compile.h"
#include "gpu_emulation/ptx/source.h"
#include "gpu_emulation/ptx/symbols.h"

namespace gpu_emulation::ptx {
namespace {

struct Place {
  const Source* source;
  std::string name;  // in the file
};
struct All {
  std::mutex mutex;
  std::string folder;
  bool read = false;
  std::vector<std::unique_ptr<Source>> sources;
  std::map<std::string, Place> kernels;  // by common_name
  std::map<std::string, std::shared_ptr<const Program>> programs;
  std::set<std::string> used;

  All() {
    if (const char* const text = std::getenv("GPU_EMULATION_PTX")) folder = text;
  }
};
All& all() {
  static auto* const all = new All;
  return *all;
}

// The caller holds the lock.
void read_folder() {
  if (all().read) return;
  all().read = true;
  for (const auto& entry : std::filesystem::directory_iterator(all().folder)) {
    if (entry.path().extension() != ".ptx") continue;
    all().sources.push_back(std::make_unique<Source>(read_source(entry.path())));
    const Source& source = *all().sources.back();
    for (const auto& [name, function] : source.functions)
      if (function.entry) {
        const Place& first = all().kernels.try_emplace(common_name(name), Place{&source, name}).first->second;
        if (first.name != name)  // of two unnamed namespaces, so that a launch cannot tell which it means
          throw std::runtime_error(first.source->file + " and " + source.file + " both have a kernel " +
                                   name);
      }
  }
}

void tell_use(const std::string& name) {
  const char* const file = std::getenv("GPU_EMULATION_PTX_USED");
  if (file == nullptr || !all().used.insert(name).second) return;
  std::ofstream(file, std::ios::app) << name + "\n";
}

std::shared_ptr<const Program> program_of(const std::string& name, const LaunchShape& shape,
                                          std::span<const Argument> arguments) {
  const std::lock_guard lock(all().mutex);
  read_folder();
  const auto found = all().kernels.find(common_name(name));
  if (found == all().kernels.end())
    throw std::runtime_error("no file in " + all().folder + " has this kernel");
  const Place& place = found->second;
  const Function& function = place.source->functions.at(place.name);
  const size_t threads = size_t{shape.block.x} * shape.block.y * shape.block.z;
  if (function.most_threads != 0 && threads > static_cast<size_t>(function.most_threads))
    throw std::runtime_error(std::to_string(threads) +
                             " threads in a block, and it was compiled for at most " +
                             std::to_string(function.most_threads));
  if (arguments.size() != function.parameters.size())
    throw std::runtime_error(std::to_string(arguments.size()) + " arguments for " +
                             std::to_string(function.parameters.size()) + " parameters");
  for (size_t k = 0; k < arguments.size(); ++k)
    if (arguments[k].bytes != function.parameters[k].bytes)
      throw std::runtime_error("argument " + std::to_string(k) + " has " +
                               std::to_string(arguments[k].bytes) + " bytes here and " +
                               std::to_string(function.parameters[k].bytes) + " in the PTX");
  auto& program = all().programs[place.name];
  if (program == nullptr) program = std::make_shared<Program>(compile(*place.source, place.name));
  tell_use(place.name);
  return program;
}

// The slots and frames of a block's threads. Fibers must own nothing, so the thread of the host does.
struct Thread {
  std::vector<uint64_t> slots, frame;
};
thread_local std::vector<Thread> threads(kThreadsPerBlock);

uint64_t special_value(const std::string& name) {
  const Lane& here = lane();
  const auto axis = [&](const auto& all) -> uint64_t {
    return name.back() == 'x' ? all.x : name.back() == 'y' ? all.y : all.z;
  };
  if (name.starts_with("%tid.")) return axis(here.thread);
  if (name.starts_with("%ntid.")) return axis(here.block_dim);
  if (name.starts_with("%ctaid.")) return axis(here.block);
  if (name.starts_with("%nctaid.")) return axis(here.grid_dim);
  return here.in_warp;  // %laneid
}

void run_thread(const Program& program, const std::vector<char>& parameters, size_t shared_bytes) {
  const Lane& here = lane();
  Thread& own =
      threads[here.thread.x + here.block_dim.x * (here.thread.y + here.block_dim.y * here.thread.z)];
  own.slots.assign(program.slots.begin(), program.slots.end());
  own.frame.assign(program.frame_bytes / 8 + 2, ~uint64_t{0});
  // Aligned to 16 bytes, as the most strictly aligned parameter is.
  char* const frame = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(own.frame.data()) + 15) / 16 * 16);
  std::memcpy(frame, parameters.data(), parameters.size());
  for (const auto& [slot, offset] : program.in_frame)
    own.slots[slot] = reinterpret_cast<uint64_t>(frame + offset);
  for (const auto& [slot, name] : program.special) own.slots[slot] = special_value(name);
  State state{own.slots.data(), frame,   0, here.in_warp, static_cast<char*>(shared_memory()),
              shared_bytes,     &program};
  execute(state);
}

}  // namespace

bool chosen() {
  const std::lock_guard lock(all().mutex);
  return !all().folder.empty();
}
void choose(const std::string& folder) {
  const std::lock_guard lock(all().mutex);
  all().folder = folder;
  all().read = false;
  all().kernels.clear();
  all().programs.clear();
}

std::function<void()> body_of(const std::string& name, const LaunchShape& shape,
                              std::span<const Argument> arguments, std::string& why) {
  try {
    const std::shared_ptr<const Program> program = program_of(name, shape, arguments);
    std::vector<char> parameters(program->parameter_bytes);
    const std::vector<size_t>& offsets = program->parameter_offsets;
    for (size_t k = 0; k < arguments.size(); ++k)
      std::memcpy(parameters.data() + offsets[k], arguments[k].data, arguments[k].bytes);
    return [program, parameters = std::move(parameters), bytes = shape.shared_bytes] {
      run_thread(*program, parameters, bytes);
    };
  } catch (const std::exception& error) {
    why = "kernel " + name + " from PTX: " + error.what();
    return {};
  }
}
std::function<void()> body_of(const void* kernel, const LaunchShape& shape,
                              std::span<const Argument> arguments, std::string& why) {
  const std::string name = name_of(kernel);
  if (!name.empty()) return body_of(name, shape, arguments, why);
  why = "a kernel whose file has no name for it cannot run from PTX";
  return {};
}

}  // namespace gpu_emulation::ptx
