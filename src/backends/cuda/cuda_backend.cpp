#include "backends/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include "backends/cuda/cuda_memory.h"
#include "kernels/accept/greedy_accept.h"
#include "kernels/accept/probabilistic_accept.h"
#include "kernels/accept/verify_tokens.h"
#include "kernels/common/check.h"
#include "kernels/confidence/confidence.h"
#include "kernels/proposal/greedy.h"
#include "kernels/proposal/proposal.h"
#include "kernels/proposal/quantize.h"
#include "kernels/rows/compare_pairs.h"
#include "kernels/rows/draft_rows.h"
#include "kernels/rows/markov_rows.h"
#include "kernels/rows/project.h"
#include "kernels/rows/row_laws.h"
#include "kernels/rows/sample_rows.h"
#include "kernels/rows/widen.h"
#include "kernels/sampling/probabilities.h"
#include "kernels/sampling/sample_probability_rows.h"
#include "kernels/sampling/uniforms.h"
#include "kernels/schedule/batch_schedule.h"
#include "kernels/schedule/schedule.h"
#include "kernels/sparse/select_top_k.h"
#include "kernels/sparse/top_k_rows.h"
#include "kernels/tensor/tensor_product.h"
#include "support/error.h"

namespace dspark {
namespace {

constexpr int kDevice = 0;

std::string device_name() {
  cudaDeviceProp properties;
  DSPARK_CUDA_CHECK(cudaGetDeviceProperties(&properties, kDevice));
  return properties.name;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// A runnable graph. What the workspace was when it was recorded stays until it is gone.
class CudaRecording final : public Recording {
 public:
  CudaRecording(cudaGraphExec_t graph, cudaStream_t stream, cuda::Workspace& workspace)
      : graph_(graph), stream_(stream), workspace_(workspace) {
    workspace_.pin();
  }
  ~CudaRecording() override {
    // A graph that still runs may not be destroyed everywhere, and its workspace is given back.
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(cudaGraphExecDestroy(graph_));
    workspace_.unpin();
  }
  void replay() override { DSPARK_CUDA_CHECK(cudaGraphLaunch(graph_, stream_)); }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
  cuda::Workspace& workspace_;
};

/// An event that keeps no time.
class CudaFence final : public Fence {
 public:
  CudaFence() { DSPARK_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~CudaFence() override { static_cast<void>(cudaEventDestroy(event_)); }
  [[nodiscard]] cudaEvent_t event() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

cudaEvent_t event_of(const Fence& fence) { return static_cast<const CudaFence&>(fence).event(); }

/// One device, two streams: operations run in the order of the calls, copies beside them.
class CudaBackend final : public Backend {
 public:
  CudaBackend()
      : device_(device_name()),
        memory_(kDevice, stream_.get()),
        workspace_(memory_),
        tickets_(memory_, kernels::kGreedyAcceptTickets, stream_.get()) {}

  ~CudaBackend() override {
    // Buffers and workspace are given back in stream order; what is enqueued may still use them.
    static_cast<void>(cudaStreamSynchronize(copies_.get()));
    static_cast<void>(cudaStreamSynchronize(stream_.get()));
  }

  std::string name() const override { return "cuda"; }
  std::string device() const override { return device_; }
  bool has_tensor_products(DType a, DType b, std::int64_t depth) const override {
    return tensor_cores_ && a == b && a != DType::f32 && depth % 8 == 0;
  }
  std::size_t free_memory() const override { return memory_.free_bytes(); }
  DeviceFacts facts() const override {
    int cache = 0;
    int processors = 0;
    int driver = 0;
    DSPARK_CUDA_CHECK(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, kDevice));
    DSPARK_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, kDevice));
    DSPARK_CUDA_CHECK(cudaDriverGetVersion(&driver));
    return {static_cast<std::size_t>(cache), processors, version_text(driver),
            version_text(CUDART_VERSION)};
  }

  void upload(void* target, const void* source, std::size_t bytes) override {
    refuse_while_recording("upload");
    staging_.upload(target, source, bytes, stream());
  }
  void download(void* target, const void* source, std::size_t bytes) override {
    refuse_while_recording("download");
    if (bytes > 0) {
      DSPARK_CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, stream()));
    }
    stream_.synchronize();
  }
  void fill(void* target, int value, std::size_t bytes) override {
    if (bytes > 0) DSPARK_CUDA_CHECK(cudaMemsetAsync(target, value, bytes, stream()));
  }
  void copy(void* target, const void* source, std::size_t bytes) override {
    if (bytes > 0) {
      DSPARK_CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, stream()));
    }
  }
  void synchronize() override {
    refuse_while_recording("synchronize");
    copies_.synchronize();
    stream_.synchronize();
  }

  std::unique_ptr<Recording> record(const std::function<void()>& enqueue) override {
    refuse_while_recording("record");
    cuda::Capture capture(stream());
    const RecordingMark mark(*this);
    enqueue();
    return std::make_unique<CudaRecording>(capture.finish(), stream(), workspace_);
  }
  double measure(const std::function<void()>& enqueue) override {
    refuse_while_recording("measure");
    const cuda::Event begin;
    const cuda::Event end;
    begin.record(stream());
    enqueue();
    end.record(stream());
    return end.milliseconds_since(begin);
  }

  void enqueue_upload(Queue queue, void* target, const void* source, std::size_t bytes) override {
    if (bytes == 0) return;
    DSPARK_CUDA_CHECK(
        cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, stream_of(queue)));
  }
  void enqueue_download(void* target, const void* source, std::size_t bytes) override {
    if (bytes == 0) return;
    DSPARK_CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, stream()));
  }
  std::unique_ptr<Fence> make_fence() override { return std::make_unique<CudaFence>(); }
  void mark(Queue queue, Fence& fence) override {
    DSPARK_CUDA_CHECK(cudaEventRecord(event_of(fence), stream_of(queue)));
  }
  void hold(Queue queue, const Fence& fence) override {
    DSPARK_CUDA_CHECK(cudaStreamWaitEvent(stream_of(queue), event_of(fence), 0));
  }
  void wait(const Fence& fence) override {
    DSPARK_CUDA_CHECK(cudaEventSynchronize(event_of(fence)));
  }

  void project(const ProjectArgs& args) override {
    check(args);
    kernels::project(args, stream());
  }
  void widen(const WidenArgs& args) override {
    check(args);
    kernels::widen(args, stream());
  }
  void markov_rows(const MarkovRowsArgs& args) override {
    check(args);
    kernels::markov_rows(args, stream());
  }
  void draft_rows(const DraftRowsArgs& args) override {
    check(args);
    kernels::draft_rows(args, workspace_.get(kernels::draft_rows_workspace(args)), stream());
  }
  void confidence_rows(const ConfidenceRowsArgs& args) override {
    check(args);
    kernels::confidence_rows(args, stream());
  }
  void row_laws(const RowLawsArgs& args) override {
    check(args);
    kernels::row_laws(args, law_workspace(args.logits.rows, args.rule), stream());
  }
  void compare_pairs(const ComparePairsArgs& args) override {
    check(args);
    kernels::compare_pairs(args, stream());
  }
  void sample_rows(const SampleRowsArgs& args) override {
    check(args);
    kernels::sample_rows(args, workspace_.get(kernels::sample_rows_workspace(args)), stream());
  }
  void sample_excess(const SampleExcessArgs& args) override {
    check(args);
    kernels::sample_excess(args, workspace_.get(kernels::sample_excess_workspace(args)), stream());
  }

  void build_verify_tokens(const BuildVerifyTokensArgs& args) override {
    check(args);
    kernels::build_verify_tokens(args, stream());
  }
  void fill_proposal_lengths(const FillProposalLengthsArgs& args) override {
    check(args);
    kernels::fill_proposal_lengths(args, stream());
  }
  void greedy_accept(const GreedyAcceptArgs& args) override {
    check(args);
    kernels::greedy_accept(args, tickets_.get(), stream());
  }
  void confidence_scores(const ConfidenceScoresArgs& args) override {
    check(args);
    kernels::confidence_scores(args, stream());
  }
  void threshold_lengths(const ThresholdLengthsArgs& args) override {
    check(args);
    kernels::threshold_lengths(args, stream());
  }
  void sps_lengths(const SpsLengthsArgs& args) override {
    check(args);
    kernels::sps_lengths(args, stream());
  }
  void batch_schedule(const BatchScheduleArgs& args) override {
    check(args);
    kernels::batch_schedule(args, workspace_.get(kernels::batch_schedule_workspace(args)),
                            stream());
  }
  void logits_to_probabilities(const LogitsToProbabilitiesArgs& args) override {
    check(args);
    kernels::logits_to_probabilities(args, law_workspace(args.logits.rows, args.rule), nullptr,
                                     stream());
  }
  void fill_uniforms(const FillUniformsArgs& args) override {
    check(args);
    kernels::fill_uniforms(args, stream());
  }
  void build_markov_logits(const BuildMarkovLogitsArgs& args) override {
    check(args);
    kernels::build_markov_logits(args, stream());
  }
  void sample_probability_rows(const SampleProbabilityRowsArgs& args) override {
    check(args);
    kernels::sample_probability_rows(args, stream());
  }
  void store_draft_step_probabilities(const StoreDraftStepProbabilitiesArgs& args) override {
    check(args);
    kernels::store_draft_step_probabilities(args, stream());
  }
  void vanilla_markov_sample(const VanillaMarkovSampleArgs& args) override {
    check(args);
    kernels::vanilla_markov_sample(args, law_workspace(args.batch, args.rule), stream());
  }
  void probabilistic_accept(const ProbabilisticAcceptArgs& args) override {
    check(args);
    kernels::probabilistic_accept(args, stream());
  }
  void quantize_markov_w2(const QuantizeMarkovW2Args& args) override {
    check(args);
    kernels::quantize_markov_w2(args, stream());
  }
  void markov_greedy_step(const MarkovGreedyStepArgs& args) override {
    check(args);
    kernels::markov_greedy_step(args, stream());
  }
  void finalize_greedy_draft_tokens(const FinalizeGreedyDraftTokensArgs& args) override {
    check(args);
    kernels::finalize_greedy_draft_tokens(args, stream());
  }
  void greedy_propose(const GreedyProposeArgs& args) override {
    check(args);
    kernels::greedy_propose(args, stream());
  }
  void select_top_k(const SelectTopKArgs& args) override {
    check(args);
    kernels::select_top_k(args, stream());
  }
  void normalize_top_k_rows(const NormalizeTopKRowsArgs& args) override {
    check(args);
    kernels::normalize_top_k_rows(args, stream());
  }
  void store_draft_step_top1(const StoreDraftStepTop1Args& args) override {
    check(args);
    kernels::store_draft_step_top1(args, stream());
  }
  void sample_top_k_rows(const SampleTopKRowsArgs& args) override {
    check(args);
    kernels::sample_top_k_rows(args, stream());
  }

 private:
  /// Notes that calls are recorded, not run.
  class RecordingMark {
   public:
    explicit RecordingMark(CudaBackend& backend) : backend_(backend) {
      backend_.recording_ = true;
      backend_.workspace_.begin_recording();
    }
    ~RecordingMark() {
      backend_.recording_ = false;
      backend_.workspace_.end_recording();
    }
    RecordingMark(const RecordingMark&) = delete;
    RecordingMark& operator=(const RecordingMark&) = delete;

   private:
    CudaBackend& backend_;
  };

  void refuse_while_recording(const char* function) const {
    if (!recording_) return;
    throw internal_error("cuda backend",
                         std::string(function) + " was called while work is recorded",
                         "this is a mistake in the program, report it");
  }

  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.get(); }
  [[nodiscard]] cudaStream_t stream_of(Queue queue) const noexcept {
    return queue == Queue::copies ? copies_.get() : stream_.get();
  }

  Scratch law_workspace(std::int64_t rows, const SamplingRule& rule) {
    return workspace_.get(kernels::row_laws_workspace(rows, rule));
  }

  void* allocate_bytes(std::size_t bytes) override {
    refuse_while_recording("allocate");
    return memory_.allocate(bytes);
  }
  void free_bytes(void* data) noexcept override { memory_.release(data); }
  void* allocate_host_bytes(std::size_t bytes) override {
    return cuda::allocate_page_locked(bytes);
  }
  void free_host_bytes(void* data) noexcept override { static_cast<void>(cudaFreeHost(data)); }

  // In this order: memory goes back in the stream's order, so the stream is destroyed last.
  std::string device_;
  bool tensor_cores_ = kernels::tensor_kernel().has_value();
  cuda::Stream stream_;
  cuda::Stream copies_;
  cuda::DeviceMemory memory_;
  cuda::Staging staging_;
  cuda::Workspace workspace_;
  cuda::ZeroedWords tickets_;
  bool recording_ = false;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend() {
  const std::string reason = cuda_unavailable_reason();
  if (!reason.empty()) {
    throw device_error("cuda backend", reason, "use --backend cpu, or a machine with a usable GPU");
  }
  DSPARK_CUDA_CHECK(cudaSetDevice(kDevice));
  return std::make_unique<CudaBackend>();
}

}  // namespace dspark
