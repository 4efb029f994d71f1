#include "base/error.h"
#include "ops/cuda/cudnn/plans.h"

namespace gangway::cuda {
namespace {

constexpr char kWords[] = "cuDNN is not built in: cudnn.h or cudnn_frontend.h was not there";

}  // namespace

std::unique_ptr<Cudnn> open_cudnn(const CudnnTarget&) { fail(Code::not_supported, kWords); }

std::string describe_cudnn() { return kWords; }

}  // namespace gangway::cuda
