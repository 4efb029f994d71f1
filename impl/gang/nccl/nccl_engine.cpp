#include "gang/nccl/nccl_engine.h"

#include "gang/nccl/one_rank_engine.h"

namespace gangway::nccl {

std::vector<std::shared_ptr<Engine>> make_data_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                       std::span<const std::shared_ptr<Engine>>,
                                                       const EngineOptions& options, Add add) {
  if (options.size == 1) return {make_one_rank_engine(ranks[0], add)};
  fail(Code::not_supported, "gangs of several CUDA devices are not in this version");
}

}  // namespace gangway::nccl
