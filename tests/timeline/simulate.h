// When each entry of the ranks' logs would begin and end on GPUs of given rates: streams in their order, events, the host
// that launches and waits, collectives that begin when all ranks' streams have come to them. Kernels of a device run one
// at a time; collectives in flight on a device share its links evenly, and take no time from kernels.
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gpu_emulation/log.h"

namespace gangway::timeline {

// What one kernel does in a second. 0: this does not limit the kernel.
struct KernelRate {
  double flops = 0, bytes = 0;
};

// Of one GPU: an H200's peaks, and the shares of them that are reached. Faster kernels leave less to hide communication
// behind, so high shares are the cautious choice.
struct Rates {
  double peak = 989e12;           // flop/s of dense products in bf16
  double product_share = 0.75;    // of cuBLASLt's products
  double attention_share = 0.55;  // of kernels with flops of their own
  double memory = 4.0e12;         // byte/s; 4.8e12 at most
  double link = 450e9;            // byte/s each way, to all peers together
  double collective_s = 20e-6;    // latency of a collective
  double kernel_s = 2e-6;         // of a kernel with nothing to do
  double launch_s = 4e-6;         // of the host, for a kernel, copy or product
  double collective_launch_s = 12e-6, event_s = 1e-6;
  double host_wait_s = 10e-6;                 // until the host goes on
  std::map<std::string, KernelRate> kernels;  // by name, of the module's own kernels (kernel_rates.h)
};

struct Span {
  double issued = 0, start = 0, end = 0;  // seconds; start: of a collective, when this rank came to it
  double met = 0;                         // when all ranks had
};

struct RankTimes {
  std::vector<Span> spans;  // of the log's entries
  double compute = 0;       // kernels and products run
  double exposed = 0;       // none runs, but a collective does or waits for peers
  double idle = 0;          // neither
};
struct StepTimes {
  std::vector<RankTimes> ranks;
  double length = 0;  // to the end of the last work of any rank
};

// Throws if the logs wait for what never comes.
StepTimes simulate(const std::vector<std::vector<gpu_emulation::Entry>>& ranks, const Rates& rates);

// Seconds of a kernel, product, copy or memset alone.
double seconds_of(const gpu_emulation::Entry& entry, const Rates& rates);
bool computes(const gpu_emulation::Entry& entry);  // a kernel or a product
int host_waits(const std::vector<gpu_emulation::Entry>& rank);

}  // namespace gangway::timeline
