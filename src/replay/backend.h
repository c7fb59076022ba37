// The backend interface: memory, and the vocabulary-wide operations of a replay. One contract, two
// implementations (backends/cpu, backends/cuda); results are the same bits. Work is enqueued in
// order; only download(), synchronize() and wait() wait for it. Throws Error(device) where the
// device fails or is out of memory, Error(internal) for a caller's mistake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/dspark_ops.h"
#include "core/greedy_proposal.h"
#include "core/row_ops.h"
#include "core/sparse_proposal.h"
#include "core/views.h"

namespace dspark {

class Backend;

/// Where owned memory is.
enum class Place : std::uint8_t {
  backend,  ///< the backend's own
  host,  ///< the host's, as copies to and from the backend run fastest with: page-locked where the
         ///< backend has memory of its own
};

/// Owns a block of memory (uninitialised). Movable, not copyable. May not outlive its backend, nor
/// a copy from or to it that is under way.
template <Place kPlace>
class OwnedMemory {
 public:
  OwnedMemory() = default;
  OwnedMemory(Backend& backend, void* data, std::size_t bytes)
      : backend_(&backend), data_(data), bytes_(bytes) {}
  OwnedMemory(OwnedMemory&& other) noexcept { swap(other); }
  OwnedMemory& operator=(OwnedMemory&& other) noexcept {
    OwnedMemory moved(static_cast<OwnedMemory&&>(other));
    swap(moved);
    return *this;
  }
  OwnedMemory(const OwnedMemory&) = delete;
  OwnedMemory& operator=(const OwnedMemory&) = delete;
  ~OwnedMemory();

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  /// The first `count` elements as T; `count` defaults to all that fit.
  template <class T>
  [[nodiscard]] Array<T> as(std::int64_t count = -1) const {
    return {static_cast<T*>(data_),
            count >= 0 ? count : static_cast<std::int64_t>(bytes_ / sizeof(T))};
  }

 private:
  void swap(OwnedMemory& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Backend* backend_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};
using Buffer = OwnedMemory<Place::backend>;
using HostBuffer = OwnedMemory<Place::host>;

/// Work that was recorded once (Backend::record) and can be enqueued again at less cost. May not
/// outlive its backend, nor the memory that the recorded calls were given.
class Recording {
 public:
  Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  virtual ~Recording() = default;
  /// Enqueues the recorded work.
  virtual void replay() = 0;
};

/// What is known of a device beyond its name.
struct DeviceFacts {
  std::size_t cache_bytes = 0;  ///< last cache level (a GPU's L2); 0: not known
  int processors = 0;           ///< multiprocessors of a GPU, threads of the CPU backend
  std::string driver;           ///< newest CUDA that the driver knows, "13.0"; empty on the CPU
  std::string runtime;          ///< CUDA runtime of this build; empty on the CPU
};

/// The two orders of a backend's work: all operations, fill(), upload() and download() run in
/// `operations`, in the order of the calls; `copies` runs beside it. Fences order one behind the
/// other.
enum class Queue : std::uint8_t { operations, copies };

/// A place in a queue, set by Backend::mark(). One that was never marked is passed at once. May not
/// outlive its backend.
class Fence {
 public:
  Fence() = default;
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  virtual ~Fence() = default;
};

class Backend {
 public:
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// "cpu" or "cuda".
  [[nodiscard]] virtual std::string name() const = 0;
  /// A human-readable device name, e.g. "NVIDIA H200".
  [[nodiscard]] virtual std::string device() const = 0;
  /// True if the backend's memory is the host's: operations may be given host pointers, and nothing
  /// needs uploading.
  [[nodiscard]] virtual bool shares_host_memory() const { return false; }
  /// True if Products::tensor runs on tensor cores for operands of these types, whose rows are
  /// `depth` numbers and nothing between them; else it is exact.
  [[nodiscard]] virtual bool has_tensor_products(DType /*a*/, DType /*b*/,
                                                 std::int64_t /*depth*/) const {
    return false;
  }
  /// Bytes that can still be allocated.
  [[nodiscard]] virtual std::size_t free_memory() const = 0;
  /// Cache, processors and versions.
  [[nodiscard]] virtual DeviceFacts facts() const = 0;

