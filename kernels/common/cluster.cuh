// Blocks of a cluster that send their results to the first one (compute capability 9.0). Nobody
// waits for all: a message counts its bytes at a barrier in the first block's shared memory as it
// arrives. Cheaper than a barrier of the whole cluster, which also waits for what was written to
// global memory.
#pragma once

#include <cstdint>

#include "kernels/tensor/hopper.cuh"

namespace dspark::kernels {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// All threads of all blocks call open(), and wait_until_open() before their first message; each
/// thread of the first block that reads the messages calls wait().
class Mailbox {
 public:
  /// `barrier` is in shared memory, at the same place in each block.
  __device__ explicit Mailbox(std::uint64_t* barrier) : barrier_(hopper::shared_address(barrier)) {}

  /// `bytes`: of all messages.
  __device__ void open(bool first_block, std::uint32_t bytes) const {
    if (first_block && threadIdx.x == 0) {
      hopper::barrier_init(barrier_, 1);
      hopper::barrier_init_fence();
      hopper::barrier_expect(barrier_, bytes);
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  }
  /// Waits until the first block has opened it.
  __device__ void wait_until_open() const {
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  }
  /// Writes `message` to the same place in the first block as `place` is here.
  __device__ void send(float* place, float message) const {
    asm volatile(
        "{\n"
        ".reg .b32 remote_place, remote_barrier;\n"
        "mapa.shared::cluster.u32 remote_place, %0, 0;\n"
        "mapa.shared::cluster.u32 remote_barrier, %1, 0;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [remote_place], %2, "
        "[remote_barrier];\n"
        "}\n" ::"r"(hopper::shared_address(place)),
        "r"(barrier_), "r"(__float_as_uint(message))
        : "memory");
  }
  /// The same for 16 bytes, aligned.
  __device__ void send(uint4* place, const uint4& message) const {
    asm volatile(
        "{\n"
        ".reg .b32 remote_place, remote_barrier;\n"
        "mapa.shared::cluster.u32 remote_place, %0, 0;\n"
        "mapa.shared::cluster.u32 remote_barrier, %1, 0;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [remote_place], "
        "{%2, %3, %4, %5}, [remote_barrier];\n"
        "}\n" ::"r"(hopper::shared_address(place)),
        "r"(barrier_), "r"(message.x), "r"(message.y), "r"(message.z), "r"(message.w)
        : "memory");
  }
  /// Waits for all messages.
  __device__ void wait() const { hopper::barrier_wait(barrier_, 0); }

 private:
  std::uint32_t barrier_;
};

#endif

}  // namespace dspark::kernels
