// Recorded work, device copies and device time.
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernel_test.h"

namespace dspark::test {
namespace {

class RecordingTest : public KernelTest {};

TEST_F(RecordingTest, CopiesWithinTheDevice) {
  Random random(1);
  for (const std::size_t count : {1u, 1000u, 1u << 19, (1u << 19) + 3}) {
    const std::vector<float> sent = random.normals(count);
    const Device<float> source(sent);
    const Device<float> target(count);
    backend().copy(target.data(), source.data(), count * sizeof(float));
    EXPECT_EQ(target.values(), sent);
  }
  backend().copy(nullptr, nullptr, 0);
}

// What a recording does is what its calls do, on what their memory holds when it is replayed.
TEST_F(RecordingTest, ReplaysOperationsOnTheirMemory) {
  constexpr std::int32_t kVocab = 5000;
  Random random(2);
  const SamplingRule rule = make_sampling_rule(1, 20, 0.9, TopPRule::water_filling, kVocab);
  const DeviceRows logits(3, kVocab);
  const Device<RowLaw> laws(3);
  const auto work = [&] {
    backend().row_laws({.logits = logits.view(), .rule = rule, .laws = laws.array()});
  };
  const auto fill = [&] {
    const std::vector<float> values = random.normals(3 * kVocab, 2.5f);
    backend().upload(logits.view().data, values.data(), values.size() * sizeof(float));
  };
  fill();
  work();
  const std::unique_ptr<Recording> recording = backend().record(work);
  for (int round = 0; round < 3; ++round) {
    fill();
    work();
    const std::vector<RowLaw> called = laws.values();
    backend().fill(laws.data(), 0, sizeof(RowLaw) * 3);
    recording->replay();
    const std::vector<RowLaw> replayed = laws.values();
    EXPECT_GT(called[0].total, 0u);
    for (std::size_t i = 0; i < called.size(); ++i) {
      EXPECT_EQ(std::memcmp(&called[i], &replayed[i], sizeof(RowLaw)), 0) << i;
    }
  }
}

// The workspace that a recording was made with stays, though later calls need a larger one.
TEST_F(RecordingTest, OutlivesALargerWorkspace) {
  constexpr std::int32_t kVocab = 4096;
  Random random(3);
  const SamplingRule rule = make_sampling_rule(1, 20, 0.9, TopPRule::water_filling, kVocab);
  const DeviceRows logits(random.normals(2 * kVocab, 2.5f), kVocab);
  const Device<RowLaw> laws(2);
  const auto work = [&] {
    backend().row_laws({.logits = logits.view(), .rule = rule, .laws = laws.array()});
  };
  work();
  const std::vector<RowLaw> called = laws.values();
  const std::unique_ptr<Recording> recording = backend().record(work);

  const DeviceRows more(random.normals(300 * kVocab, 2.5f), kVocab);
  const Device<RowLaw> more_laws(300);
  const auto more_work = [&] {
    backend().row_laws({.logits = more.view(), .rule = rule, .laws = more_laws.array()});
  };
  more_work();
  backend().synchronize();
  for (int round = 0; round < 2; ++round) {
    backend().fill(laws.data(), 0, sizeof(RowLaw) * 2);
    recording->replay();
    more_work();
    const std::vector<RowLaw> replayed = laws.values();
    EXPECT_EQ(std::memcmp(called.data(), replayed.data(), sizeof(RowLaw) * 2), 0);
  }
}

TEST_F(RecordingTest, RecordsAndReplaysManyAtOnce) {
  std::vector<std::unique_ptr<Recording>> recordings;
  const Device<float> uniforms(64 * 16);
  backend().fill_uniforms({.uniforms = uniforms.array()});  // a kernel may be loaded where it runs
  for (std::size_t i = 0; i < 64; ++i) {
    recordings.push_back(backend().record([&uniforms, i] {
      backend().fill_uniforms({.uniforms = {uniforms.data() + 16 * i, 16}, .seed = i});
    }));
  }
  for (auto& recording : recordings) recording->replay();
  const std::vector<float> replayed = uniforms.values();
  for (std::size_t i = 0; i < 64; ++i) {
    backend().fill_uniforms({.uniforms = {uniforms.data() + 16 * i, 16}, .seed = i});
  }
  EXPECT_EQ(replayed, uniforms.values());
}

TEST_F(RecordingTest, MeasuresWhatWasEnqueued) {
  const std::size_t bytes = std::size_t{64} << 20;
  const Device<std::uint8_t> source(bytes);
  const Device<std::uint8_t> target(bytes);
  const auto copies = [&](int count) {
    return backend().measure([&] {
      for (int i = 0; i < count; ++i) backend().copy(target.data(), source.data(), bytes);
    });
  };
  static_cast<void>(copies(1));
  EXPECT_GT(copies(1), 0);
  EXPECT_GT(copies(40), copies(1));
  EXPECT_LT(backend().measure([] {}), 100);
}

TEST_F(RecordingTest, SaysWhatTheDeviceHas) {
  const DeviceFacts facts = backend().facts();
  EXPECT_GT(facts.processors, 0);
  EXPECT_EQ(facts.runtime.empty(), backend().shares_host_memory());
  EXPECT_EQ(facts.driver.empty(), backend().shares_host_memory());
}

}  // namespace
}  // namespace dspark::test
