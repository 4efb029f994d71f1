#include "base/config.h"

#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"

namespace gangway {
namespace {

const char* lookup(const char* variable) {
  // Null in a program with rights of its own (setuid, setgid, capabilities): the variables name code to load
  // and files to write, and the user who sets them may not have those rights.
  const char* value = secure_getenv(variable);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

int64_t integer(const char* variable, int64_t fallback, int64_t lowest, int64_t highest) {
  const char* value = lookup(variable);
  if (value == nullptr) return fallback;
  char* end = nullptr;
  errno = 0;
  const long long parsed = std::strtoll(value, &end, 10);
  if (errno != 0 || *end != '\0' || std::isspace(static_cast<unsigned char>(*value)) != 0 ||
      parsed < lowest || parsed > highest)
    fail(Code::invalid_argument, variable, " is \"", value, "\", not an integer from ", lowest, " to ",
         highest);
  return parsed;
}

std::string string_of(const char* variable, const char* fallback) {
  const char* value = lookup(variable);
  return value != nullptr ? value : fallback;
}

}  // namespace

Config read_config() {
  constexpr int64_t kInt = INT32_MAX;
  const Config d;
  Config c;
  c.num_threads = static_cast<int>(integer("GANGWAY_NUM_THREADS", d.num_threads, 0, 4096));
  c.cpu_isa = string_of("GANGWAY_CPU_ISA", "");
  if (!c.cpu_isa.empty() && c.cpu_isa != "avx512" && c.cpu_isa != "avx2" && c.cpu_isa != "portable")
    fail(Code::invalid_argument, "GANGWAY_CPU_ISA is \"", c.cpu_isa, "\", not avx512, avx2 or portable");
  c.expected_size = static_cast<int>(integer("GANGWAY_EXPECTED_SIZE", d.expected_size, 0, kInt));
  c.arena_bytes = static_cast<uint64_t>(integer("GANGWAY_ARENA_BYTES", 0, 0, INT64_MAX));
  c.memory_limit = static_cast<uint64_t>(integer("GANGWAY_MEMORY_LIMIT", 0, 0, INT64_MAX));
  c.timeout_ms = integer("GANGWAY_TIMEOUT_MS", d.timeout_ms, 1, INT64_MAX / 1000000);
  c.liveness_ms = integer("GANGWAY_LIVENESS_MS", d.liveness_ms, 0, INT64_MAX / 1000000);
  c.secret_file = string_of("GANGWAY_SECRET_FILE", "");
  c.secret_fd = static_cast<int>(integer("GANGWAY_SECRET_FD", d.secret_fd, -1, kInt));
  c.port = static_cast<int>(integer("GANGWAY_PORT", d.port, 0, 65535));
  c.interface = string_of("GANGWAY_INTERFACE", "");
  c.wire = string_of("GANGWAY_WIRE", "");
  if (!c.wire.empty() && c.wire != "sockets" && c.wire != "fabric")
    fail(Code::invalid_argument, "GANGWAY_WIRE is \"", c.wire, "\", not sockets or fabric");
  c.module_folder = string_of("GANGWAY_MODULES", "");
  c.trace_folder = string_of("GANGWAY_TRACE", "");
  c.shared_regions = integer("GANGWAY_SHARED_REGIONS", 1, 0, 1) != 0;
  c.kernel_copies = integer("GANGWAY_KERNEL_COPIES", 1, 0, 1) != 0;
  c.cuda_graphs = integer("GANGWAY_CUDA_GRAPHS", 1, 0, 1) != 0;
  c.nccl_register = static_cast<uint64_t>(
      integer("GANGWAY_NCCL_REGISTER", static_cast<int64_t>(d.nccl_register), 0, INT64_MAX));
  c.nccl_cta_policy = string_of("GANGWAY_NCCL_CTA_POLICY", d.nccl_cta_policy.c_str());
  if (c.nccl_cta_policy != "default" && c.nccl_cta_policy != "efficiency" && c.nccl_cta_policy != "zero")
    fail(Code::invalid_argument, "GANGWAY_NCCL_CTA_POLICY is \"", c.nccl_cta_policy,
         "\", not default, efficiency or zero");
  c.cuda_tuning = integer("GANGWAY_CUDA_TUNING", 1, 0, 1) != 0;
  const std::string cudnn = string_of("GANGWAY_CUDNN", "auto");
  if (cudnn != "auto" && cudnn != "0")
    fail(Code::invalid_argument, "GANGWAY_CUDNN is \"", cudnn, "\", not auto or 0");
  c.cudnn = cudnn == "auto";
  return c;
}

const Config& config() {
  static const Config c = read_config();
  return c;
}

std::string describe(const Config& c) {
  std::string out;
  const auto line = [&](const char* variable, const auto& value) {
    out += text(variable, " = ", value, lookup(variable) != nullptr ? " (set)" : "", "\n");
  };
  line("GANGWAY_NUM_THREADS", c.num_threads);
  line("GANGWAY_CPU_ISA", c.cpu_isa);
  line("GANGWAY_EXPECTED_SIZE", c.expected_size);
  line("GANGWAY_ARENA_BYTES", c.arena_bytes);
  line("GANGWAY_MEMORY_LIMIT", c.memory_limit);
  line("GANGWAY_TIMEOUT_MS", c.timeout_ms);
  line("GANGWAY_LIVENESS_MS", c.liveness_ms);
  line("GANGWAY_SECRET_FILE", c.secret_file);
  line("GANGWAY_SECRET_FD", c.secret_fd);
  line("GANGWAY_PORT", c.port);
  line("GANGWAY_INTERFACE", c.interface);
  line("GANGWAY_WIRE", c.wire);
  line("GANGWAY_MODULES", c.module_folder);
  line("GANGWAY_TRACE", c.trace_folder);
  line("GANGWAY_SHARED_REGIONS", c.shared_regions);
  line("GANGWAY_KERNEL_COPIES", c.kernel_copies);
  line("GANGWAY_CUDA_GRAPHS", c.cuda_graphs);
  line("GANGWAY_NCCL_REGISTER", c.nccl_register);
  line("GANGWAY_NCCL_CTA_POLICY", c.nccl_cta_policy);
  line("GANGWAY_CUDA_TUNING", c.cuda_tuning);
  line("GANGWAY_CUDNN", c.cudnn ? "auto" : "0");
  return out;
}

}  // namespace gangway
