// Copies that nobody waits for: host memory for them, the two queues, and fences between them.
#include <algorithm>
#include <array>
#include <cstdint>

#include "tests/kernels/kernel_test.h"

namespace dspark::test {
namespace {

class Copies : public KernelTest {};

TEST_F(Copies, HostMemoryIsAlignedAndNothingIsNothing) {
  const HostBuffer none = backend().allocate_host(0);
  EXPECT_EQ(none.data(), nullptr);
  HostBuffer some = backend().allocate_host(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(some.data()) % 256, 0U);
  EXPECT_EQ(some.bytes(), 1000U);
  const HostBuffer moved = std::move(some);
  std::memset(moved.data(), 7, 1000);
  EXPECT_EQ(static_cast<const unsigned char*>(moved.data())[999], 7);
}

TEST_F(Copies, AFenceThatWasNeverMarkedIsPassed) {
  const std::unique_ptr<Fence> fence = backend().make_fence();
  backend().wait(*fence);
  backend().hold(Queue::operations, *fence);
  backend().hold(Queue::copies, *fence);
  backend().synchronize();
}

// As a pass does it: two buffers in backend memory that are filled in turn beside the operations,
// and results that are looked at one step later. Arrays are large enough that a missing fence
// shows.
TEST_F(Copies, RunBesideTheOperationsInTheOrderOfTheFences) {
  constexpr std::int64_t kSize = std::int64_t{1} << 20;
  constexpr std::size_t kBytes = kSize * sizeof(float);
  struct Lane {
    HostBuffer source, result;
    Buffer stored;
    std::unique_ptr<Fence> copied, used, done;
  };
  std::array<Lane, 2> lanes;
  for (Lane& lane : lanes) {
    lane.source = backend().allocate_host(kBytes);
    lane.result = backend().allocate_host(kBytes);
    lane.stored = backend().allocate(kBytes);
    for (auto* fence : {&lane.copied, &lane.used, &lane.done}) *fence = backend().make_fence();
    backend().mark(Queue::operations, *lane.used);
  }
  const Device<float> out(kSize);
  const auto value = [](int step) { return static_cast<float>(step) + 0.5f; };
  const auto expect_result = [&](int step) {
    const Lane& lane = lanes[static_cast<std::size_t>(step % 2)];
    backend().wait(*lane.done);
    const auto* const got = static_cast<const float*>(lane.result.data());
    EXPECT_EQ(std::count(got, got + kSize, value(step)), kSize) << "step " << step;
  };
  constexpr int kSteps = 12;
  for (int step = 0; step < kSteps; ++step) {
    Lane& lane = lanes[static_cast<std::size_t>(step % 2)];
    backend().wait(*lane.copied);  // before its source is written again
    std::fill_n(static_cast<float*>(lane.source.data()), kSize, value(step));
    backend().hold(Queue::copies, *lane.used);
    backend().enqueue_upload(Queue::copies, lane.stored.data(), lane.source.data(), kBytes);
    backend().mark(Queue::copies, *lane.copied);
    backend().hold(Queue::operations, *lane.copied);
    const Matrix stored{lane.stored.data(), DType::f32, 1, kSize, kSize};
    backend().widen({.in = stored, .out = {out.data(), 1, kSize, kSize}});
    backend().mark(Queue::operations, *lane.used);
    backend().enqueue_download(lane.result.data(), out.data(), kBytes);
    backend().mark(Queue::operations, *lane.done);
    if (step > 0) expect_result(step - 1);
  }
  expect_result(kSteps - 1);
  backend().synchronize();
}

TEST_F(Copies, AmongTheOperationsTheyAreInTheirOrder) {
  const HostBuffer source = backend().allocate_host(sizeof(float));
  const HostBuffer before = backend().allocate_host(sizeof(float));
  const HostBuffer after = backend().allocate_host(sizeof(float));
  const Device<float> word({1.0f});
  *static_cast<float*>(source.data()) = 2.0f;
  backend().enqueue_download(before.data(), word.data(), sizeof(float));
  backend().enqueue_upload(Queue::operations, word.data(), source.data(), sizeof(float));
  backend().enqueue_download(after.data(), word.data(), sizeof(float));
  const std::unique_ptr<Fence> done = backend().make_fence();
  backend().mark(Queue::operations, *done);
  backend().wait(*done);
  EXPECT_EQ(*static_cast<const float*>(before.data()), 1.0f);
  EXPECT_EQ(*static_cast<const float*>(after.data()), 2.0f);
}

}  // namespace
}  // namespace dspark::test