  // --- memory ---
  /// `bytes` of uninitialised memory, 256-byte aligned. Throws Error(device) naming the size if
  /// there is not enough.
  [[nodiscard]] Buffer allocate(std::size_t bytes);
  /// Copies host memory to `target` (backend memory). The host memory may be reused on return.
  virtual void upload(void* target, const void* source, std::size_t bytes) = 0;
  /// Copies backend memory to the host; waits for everything enqueued before.
  virtual void download(void* target, const void* source, std::size_t bytes) = 0;
  /// Sets `bytes` to `value`; enqueued.
  virtual void fill(void* target, int value, std::size_t bytes) = 0;
  /// Copies within the backend's memory, where the two may not overlap; enqueued.
  virtual void copy(void* target, const void* source, std::size_t bytes) = 0;
  /// Waits for everything enqueued and throws what it failed with.
  virtual void synchronize() = 0;

  // --- repeating and timing ---
  /// Records the operations that `enqueue` calls, without running them, for many replays (CUDA: a
  /// graph; CPU: `enqueue` itself is kept, with what it captured). The same calls must have been
  /// made once before, so that the backend's workspace has the size they need; of the memory
  /// functions only fill() and copy() may be among them. Where a call needs memory, waits, uploads
  /// or downloads, the CUDA backend throws Error(internal) and nothing stays recorded.
  [[nodiscard]] virtual std::unique_ptr<Recording> record(const std::function<void()>& enqueue) = 0;
  /// Milliseconds that the device needs for what `enqueue` enqueues, from the end of what was
  /// enqueued before (CUDA: between two events in the stream; CPU: by the steady clock). Waits.
  [[nodiscard]] virtual double measure(const std::function<void()>& enqueue) = 0;

  // --- row operations of the reduce stage (core/row_ops.h) ---
  virtual void project(const ProjectArgs& args) = 0;
  virtual void widen(const WidenArgs& args) = 0;
  virtual void markov_rows(const MarkovRowsArgs& args) = 0;
  virtual void draft_rows(const DraftRowsArgs& args) = 0;
  virtual void confidence_rows(const ConfidenceRowsArgs& args) = 0;
  virtual void row_laws(const RowLawsArgs& args) = 0;
  virtual void compare_pairs(const ComparePairsArgs& args) = 0;
  virtual void sample_rows(const SampleRowsArgs& args) = 0;
  virtual void sample_excess(const SampleExcessArgs& args) = 0;

  // --- copies that nobody waits for ---
  // Where host memory is shared all of these are done on return.
  /// `bytes` of host memory, 256-byte aligned. Throws Error(device) naming the size if there is not
  /// enough.
  [[nodiscard]] HostBuffer allocate_host(std::size_t bytes);
  /// Enqueues a copy from allocate_host()'s memory to `target` (backend memory) in `queue`. Does
  /// not wait: `source` must stay as it is until a fence behind the copy is passed.
  virtual void enqueue_upload(Queue queue, void* target, const void* source, std::size_t bytes);
  /// Enqueues a copy from backend memory to allocate_host()'s memory behind the operations so far.
  /// Does not wait: `target` is not to be looked at before a fence behind the copy is passed.
  virtual void enqueue_download(void* target, const void* source, std::size_t bytes);
  [[nodiscard]] virtual std::unique_ptr<Fence> make_fence();
  /// Sets `fence` behind all that is in `queue` so far; does not wait.
  virtual void mark(Queue queue, Fence& fence);
  /// Lets what is enqueued in `queue` from now on wait until `fence` is passed; the caller does not
  /// wait.
  virtual void hold(Queue queue, const Fence& fence);
  /// Waits until `fence` is passed, and throws what the work before it failed with.
  virtual void wait(const Fence& fence);

