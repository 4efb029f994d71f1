#include "timeline/phases.h"

#include <map>

namespace gangway::timeline {
namespace {

using gpu_emulation::Entry;
using gpu_emulation::Work;

enum Place : size_t {
  products,
  head,
  attention,
  attention_backward,
  small_kernels,
  norm_of_gradients,
  optimizer,
  other_kernels,
  exposed,
  neither,
  count
};
constexpr const char* kNames[count] = {"products of the blocks",
                                       "head and loss",
                                       "attention forward",
                                       "attention backward",
                                       "norms, rotary, SwiGLU, embedding, casts, adds",
                                       "finite check and norm of the gradients",
                                       "optimizer",
                                       "other kernels",
                                       "exposed communication",
                                       "neither (host, launches, copies)"};

Place place_of(const Entry& e, uint64_t vocabulary) {
  if (e.work == Work::product)
    return e.m == vocabulary || e.n == vocabulary || e.k == vocabulary ? head : products;
  static const std::map<std::string, Place> places = {
      {"head_loss", head},
      {"attention", attention},
      {"attention_along", attention_backward},
      {"attention_dq", attention_backward},
      {"attention_dkv", attention_backward},
      {"rmsnorm", small_kernels},
      {"rmsnorm_backward", small_kernels},
      {"add_partials", small_kernels},
      {"rope", small_kernels},
      {"swiglu", small_kernels},
      {"swiglu_backward", small_kernels},
      {"embedding", small_kernels},
      {"embedding_backward", small_kernels},
      {"cast", small_kernels},
      {"add", small_kernels},
      {"norm_power", norm_of_gradients},
      {"adamw", optimizer},
  };
  const auto found = places.find(e.name);
  return found != places.end() ? found->second : other_kernels;
}

}  // namespace

std::vector<Phase> phases(const std::vector<Entry>& rank, const RankTimes& times, uint64_t vocabulary) {
  std::vector<Phase> all;
  for (const char* const name : kNames) all.push_back({name, 0});
  for (size_t i = 0; i < rank.size(); ++i)
    if (computes(rank[i]))
      all[place_of(rank[i], vocabulary)].seconds += times.spans[i].end - times.spans[i].start;
  all[exposed].seconds = times.exposed;
  all[neither].seconds = times.idle;
  return all;
}

}  // namespace gangway::timeline
