// Checks and times the products on tensor cores (kernels/tensor) on the device of this machine:
// both kernels and the exact chain against 64-bit sums, rows against the same rows in larger calls,
// and then how long they take. No arguments; exit status 1 where something is wrong.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <vector>

#include "kernels/common/launch.cuh"
#include "kernels/rows/draft_rows.h"
#include "kernels/rows/project.h"
#include "kernels/tensor/tensor_product.h"

namespace dspark::bench {
namespace {

using kernels::grid_for_items;
using kernels::grid_of;
using kernels::kThreads;
using kernels::TensorKernel;
using kernels::TensorProduct;

constexpr std::int64_t kMaxRows = 8192;
constexpr std::int64_t kBigRows = 2048;
constexpr std::int32_t kVocab = 151936;
constexpr std::int64_t kDepth = 4096;
constexpr std::int64_t kRank = 256;
constexpr std::uint32_t kUnwritten = 0x7FC5A5A5u;
/// Largest |out - exact| in units of Σ|a · b| that is taken.
constexpr double kBound = 0x1p-20;

bool all_good = true;

void expect(bool holds, const char* what) {
  if (holds) return;
  all_good = false;
  std::printf("WRONG: %s\n", what);
}

// --- device code ------------------------------------------------------------------------------

__host__ __device__ inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// About normal numbers.
__global__ void fill_kernel(__half* data, std::int64_t count, std::uint64_t seed, float scale) {
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::uint64_t bits = mixed(seed + static_cast<std::uint64_t>(i));
    float sum = 0;
    for (int part = 0; part < 4; ++part) {
      sum += static_cast<float>((bits >> (16 * part)) & 0xFFFFu) * 0x1p-16f;
    }
    data[i] = __float2half((sum - 2.0f) * 1.7320508f * scale);
  }
}

/// A product as the checks see it; `index` and `index2` name the rows of a and a2, or are null.
struct Checked {
  const __half* a;
  std::int64_t a_stride;
  const std::int32_t* index;
  const __half* b;
  std::int64_t b_stride;
  std::int64_t depth;
  const __half* a2;
  const std::int32_t* index2;
  const __half* b2;
  std::int64_t depth2;
  Rows out;
};

/// One warp per sample: the largest |out - exact| / Σ|a · b|, as the bits of a float.
__global__ void error_kernel(Checked at, std::int64_t samples, std::uint32_t* worst) {
  const std::int64_t sample =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (sample >= samples) return;
  std::int64_t m = static_cast<std::int64_t>(mixed(2 * sample) % at.out.rows);
  std::int64_t n = static_cast<std::int64_t>(mixed(2 * sample + 1) % at.out.vocab);
  if (sample % 64 == 0) m = at.out.rows - 1;
  if (sample % 64 <= 1) n = at.out.vocab - 1;
  if (at.index2 != nullptr && at.index2[m] < 0) return;
  double sum = 0;
  double size = 0;
  const auto add = [&](const __half* a, const __half* b, std::int64_t depth) {
    for (std::int64_t k = lane; k < depth; k += 32) {
      const double product = static_cast<double>(__half2float(a[k])) * __half2float(b[k]);
      sum += product;
      size += fabs(product);
    }
  };
  add(at.a + (at.index != nullptr ? at.index[m] : m) * at.a_stride, at.b + n * at.b_stride,
      at.depth);
  if (at.depth2 > 0) add(at.a2 + at.index2[m] * at.depth2, at.b2 + n * at.depth2, at.depth2);
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    size += __shfl_xor_sync(0xFFFFFFFFu, size, step);
  }
  if (lane != 0) return;
  const float got = at.out.data[m * at.out.stride + n];
  float error = static_cast<float>(fabs(got - sum) / size);
  if (!(error >= 0)) error = __int_as_float(0x7F800000);  // NaN: as bad as can be
  atomicMax(worst, __float_as_uint(error));
}

/// How many outputs differ in their bits.
__global__ void difference_kernel(Rows a, Rows b, unsigned long long* different) {
  const std::int64_t m = blockIdx.x;
  unsigned long long count = 0;
  for (std::int32_t n = static_cast<std::int32_t>(threadIdx.x); n < a.vocab; n += blockDim.x) {
    if (__float_as_uint(a.data[m * a.stride + n]) != __float_as_uint(b.data[m * b.stride + n])) {
      ++count;
    }
  }
  if (count > 0) atomicAdd(different, count);
}

