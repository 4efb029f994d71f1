// The one file that includes cuDNN's frontend.
#include <cudnn_frontend.h>

#include <exception>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "ops/cuda/cudnn/calls.h"
#include "ops/cuda/cudnn/plans.h"

namespace gangway::cuda {
namespace {

namespace fe = cudnn_frontend;
using FrontendTensor = std::shared_ptr<fe::graph::Tensor_attributes>;

std::string words_of(fe::error_t error) { return error.get_message(); }

int64_t uid(Operand operand) { return 1 + static_cast<int64_t>(operand); }

fe::DataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16: return fe::DataType_t::BFLOAT16;
    case DType::f16: return fe::DataType_t::HALF;
    default: return fe::DataType_t::FLOAT;
  }
}

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char words[1024] = "";
  cudnnGetLastErrorString(words, sizeof(words));
  fail(Code::internal, "cuDNN: ", what, ": ", cudnnGetErrorString(status), words[0] != '\0' ? ": " : "",
       words);
}

class Handle {
 public:
  Handle() { check(cudnnCreate(&handle_), "cudnnCreate"); }
  ~Handle() { cudnnDestroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

void describe(fe::graph::Tensor_attributes& to, const AttentionGraph& graph, Operand operand) {
  const OperandLayout& layout = graph[operand];
  to.set_name(name(operand))
      .set_uid(uid(operand))
      .set_dim({layout.dims.begin(), layout.dims.end()})
      .set_stride({layout.strides.begin(), layout.strides.end()})
      .set_data_type(type_of(layout.dtype));
}

FrontendTensor input(fe::graph::Graph& to, const AttentionGraph& graph, Operand operand) {
  fe::graph::Tensor_attributes tensor;
  describe(tensor, graph, operand);
  return to.tensor(tensor);
}

void output(const FrontendTensor& tensor, const AttentionGraph& graph, Operand operand) {
  tensor->set_output(true);
  describe(*tensor, graph, operand);
}

void add_forward(fe::graph::Graph& to, const AttentionGraph& graph) {
  const bool wants_lse = graph[Operand::lse].present;
  auto how = fe::graph::SDPA_attributes()
                 .set_name("attention")
                 .set_generate_stats(wants_lse)
                 .set_attn_scale(graph.scale);
  if (graph.causal)
    how.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  const auto [out, lse] =
      to.sdpa(input(to, graph, Operand::q), input(to, graph, Operand::k), input(to, graph, Operand::v), how);
  output(out, graph, Operand::out);
  if (wants_lse) output(lse, graph, Operand::lse);
}

void add_backward(fe::graph::Graph& to, const AttentionGraph& graph) {
  auto how = fe::graph::SDPA_backward_attributes()
                 .set_name("attention_backward")
                 .set_attn_scale(graph.scale)
                 .set_deterministic_algorithm(true);
  if (graph.causal)
    how.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  const auto [dq, dk, dv] = to.sdpa_backward(
      input(to, graph, Operand::q), input(to, graph, Operand::k), input(to, graph, Operand::v),
      input(to, graph, Operand::out), input(to, graph, Operand::dout), input(to, graph, Operand::lse), how);
  output(dq, graph, Operand::dq);
  output(dk, graph, Operand::dk);
  output(dv, graph, Operand::dv);
}

class FrontendPlan final : public CudnnPlan {
 public:
  FrontendPlan(std::shared_ptr<Handle> handle, std::unique_ptr<fe::graph::Graph> graph, std::string text)
      : handle_(std::move(handle)), graph_(std::move(graph)), text_(std::move(text)) {
    int64_t bytes = 0;
    if (const fe::error_t error = graph_->get_workspace_size(bytes); error.is_bad())
      fail(Code::internal, "cuDNN: ", text_, ": ", words_of(error));
    workspace_bytes_ = static_cast<size_t>(bytes);
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }
  void run(const AttentionPointers& pointers, void* workspace, cudaStream_t stream) override {
    if (handle_ == nullptr) fail(Code::internal, "cuDNN: ", text_, ": a plan for another machine cannot run");
    check(cudnnSetStream(handle_->get(), stream), "cudnnSetStream");
    std::unordered_map<int64_t, void*> addresses;
    for (size_t o = 0; o < kOperands; ++o)
      if (pointers[o] != nullptr) addresses.emplace(uid(static_cast<Operand>(o)), pointers[o]);
    if (const fe::error_t error = graph_->execute(handle_->get(), addresses, workspace); error.is_bad())
      fail(Code::internal, "cuDNN: ", text_, ": ", words_of(error));
  }

 private:
  const std::shared_ptr<Handle> handle_;
  const std::unique_ptr<fe::graph::Graph> graph_;
  const std::string text_;
  size_t workspace_bytes_ = 0;
};

class FrontendCudnn final : public Cudnn {
 public:
  explicit FrontendCudnn(const CudnnTarget& target) : architecture_(target.architecture) {
    if (target.properties.empty()) {
      handle_ = std::make_shared<Handle>();
      return;
    }
    auto properties = std::make_shared<fe::DeviceProperties>();
    const fe::error_t error = properties->deserialize({target.properties.begin(), target.properties.end()});
    if (error.is_bad()) fail(Code::invalid_argument, "cuDNN: properties of a GPU: ", words_of(error));
    properties_ = std::move(properties);
  }

  std::unique_ptr<CudnnPlan> plan(const AttentionGraph& graph) override {
    try {
      auto made = std::make_unique<fe::graph::Graph>();
      made->set_intermediate_data_type(fe::DataType_t::FLOAT)
          .set_compute_data_type(fe::DataType_t::FLOAT)
          .set_io_data_type(type_of(graph[Operand::q].dtype))
          .set_sm_version(architecture_);
      if (properties_ != nullptr) made->set_device_properties(properties_);
      graph.backward ? add_backward(*made, graph) : add_forward(*made, graph);
      accept(graph, made->validate());
      accept(graph, properties_ != nullptr ? made->build_operation_graph()
                                           : made->build_operation_graph(handle_->get()));
      accept(graph, made->create_execution_plans({fe::HeurMode_t::A}));
      accept(graph, made->check_support());
      accept(graph, made->build_plans());
      return std::make_unique<FrontendPlan>(handle_, std::move(made), graph.text());
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // thrown by the frontend itself, which then has no plan either
      fail(Code::not_supported, "cuDNN: ", graph.text(), ": ", error.what());
    }
  }

 private:
  static void accept(const AttentionGraph& graph, const fe::error_t& error) {
    if (error.is_bad()) fail(Code::not_supported, "cuDNN: ", graph.text(), ": ", words_of(error));
  }

  const int architecture_;
  std::shared_ptr<Handle> handle_;                          // null: plans for a GPU that is not present
  std::shared_ptr<const fe::DeviceProperties> properties_;  // null: the current device
};

}  // namespace

std::unique_ptr<Cudnn> open_cudnn(const CudnnTarget& target) {
  cudnn_api();
  return std::make_unique<FrontendCudnn>(target);
}

std::string describe_cudnn() {
  try {
    return "cuDNN " + cudnn_version_text(cudnn_api().get_version());
  } catch (const Error& error) {
    return error.message();
  }
}

}  // namespace gangway::cuda