  // --- the DSpark runtime functions (core/dspark_ops.h) ---
  virtual void build_verify_tokens(const BuildVerifyTokensArgs& args) = 0;
  virtual void fill_proposal_lengths(const FillProposalLengthsArgs& args) = 0;
  virtual void greedy_accept(const GreedyAcceptArgs& args) = 0;
  virtual void confidence_scores(const ConfidenceScoresArgs& args) = 0;
  virtual void threshold_lengths(const ThresholdLengthsArgs& args) = 0;
  virtual void sps_lengths(const SpsLengthsArgs& args) = 0;
  virtual void batch_schedule(const BatchScheduleArgs& args) = 0;
  virtual void logits_to_probabilities(const LogitsToProbabilitiesArgs& args) = 0;
  virtual void fill_uniforms(const FillUniformsArgs& args) = 0;
  virtual void build_markov_logits(const BuildMarkovLogitsArgs& args) = 0;
  virtual void sample_probability_rows(const SampleProbabilityRowsArgs& args) = 0;
  virtual void store_draft_step_probabilities(const StoreDraftStepProbabilitiesArgs& args) = 0;
  virtual void vanilla_markov_sample(const VanillaMarkovSampleArgs& args) = 0;
  virtual void probabilistic_accept(const ProbabilisticAcceptArgs& args) = 0;

  // --- the greedy proposal (core/greedy_proposal.h) ---
  virtual void quantize_markov_w2(const QuantizeMarkovW2Args& args) = 0;
  virtual void markov_greedy_step(const MarkovGreedyStepArgs& args) = 0;
  virtual void finalize_greedy_draft_tokens(const FinalizeGreedyDraftTokensArgs& args) = 0;
  virtual void greedy_propose(const GreedyProposeArgs& args) = 0;

  // --- the sparse proposal (core/sparse_proposal.h) ---
  virtual void select_top_k(const SelectTopKArgs& args) = 0;
  virtual void normalize_top_k_rows(const NormalizeTopKRowsArgs& args) = 0;
  virtual void store_draft_step_top1(const StoreDraftStepTop1Args& args) = 0;
  virtual void sample_top_k_rows(const SampleTopKRowsArgs& args) = 0;

 protected:
  Backend() = default;

 private:
  template <Place>
  friend class OwnedMemory;
  /// Returns null if there is not enough memory.
  virtual void* allocate_bytes(std::size_t bytes) = 0;
  virtual void free_bytes(void* data) noexcept = 0;
  /// The same for host memory; by default that of the host's allocator.
  virtual void* allocate_host_bytes(std::size_t bytes);
  virtual void free_host_bytes(void* data) noexcept;
};

/// Checks the host-side numbers of a call (null pointers, negative sizes, strides shorter than
/// rows, mismatched shapes) and throws Error(internal) naming the function; both backends call
/// these first, so that the contract is one.
void check(const ProjectArgs& args);
void check(const WidenArgs& args);
void check(const MarkovRowsArgs& args);
void check(const DraftRowsArgs& args);
void check(const ConfidenceRowsArgs& args);
void check(const RowLawsArgs& args);
void check(const ComparePairsArgs& args);
void check(const SampleRowsArgs& args);
void check(const SampleExcessArgs& args);
void check(const BuildVerifyTokensArgs& args);
void check(const FillProposalLengthsArgs& args);
void check(const GreedyAcceptArgs& args);
void check(const ConfidenceScoresArgs& args);
void check(const ThresholdLengthsArgs& args);
void check(const SpsLengthsArgs& args);
void check(const BatchScheduleArgs& args);
void check(const LogitsToProbabilitiesArgs& args);
void check(const FillUniformsArgs& args);
void check(const BuildMarkovLogitsArgs& args);
void check(const SampleProbabilityRowsArgs& args);
void check(const StoreDraftStepProbabilitiesArgs& args);
void check(const VanillaMarkovSampleArgs& args);
void check(const ProbabilisticAcceptArgs& args);
void check(const QuantizeMarkovW2Args& args);
void check(const MarkovGreedyStepArgs& args);
void check(const FinalizeGreedyDraftTokensArgs& args);
void check(const GreedyProposeArgs& args);
void check(const SelectTopKArgs& args);
void check(const NormalizeTopKRowsArgs& args);
void check(const StoreDraftStepTop1Args& args);
void check(const SampleTopKRowsArgs& args);

}  // namespace dspark