/// How many floats of [begin, end) of each row are not the mark for what was never written.
__global__ void written_kernel(Rows rows, std::int64_t begin, std::int64_t end,
                               unsigned long long* written) {
  const std::int64_t m = blockIdx.x;
  unsigned long long count = 0;
  for (std::int64_t n = begin + threadIdx.x; n < end; n += blockDim.x) {
    if (__float_as_uint(rows.data[m * rows.stride + n]) != kUnwritten) ++count;
  }
  if (count > 0) atomicAdd(written, count);
}

__global__ void mark_kernel(std::uint32_t* data, std::int64_t count) {
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    data[i] = kUnwritten;
  }
}

// --- host helpers -----------------------------------------------------------------------------

template <class T>
class Memory {
 public:
  explicit Memory(std::int64_t count) : count_(count) {
    DSPARK_CUDA_CHECK(cudaMalloc(&data_, static_cast<std::size_t>(count) * sizeof(T)));
  }
  explicit Memory(const std::vector<T>& values) : Memory(static_cast<std::int64_t>(values.size())) {
    DSPARK_CUDA_CHECK(
        cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Memory() { static_cast<void>(cudaFree(data_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  T* data() const { return data_; }
  std::int64_t count() const { return count_; }
  /// The first element, after everything enqueued.
  T first() const {
    T value;
    DSPARK_CUDA_CHECK(cudaMemcpy(&value, data_, sizeof value, cudaMemcpyDeviceToHost));
    return value;
  }
  void clear() const {
    DSPARK_CUDA_CHECK(cudaMemset(data_, 0, static_cast<std::size_t>(count_) * sizeof(T)));
  }

 private:
  T* data_ = nullptr;
  std::int64_t count_;
};

void fill(const Memory<__half>& memory, std::uint64_t seed, float scale) {
  DSPARK_LAUNCH(fill_kernel, grid_of(4096), kThreads, 0, nullptr, memory.data(), memory.count(),
                seed << 40, scale);
}

void mark(const Rows& rows) {
  DSPARK_LAUNCH(mark_kernel, grid_of(4096), kThreads, 0, nullptr,
                reinterpret_cast<std::uint32_t*>(rows.data), rows.rows * rows.stride);
}

double error_of(const Checked& checked) {
  const Memory<std::uint32_t> worst(1);
  worst.clear();
  constexpr std::int64_t kSamples = 8192;
  DSPARK_LAUNCH(error_kernel, grid_for_items(kSamples * 32), kThreads, 0, nullptr, checked,
                kSamples, worst.data());
  const std::uint32_t bits = worst.first();
  float error;
  std::memcpy(&error, &bits, sizeof error);
  return error;
}

unsigned long long differences(const Rows& a, const Rows& b) {
  const Memory<unsigned long long> count(1);
  count.clear();
  DSPARK_LAUNCH(difference_kernel, grid_of(a.rows), kThreads, 0, nullptr, a, b, count.data());
  return count.first();
}

unsigned long long written(const Rows& rows, std::int64_t begin, std::int64_t end) {
  const Memory<unsigned long long> count(1);
  count.clear();
  DSPARK_LAUNCH(written_kernel, grid_of(rows.rows), kThreads, 0, nullptr, rows, begin, end,
                count.data());
  return count.first();
}

/// Median milliseconds of a call, after two that do not count.
double median_ms(int repetitions, const std::function<void()>& call) {
  cudaEvent_t start;
  cudaEvent_t stop;
  DSPARK_CUDA_CHECK(cudaEventCreate(&start));
  DSPARK_CUDA_CHECK(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = -2; i < repetitions; ++i) {
    DSPARK_CUDA_CHECK(cudaEventRecord(start));
    call();
    DSPARK_CUDA_CHECK(cudaEventRecord(stop));
    DSPARK_CUDA_CHECK(cudaEventSynchronize(stop));
    float ms = 0;
    DSPARK_CUDA_CHECK(cudaEventElapsedTime(&ms, start, stop));
    if (i >= 0) times.push_back(ms);
  }
  DSPARK_CUDA_CHECK(cudaEventDestroy(start));
  DSPARK_CUDA_CHECK(cudaEventDestroy(stop));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// --- the data ---------------------------------------------------------------------------------

struct Data {
  Memory<__half> hidden{kMaxRows * kDepth};
  Memory<__half> head{std::int64_t{kVocab} * kDepth};
  Memory<__half> w1{std::int64_t{kVocab} * kRank};
  Memory<__half> w2{std::int64_t{kVocab} * kRank};
  Memory<float> out{kMaxRows * kVocab};
  Memory<float> other{kBigRows * kVocab};

  Data() {
    fill(hidden, 1, 1.0f);
    fill(head, 2, 0.03f);
    fill(w1, 3, 0.3f);
    fill(w2, 4, 0.3f);
  }
};

Matrix matrix(const __half* data, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  return {data, DType::f16, rows, cols, stride};
}

// --- checks -----------------------------------------------------------------------------------

const char* name_of(TensorKernel kernel) { return kernel == TensorKernel::wgmma ? "wgmma" : "mma"; }

/// One N and K: every M of every kernel.
void check_shape(const Data& data, const std::vector<TensorKernel>& which, std::int32_t vocab,
                 std::int64_t depth) {
  // Strides that keep rows of inputs at multiples of 16 bytes; rows of an odd vocabulary are not.
  const std::int64_t stride = (depth + 7) / 8 * 8;
  const std::int64_t out_stride = vocab % 4 == 0 ? vocab : vocab + 2;
  const Rows big = {data.out.data(), kBigRows, vocab, out_stride};
  const auto product = [&](std::int64_t first, std::int64_t rows, const Rows& out) {
    TensorProduct args;
    args.a = matrix(data.hidden.data() + first * stride, rows, depth, stride);
    args.b = matrix(data.head.data(), vocab, depth, stride);
    args.out = out;
    return args;
  };
  const auto checked = [&](std::int64_t first, const Rows& out) {
    Checked at = {};
    at.a = data.hidden.data() + first * stride;
    at.a_stride = at.b_stride = stride;
    at.b = data.head.data();
    at.depth = depth;
    at.out = out;
    return at;
  };
  std::printf("N %6d  K %4lld  error / (2^-20 sum|ab|):", static_cast<int>(vocab),
              static_cast<long long>(depth));
  const TensorProduct whole = product(0, kBigRows, big);
  kernels::project({whole.a, whole.b, big, Products::exact}, nullptr);
  const double exact_error = error_of(checked(0, big));
  std::printf("  exact %.3f", exact_error / kBound);
  expect(exact_error <= kBound, "the exact chain is off");
  for (const TensorKernel kernel : which) {
    mark(big);
    kernels::tensor_product(whole, kernel, nullptr);
    double error = error_of(checked(0, big));
    expect(written(big, vocab, out_stride) == 0, "columns beyond the vocabulary were written");
    unsigned long long different = 0;
    for (const std::int64_t rows : {1, 7, 64, 129}) {
      for (const std::int64_t first : {std::int64_t{0}, std::int64_t{777}, kBigRows - rows}) {
        const Rows small = {data.other.data(), rows, vocab, out_stride};
        mark({small.data, rows + 1, vocab, out_stride});
        kernels::tensor_product(product(first, rows, small), kernel, nullptr);
        error = std::max(error, error_of(checked(first, small)));
        different += differences({big.data + first * out_stride, rows, vocab, out_stride}, small);
        const Rows behind = {small.data + rows * out_stride, 1, vocab, out_stride};
        expect(written(behind, 0, out_stride) == 0, "rows beyond the last were written");
        expect(written(small, vocab, out_stride) == 0, "columns beyond the last were written");
      }
    }
    std::printf("  %s %.3f", name_of(kernel), error / kBound);
    expect(error <= kBound, "a tensor product is off");
    expect(different == 0, "a row's bits depend on how many rows there are or where they stand");
  }
  if (which.size() == 2) {
    kernels::tensor_product(product(0, kBigRows, {data.other.data(), kBigRows, vocab, out_stride}),
                            which[0], nullptr);
    const double share =
        static_cast<double>(differences(big, {data.other.data(), kBigRows, vocab, out_stride})) /
        (static_cast<double>(kBigRows) * vocab);
    std::printf("  the two differ in %.4f%% of outputs", 100 * share);
  }
  std::printf("\n");
}

/// Draft rows: gathered, some unused, some bad.
void check_draft_rows(const Data& data, std::int32_t vocab, std::int64_t rows) {
  std::vector<std::int32_t> hidden_row;
  std::vector<std::int32_t> previous;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::uint64_t bits = mixed(static_cast<std::uint64_t>(i));
    hidden_row.push_back(static_cast<std::int32_t>(bits % kBigRows));
    previous.push_back(bits % 7 == 3 ? -1 : static_cast<std::int32_t>((bits >> 20) % kVocab));
  }
  previous[0] = kVocab;                                 // a bad token
  hidden_row[1] = static_cast<std::int32_t>(kBigRows);  // a bad row
  previous[1] = 5;
  const Memory<std::int32_t> device_row(hidden_row);
  const Memory<std::int32_t> device_previous(previous);
  std::vector<std::int32_t> good = previous;
  good[0] = good[1] = -1;
  const Memory<std::int32_t> device_good(good);
  const Memory<std::uint32_t> status(1);
  status.clear();
  DraftRowsArgs args;
  args.hidden = matrix(data.hidden.data(), kBigRows, kDepth, kDepth);
  args.hidden_row = {device_row.data(), rows};
  args.previous = {device_previous.data(), rows};
  args.head = matrix(data.head.data(), vocab, kDepth, kDepth);
  args.w1 = matrix(data.w1.data(), kVocab, kRank, kRank);
  args.w2 = matrix(data.w2.data(), vocab, kRank, kRank);
  args.out = {data.out.data(), rows, vocab, vocab};
  args.products = Products::tensor;
  args.status = status.data();
  const Memory<unsigned char> workspace(
      static_cast<std::int64_t>(kernels::draft_rows_workspace(args)) + 1);
  mark(args.out);
  kernels::draft_rows(args, {workspace.data(), static_cast<std::size_t>(workspace.count() - 1)},
                      nullptr);
  Checked at = {};
  at.a = data.hidden.data();
  at.a_stride = at.b_stride = kDepth;
  at.index = device_row.data();
  at.b = data.head.data();
  at.depth = kDepth;
  at.a2 = data.w1.data();
  at.index2 = device_good.data();
  at.b2 = data.w2.data();
  at.depth2 = kRank;
  at.out = args.out;
  const double error = error_of(at);
  std::printf("draft_rows %lld x %d: error %.3f\n", static_cast<long long>(rows),
              static_cast<int>(vocab), error / kBound);
  expect(error <= kBound, "draft_rows is off");
  expect(status.first() == (kOpBadToken | kOpBadRow), "draft_rows reports the wrong problems");
  for (std::int64_t i = 0; i < rows; ++i) {
    const unsigned long long count =
        written({args.out.data + i * vocab, 1, vocab, vocab}, 0, vocab);
    const bool used = good[static_cast<std::size_t>(i)] >= 0;
    expect(used ? count == static_cast<unsigned long long>(vocab) : count == 0,
           "draft_rows wrote an unused row or left out a used one");
  }
}

// --- times ------------------------------------------------------------------------------------

void show(const char* what, std::int64_t rows, std::int64_t depth, double ms) {
  const double operations = 2.0 * static_cast<double>(rows) * kVocab * static_cast<double>(depth);
  std::printf("%-44s %8.3f ms  %7.1f TFLOP/s\n", what, ms, operations / ms * 1e-9);
}

void time_all(const Data& data, const std::vector<TensorKernel>& which) {
  const auto product = [&](std::int64_t rows, bool second) {
    TensorProduct args;
    args.a = matrix(data.hidden.data(), rows, kDepth, kDepth);
    args.b = matrix(data.head.data(), kVocab, kDepth, kDepth);
    if (second) {
      args.a2 = matrix(data.w1.data(), rows, kRank, kRank);
      args.b2 = matrix(data.w2.data(), kVocab, kRank, kRank);
    }
    args.out = {data.out.data(), rows, kVocab, kVocab};
    return args;
  };
  char what[80];
  for (const TensorKernel kernel : which) {
    for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{256}, kBigRows, kMaxRows}) {
      const TensorProduct args = product(rows, false);
      std::snprintf(what, sizeof what, "%s, M %lld, K 4096", name_of(kernel),
                    static_cast<long long>(rows));
      show(what, rows, kDepth, median_ms(rows > kBigRows ? 7 : 15, [&] {
             kernels::tensor_product(args, kernel, nullptr);
           }));
    }
    const TensorProduct args = product(kBigRows, true);
    std::snprintf(what, sizeof what, "%s, M 2048, K 4096 + 256", name_of(kernel));
    show(what, kBigRows, kDepth + kRank,
         median_ms(15, [&] { kernels::tensor_product(args, kernel, nullptr); }));
    // What is left without the stores.
    const Memory<std::uint8_t> none(kBigRows);
    none.clear();
    TensorProduct silent = product(kBigRows, false);
    silent.wanted = none.data();
    std::snprintf(what, sizeof what, "%s, M 2048, K 4096, nothing stored", name_of(kernel));
    show(what, kBigRows, kDepth,
         median_ms(15, [&] { kernels::tensor_product(silent, kernel, nullptr); }));
  }

  // A teacher-forced step as a whole: 7 draft rows and 1 target row per anchor.
  for (const std::int64_t anchors : {256, 1024}) {
    const std::int64_t drafts = 7 * anchors;
    std::vector<std::int32_t> rows;
    std::vector<std::int32_t> previous;
    for (std::int64_t i = 0; i < drafts; ++i) {
      rows.push_back(static_cast<std::int32_t>(i));
      previous.push_back(static_cast<std::int32_t>(mixed(static_cast<std::uint64_t>(i)) % kVocab));
    }
    const Memory<std::int32_t> device_rows(rows);
    const Memory<std::int32_t> device_previous(previous);
    DraftRowsArgs draft;
    draft.hidden = matrix(data.hidden.data(), drafts, kDepth, kDepth);
    draft.hidden_row = {device_rows.data(), drafts};
    draft.previous = {device_previous.data(), drafts};
    draft.head = matrix(data.head.data(), kVocab, kDepth, kDepth);
    draft.w1 = matrix(data.w1.data(), kVocab, kRank, kRank);
    draft.w2 = matrix(data.w2.data(), kVocab, kRank, kRank);
    draft.out = {data.out.data(), drafts, kVocab, kVocab};
    draft.products = Products::tensor;
    const Memory<unsigned char> workspace(
        static_cast<std::int64_t>(kernels::draft_rows_workspace(draft)) + 1);
    const Scratch scratch = {workspace.data(), static_cast<std::size_t>(workspace.count() - 1)};
    const ProjectArgs target = {
        matrix(data.hidden.data() + drafts * kDepth, anchors, kDepth, kDepth),
        draft.head,
        {data.out.data() + drafts * kVocab, anchors, kVocab, kVocab},
        Products::tensor};
    const double ms = median_ms(9, [&] {
      kernels::draft_rows(draft, scratch, nullptr);
      kernels::project(target, nullptr);
    });
    const double operations =
        2.0 * kVocab * static_cast<double>(anchors) * (8.0 * kDepth + 7.0 * kRank);
    std::printf("%lld anchors: %.3f ms, %.2f us an anchor, %.1f TFLOP/s\n",
                static_cast<long long>(anchors), ms, ms * 1e3 / static_cast<double>(anchors),
                operations / ms * 1e-9);
  }
}

int run() {
  cudaDeviceProp properties;
  DSPARK_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  const std::optional<TensorKernel> best = kernels::tensor_kernel();
  if (!best.has_value()) {
    std::printf("%s has no tensor cores that this program can use\n", properties.name);
    return 1;
  }
  std::vector<TensorKernel> which = {*best};
  if (*best != TensorKernel::mma) which.push_back(TensorKernel::mma);
  std::printf("%s, %d multiprocessors\n", properties.name, properties.multiProcessorCount);
  const Data data;
  for (const std::int32_t vocab : {kVocab, 1000, 257}) {
    for (const std::int64_t depth : {kDepth, kRank, std::int64_t{100}}) {
      check_shape(data, which, vocab, depth);
    }
  }
  check_draft_rows(data, kVocab, 300);
  check_draft_rows(data, 1000, 2000);
  time_all(data, which);
  std::printf(all_good ? "all good\n" : "SOMETHING IS WRONG\n");
  return all_good ? 0 : 1;
}

}  // namespace
}  // namespace dspark::bench

int main() {
  try {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    return dspark::bench::run();
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
