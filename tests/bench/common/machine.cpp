#include "common/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "common/copy.h"
#include "common/rank.h"
#include "common/table.h"
#include "device/cpu/openmp.h"
#include "ops/cpu/dnnl_matmul.h"

namespace gangway::bench {
namespace {

std::string field_of_cpuinfo(const std::string& wanted) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.rfind(wanted, 0) == 0 && line.find(':') != std::string::npos)
      return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string sets_of(const std::string& flags) {
  std::istringstream words(flags);
  std::string word, out;
  while (words >> word)
    for (const char* wanted : {"avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "avx512_fp16",
                               "amx_bf16", "amx_tile", "erms", "fsrm"})
      if (word == wanted) out += (out.empty() ? "" : " ") + word;
  return out.empty() ? "none of note" : out;
}

int usable_cores() {
  cpu_set_t may;
  return sched_getaffinity(0, sizeof may, &may) == 0 ? CPU_COUNT(&may) : 1;
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;
Memory memory(size_t bytes) {
  Memory m(static_cast<char*>(std::aligned_alloc(4096, bytes)));
  if (m) bench_fill(reinterpret_cast<float*>(m.get()), bytes / 4, 7);
  return m;
}

// FLOP/s of square products; 0 where oneDNN has no such product.
double gemm_rate(dnnl::memory::data_type dtype) {
  using dnnl::memory;
  double best = 0;
  cpu::set_openmp_threads(1);
  try {
    dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    for (const int64_t n : {512, 1024}) {
      const memory::desc desc({n, n}, dtype, memory::format_tag::ab);
      const memory::desc out({n, n}, memory::data_type::f32, memory::format_tag::ab);
      memory a(desc, engine), b(desc, engine), c(out, engine);
      const size_t item = dtype == memory::data_type::f32 ? 4 : 2;
      for (memory* m : {&a, &b}) std::memset(m->get_data_handle(), 0x3c, static_cast<size_t>(n * n) * item);
      const dnnl::matmul::primitive_desc made = cpu::make_matmul(engine, desc, desc, nullptr, out);
      if (!made) return 0;
      dnnl::matmul product(made);
      for (int i = 0; i < 6; ++i) {
        const double start = bench_seconds();
        product.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
        stream.wait();
        const double dn = static_cast<double>(n);
        best = std::max(best, 2 * dn * dn * dn / (bench_seconds() - start));
      }
    }
  } catch (const dnnl::error&) {
    return 0;
  }
  return best;
}

// Bytes/s of `threads` threads, each copying its own 64 MiB.
double copy_rate(Copy copy, int threads) {
  constexpr size_t kBytes = 64 << 20;
  std::vector<Memory> from, to;
  for (int i = 0; i < threads; ++i) {
    from.push_back(memory(kBytes));
    to.push_back(memory(kBytes));
  }
  double best = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const double start = bench_seconds();
    std::vector<std::thread> all;
    for (int i = 1; i < threads; ++i)
      all.emplace_back([&, i] { copy_bytes(copy, to[size_t(i)].get(), from[size_t(i)].get(), kBytes); });
    copy_bytes(copy, to[0].get(), from[0].get(), kBytes);
    for (std::thread& t : all) t.join();
    best = std::max(best, static_cast<double>(kBytes) * threads / (bench_seconds() - start));
  }
  return best;
}

}  // namespace

double flag_latency(int repeats) {
  if (usable_cores() < 2) return NAN;
  constexpr int kTurns = 5000;
  struct alignas(128) Flag {
    std::atomic<int> value{0};
  };
  Flag ping, pong;
  double best = INFINITY;
  std::thread answers([&] {
    bench_pin(1, 2);
    for (int i = 1; i <= kTurns * repeats; ++i) {
      while (ping.value.load(std::memory_order_acquire) != i) {
      }
      pong.value.store(i, std::memory_order_release);
    }
  });
  std::thread asks([&] {
    bench_pin(0, 2);
    for (int r = 0; r < repeats; ++r) {
      const double start = bench_seconds();
      for (int i = r * kTurns + 1; i <= (r + 1) * kTurns; ++i) {
        ping.value.store(i, std::memory_order_release);
        while (pong.value.load(std::memory_order_acquire) != i) {
        }
      }
      best = std::min(best, (bench_seconds() - start) / kTurns / 2);
    }
  });
  asks.join();
  answers.join();
  return best;
}

Machine probe_machine() {
  Machine m;
  m.processor = field_of_cpuinfo("model name");
  m.instruction_sets = sets_of(field_of_cpuinfo("flags"));
  m.cores = usable_cores();
  m.memory_bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  m.gemm_f32 = gemm_rate(dnnl::memory::data_type::f32);
  m.gemm_bf16 = gemm_rate(dnnl::memory::data_type::bf16);
  for (const Copy copy : kCopies) {
    if (const double rate = copy_rate(copy, 1); rate > m.copy_one) {
      m.copy_one = rate;
      m.copy_method = name(copy);
    }
    m.copy_all = std::max(m.copy_all, copy_rate(copy, m.cores));
  }
  m.flag_latency = flag_latency();
  return m;
}

void print(const Machine& m) {
  std::printf("%s, %d cores, %s bytes, %s\n", m.processor.c_str(), m.cores, size_text(m.memory_bytes).c_str(),
              m.instruction_sets.c_str());
  std::printf(
      "one core: gemm f32 %.0f GFLOP/s, bf16 %s; copy %.1f GB/s (%s), all cores %.1f; flag %s one way\n",
      m.gemm_f32 * 1e-9, m.gemm_bf16 > 0 ? (fixed(m.gemm_bf16 * 1e-9, 0) + " GFLOP/s").c_str() : "none",
      m.copy_one * 1e-9, m.copy_method.c_str(), m.copy_all * 1e-9, duration(m.flag_latency).c_str());
  double loads[1] = {0};
  if (getloadavg(loads, 1) == 1)
    std::printf("load before this run: %.2f%s\n", loads[0], loads[0] > 0.5 ? " (NOT A QUIET MACHINE)" : "");
  std::fflush(stdout);
}

nlohmann::json json_of(const Machine& m) {
  return {{"processor", m.processor},
          {"instruction_sets", m.instruction_sets},
          {"cores", m.cores},
          {"memory_bytes", m.memory_bytes},
          {"gemm_f32_flops", m.gemm_f32},
          {"gemm_bf16_flops", m.gemm_bf16},
          {"copy_one_core", m.copy_one},
          {"copy_all_cores", m.copy_all},
          {"copy_method", m.copy_method},
          {"flag_latency_s", m.flag_latency}};
}

}  // namespace gangway::bench
