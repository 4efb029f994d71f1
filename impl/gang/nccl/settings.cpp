#include "gang/nccl/settings.h"

#include <array>
#include <atomic>

#include "base/config.h"
#include "base/log.h"

namespace gangway::nccl {
namespace {

constexpr int kFirstPolicies = 22700, kFirstZero = 22800;
constexpr int kFirstWithoutPlainWindows = 22900;  // makes a symmetric window, or none

template <typename Config>
constexpr bool knows_policy(const Config* config) {
  return requires { config->CTAPolicy; };
}
template <typename Config>
void set_policy(Config& config, int policy) {
  if constexpr (requires { config.CTAPolicy; }) config.CTAPolicy = policy;
}
constexpr bool kHeadersKnowPolicy = knows_policy(static_cast<const ncclConfig_t*>(nullptr));

// Logs a text once in a process.
void log_once(std::atomic<bool>& logged, const std::string& words, LogLevel level = LogLevel::info) {
  if (!logged.exchange(true)) log(level, "engine \"nccl\": " + words);
}

int policy_of(const std::string& name) {
  const int wanted = name == "zero" ? kZeroPolicy : name == "efficiency" ? kEfficiencyPolicy : kDefaultPolicy;
  const int version = api().version;
  static std::atomic<bool> logged = false;
  if (version < kFirstPolicies || !kHeadersKnowPolicy) {
    if (wanted != kDefaultPolicy)
      log_once(logged, text("NCCL ", version_text(version),
                            " or its headers at build time know no CTA policy (2.27 does), so "
                            "GANGWAY_NCCL_CTA_POLICY = ",
                            name, " changes nothing"));
    return kNoPolicy;
  }
  if (wanted == kZeroPolicy && version < kFirstZero) {
    log_once(logged, text("NCCL ", version_text(version),
                          " has no CTA policy zero (2.28 has), so GANGWAY_NCCL_CTA_POLICY is efficiency"));
    return kEfficiencyPolicy;
  }
  return wanted;
}

std::string words_of(Registered how) {
  switch (how) {
    case Registered::windows:
      return text("moves the buffers of sharded training in ",
                  api().version >= kFirstWithoutPlainWindows
                      ? "symmetric windows"
                      : "windows, which are symmetric if every GPU reaches the memory of the others (this "
                        "version does not say whether)",
                  "; where its kernels for symmetric windows run, it sums 16-bit gradients in f32");
    case Registered::buffers:
      return "moves the buffers of sharded training in registered memory, without windows; it rounds sums of "
             "16-bit gradients at each hop";
    case Registered::none: break;
  }
  return "registers no buffers of sharded training; it rounds sums of 16-bit gradients at each hop";
}

}  // namespace

Settings settings_for(Rank& rank) {
  const Config config = read_config();  // so that a program may change it between two gangs
  Settings settings;
  if (config.nccl_register != 0 && api().registers())
    settings.memory = std::make_shared<RegisteredMemory>(rank.device_ptr(), config.nccl_register);
  else
    tell(Registered::none);
  settings.cta_policy = policy_of(config.nccl_cta_policy);
  return settings;
}

void set_cta_policy(ncclConfig_t& config, int policy) {
  if (policy != kNoPolicy) set_policy(config, policy);
}

void tell(Registered how) {
  static std::array<std::atomic<bool>, 3> logged{};
  log_once(logged[static_cast<size_t>(how)], text("NCCL ", version_text(api().version), " ", words_of(how)));
}

void tell_failure(Registered how, const Verdict& verdict, int ranks) {
  static std::array<std::atomic<bool>, 3> logged{};
  log_once(logged[static_cast<size_t>(how)],
           text("NCCL ", version_text(api().version), " failed to register buffers of sharded training ",
                how == Registered::windows ? "in windows" : "without windows", " on rank ", verdict.failed,
                " of ", ranks, ": ", api().get_error_string(verdict.why), "; the gang goes on ",
                how == Registered::windows ? "without windows" : "with memory that is not registered",
                " (GANGWAY_NCCL_REGISTER=0 registers none)"),
           LogLevel::warning);
}

std::string describe() try {
  const Config config = read_config();
  const bool registers = config.nccl_register != 0 && api().registers();
  const char* const how = !registers                    ? "none is registered"
                          : api().add_window == nullptr ? "registered, without windows"
                                                        : "in symmetric windows where the links allow them";
  return text("  NCCL ", version_text(api().version), "\n  buffers of sharded training from ",
              config.nccl_register, " bytes on (GANGWAY_NCCL_REGISTER): ", how, "\n  CTA policy ",
              config.nccl_cta_policy, " (GANGWAY_NCCL_CTA_POLICY)",
              api().version < kFirstPolicies || !kHeadersKnowPolicy ? ", which this NCCL does not know" : "",
              "\n");
} catch (const Error& error) {
  return text("  ", error.message(), "\n");
}

}  // namespace gangway::nccl
