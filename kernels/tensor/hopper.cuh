// The instructions of compute capability 9.0 that the warpgroup product is made of: barriers in
// shared memory, the copy engine, clusters, warpgroup products. Addresses are 32-bit shared-memory
// addresses.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/views.h"

namespace dspark::kernels::hopper {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// --- clusters -----------------------------------------------------------------------------------

/// This block's number within its cluster.
__device__ inline std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Waits for all threads of the cluster; what they wrote before is seen after.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// --- barriers in shared memory ------------------------------------------------------------------

__device__ inline void barrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes initialised barriers known to the cluster and the copy engine; cluster_sync must follow.
__device__ inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives, and lets the phase wait for `bytes` from the copy engine.
__device__ inline void barrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Arrives at the barrier that stands at the same place in block `rank` of the cluster.
__device__ inline void barrier_arrive(std::uint32_t barrier, std::uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

/// Waits until the phase of that parity is over.
__device__ inline void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred over;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// --- copy engine --------------------------------------------------------------------------------

__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// The box of a matrix that begins at (column, row), to `target`; its bytes count at `barrier`.
__device__ inline void load_box(const CUtensorMap& map, std::uint32_t target, std::uint32_t barrier,
                                std::int32_t column, std::int32_t row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(target),
      "l"(&map), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}

/// The same for all blocks of the cluster in `ranks` (a bit each): to the same place in each, and
/// counted at each one's barrier.
__device__ inline void load_box_for(const CUtensorMap& map, std::uint32_t target,
                                    std::uint32_t barrier, std::int32_t column, std::int32_t row,
                                    std::uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(target),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "h"(ranks)
      : "memory");
}

// --- warpgroup products -------------------------------------------------------------------------

/// Describes rows of 128 bytes, 8 of them an atom of the 128-byte swizzle, at a multiple of 1024
/// bytes. 32 bytes further along the rows is `+ 2`.
__device__ inline std::uint64_t operand_descriptor(std::uint32_t address) {
  constexpr std::uint64_t kAtomStride = std::uint64_t{1024 >> 4} << 32;
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kUnused = std::uint64_t{1} << 16;
  return kSwizzle128 | kAtomStride | kUnused | ((address >> 4) & 0x3FFFu);
}

/// Registers and shared memory that the warpgroup wrote may be used by the products that follow.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `kPending` committed groups are under way.
template <int kPending>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Sums of a warpgroup's 64 x 256 outputs. sum[4j + 2h + e] of lane l in warp w is row 16w + l/4 +
/// 8h, column 8j + 2(l mod 4) + e.
using Accumulators = float[128];

/// Keeps the compiler from moving uses of the sums across.
__device__ inline void pin(Accumulators& sum) {
#pragma unroll
  for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}

// clang-format off
#define DSPARK_WGMMA_64X256X16(type)                                                              \
  asm volatile(                                                                                   \
      "{\n"                                                                                       \
      ".reg .pred add;\n"                                                                         \
      "setp.eq.u32 add, 0, 0;\n"                                                                  \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type "\n"                           \
      "{%0, %1, %2, %3, %4, %5, %6, %7,\n"                                                        \
      " %8, %9, %10, %11, %12, %13, %14, %15,\n"                                                  \
      " %16, %17, %18, %19, %20, %21, %22, %23,\n"                                                \
      " %24, %25, %26, %27, %28, %29, %30, %31,\n"                                                \
      " %32, %33, %34, %35, %36, %37, %38, %39,\n"                                                \
      " %40, %41, %42, %43, %44, %45, %46, %47,\n"                                                \
      " %48, %49, %50, %51, %52, %53, %54, %55,\n"                                                \
      " %56, %57, %58, %59, %60, %61, %62, %63,\n"                                                \
      " %64, %65, %66, %67, %68, %69, %70, %71,\n"                                                \
      " %72, %73, %74, %75, %76, %77, %78, %79,\n"                                                \
      " %80, %81, %82, %83, %84, %85, %86, %87,\n"                                                \
      " %88, %89, %90, %91, %92, %93, %94, %95,\n"                                                \
      " %96, %97, %98, %99, %100, %101, %102, %103,\n"                                            \
      " %104, %105, %106, %107, %108, %109, %110, %111,\n"                                        \
      " %112, %113, %114, %115, %116, %117, %118, %119,\n"                                        \
      " %120, %121, %122, %123, %124, %125, %126, %127},\n"                                       \
      " %128, %129, add, 1, 1, 0, 0;\n"                                                           \
      "}\n"                                                                                       \
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]),                                   \
        "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]),                                   \
        "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]),                                 \
        "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]),                               \
        "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]),                               \
        "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]),                               \
        "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]),                               \
        "+f"(sum[28]), "+f"(sum[29]), "+f"(sum[30]), "+f"(sum[31]),                               \
        "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35]),                               \
        "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]),                               \
        "+f"(sum[40]), "+f"(sum[41]), "+f"(sum[42]), "+f"(sum[43]),                               \
        "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]),                               \
        "+f"(sum[48]), "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]),                               \
        "+f"(sum[52]), "+f"(sum[53]), "+f"(sum[54]), "+f"(sum[55]),                               \
        "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]),                               \
        "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63]),                               \
        "+f"(sum[64]), "+f"(sum[65]), "+f"(sum[66]), "+f"(sum[67]),                               \
        "+f"(sum[68]), "+f"(sum[69]), "+f"(sum[70]), "+f"(sum[71]),                               \
        "+f"(sum[72]), "+f"(sum[73]), "+f"(sum[74]), "+f"(sum[75]),                               \
        "+f"(sum[76]), "+f"(sum[77]), "+f"(sum[78]), "+f"(sum[79]),                               \
        "+f"(sum[80]), "+f"(sum[81]), "+f"(sum[82]), "+f"(sum[83]),                               \
        "+f"(sum[84]), "+f"(sum[85]), "+f"(sum[86]), "+f"(sum[87]),                               \
        "+f"(sum[88]), "+f"(sum[89]), "+f"(sum[90]), "+f"(sum[91]),                               \
        "+f"(sum[92]), "+f"(sum[93]), "+f"(sum[94]), "+f"(sum[95]),                               \
        "+f"(sum[96]), "+f"(sum[97]), "+f"(sum[98]), "+f"(sum[99]),                               \
        "+f"(sum[100]), "+f"(sum[101]), "+f"(sum[102]), "+f"(sum[103]),                           \
        "+f"(sum[104]), "+f"(sum[105]), "+f"(sum[106]), "+f"(sum[107]),                           \
        "+f"(sum[108]), "+f"(sum[109]), "+f"(sum[110]), "+f"(sum[111]),                           \
        "+f"(sum[112]), "+f"(sum[113]), "+f"(sum[114]), "+f"(sum[115]),                           \
        "+f"(sum[116]), "+f"(sum[117]), "+f"(sum[118]), "+f"(sum[119]),                           \
        "+f"(sum[120]), "+f"(sum[121]), "+f"(sum[122]), "+f"(sum[123]),                           \
        "+f"(sum[124]), "+f"(sum[125]), "+f"(sum[126]), "+f"(sum[127])                            \
      : "l"(a), "l"(b))
// clang-format on

/// sum += a · bᵀ of 64 x 16 and 256 x 16 elements; under way until waited for.
template <DType kType>
__device__ void wgmma(Accumulators& sum, std::uint64_t a, std::uint64_t b) {
  if constexpr (kType == DType::f16) {
    DSPARK_WGMMA_64X256X16("f16");
  } else {
    DSPARK_WGMMA_64X256X16("bf16");
  }
}

#undef DSPARK_WGMMA_64X256X16

/// Changes how many registers each thread of the warpgroup has.
template <int kRegisters>
__device__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace dspark::kernels::hopper
