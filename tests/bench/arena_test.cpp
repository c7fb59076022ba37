// Inputs of the bench: random, of the right shape, and the same whatever the batch.
#include "bench/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>

#include "backends/cpu/cpu_backend.h"
#include "core/half.h"

namespace dspark {
namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

template <class T>
double deviation(const std::vector<T>& values) {
  double sum = 0;
  double squares = 0;
  for (const T value : values) {
    const double v = to_float(value);
    sum += v;
    squares += v * v;
  }
  const auto n = static_cast<double>(values.size());
  return std::sqrt(squares / n - sum / n * (sum / n));
}

class ArenaTest : public testing::Test {
 protected:
  ArenaTest()
      : backend_(make_cpu_backend(2)),
        pools_(make_pools(7, pool_size(1000), 2)),
        bench_(*backend_, pools_, kNoLimit) {}

  std::unique_ptr<Backend> backend_;
  Pools pools_;
  Workbench bench_;
};

TEST_F(ArenaTest, PoolsHaveTheirDeviationAndFewPeaks) {
  EXPECT_NEAR(deviation(pools_.hidden), 1, 0.02);
  EXPECT_NEAR(deviation(pools_.weights), 0.04, 0.001);
  EXPECT_NEAR(deviation(pools_.logits), 2.5, 0.1);
  const auto peaks = std::count_if(pools_.logits.begin(), pools_.logits.end(),
                                   [](float logit) { return logit > 13; });
  // Half of one in 4096; a normal number is hardly ever above 5 deviations.
  EXPECT_NEAR(static_cast<double>(peaks), static_cast<double>(pools_.logits.size()) / 8192, 25);
}

TEST_F(ArenaTest, PoolsDependOnTheSeedAndNotOnTheThreads) {
  const Pools again = make_pools(7, pool_size(1000), 1);
  EXPECT_EQ(again.logits, pools_.logits);
  const Pools other = make_pools(8, pool_size(1000), 2);
  std::size_t same = 0;
  for (std::size_t i = 0; i < other.logits.size(); ++i) {
    same += other.logits[i] == pools_.logits[i] ? 1 : 0;
  }
  EXPECT_LT(same, other.logits.size() / 1000);
}

TEST_F(ArenaTest, PoolsHoldRowsOfEveryLength) {
  for (const std::int64_t longest :
       {std::int64_t{1}, std::int64_t{151936}, std::int64_t{1} << 22}) {
    EXPECT_GE(pool_size(longest), 2 * longest);
    EXPECT_EQ(pool_size(longest) % 2, 0);
  }
}

TEST_F(ArenaTest, RowsDoNotDependOnHowManyThereAre) {
  Arena few(bench_, 3);
  Arena many(bench_, 3);
  const Rows a = few.logits(2, 999, BenchStream::target);
  const Rows b = many.logits(50, 999, BenchStream::target);
  EXPECT_EQ(std::memcmp(a.data, b.data, 2 * 999 * sizeof(float)), 0);
  const Matrix c = few.hidden(2, 100, BenchStream::hidden);
  const Matrix d = many.hidden(50, 100, BenchStream::hidden);
  EXPECT_EQ(std::memcmp(c.data, d.data, 2 * 100 * 2), 0);
  const std::vector<std::int32_t> ids = many.ids(50, 999, BenchStream::token);
  const std::vector<std::int32_t> first = few.ids(2, 999, BenchStream::token);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), ids.begin()));
}

TEST_F(ArenaTest, RowsAndSetsDiffer) {
  std::set<std::vector<float>> seen;
  for (const std::uint32_t set : {0u, 1u}) {
    for (const BenchStream stream : {BenchStream::target, BenchStream::draft}) {
      Arena arena(bench_, set);
      const Rows rows = arena.logits(20, 64, stream);
      for (std::int64_t r = 0; r < 20; ++r) {
        seen.insert(std::vector<float>(rows.data + r * 64, rows.data + (r + 1) * 64));
      }
    }
  }
  EXPECT_EQ(seen.size(), 80u);
}

TEST_F(ArenaTest, WeightsAreSharedByCasesAndHaveDistinctRows) {
  Arena first(bench_, 0);
  Arena again(bench_, 0);
  Arena other(bench_, 1);
  const Matrix w2 = first.vocabulary_matrix(5000, 64, BenchStream::w2);
  EXPECT_EQ(w2.data, again.vocabulary_matrix(5000, 64, BenchStream::w2).data);
  EXPECT_NE(w2.data, other.vocabulary_matrix(5000, 64, BenchStream::w2).data);
  EXPECT_NE(w2.data, first.vocabulary_matrix(5000, 64, BenchStream::lm_head).data);
  EXPECT_EQ(first.markov_rows(5000, 64).data, other.markov_rows(5000, 64).data);
  std::set<std::vector<std::uint16_t>> rows;
  const auto* const values = static_cast<const std::uint16_t*>(w2.data);
  for (std::int64_t r = 0; r < 5000; ++r) {
    rows.insert(std::vector<std::uint16_t>(values + r * 64, values + (r + 1) * 64));
  }
  EXPECT_EQ(rows.size(), 5000u);
}

TEST_F(ArenaTest, UniformsAndIdsLieInTheirRange) {
  Arena arena(bench_, 0);
  for (const float u : arena.uniforms(1000, BenchStream::accept)) {
    EXPECT_GE(u, 0);
    EXPECT_LT(u, 1);
  }
  const std::vector<std::int32_t> ids = arena.ids(1000, 3, BenchStream::token);
  EXPECT_EQ(std::set<std::int32_t>(ids.begin(), ids.end()), (std::set<std::int32_t>{0, 1, 2}));
}

TEST_F(ArenaTest, MemoryIsCountedAndGivenBack) {
  const std::size_t before = bench_.used();
  {
    Arena arena(bench_, 0);
    static_cast<void>(arena.rows(10, 100));
    EXPECT_EQ(bench_.used(), before + 4000);
    EXPECT_EQ(arena.bytes(), 4000u);
    static_cast<void>(arena.vocabulary_matrix(10, 10, BenchStream::w2));
    EXPECT_EQ(arena.bytes(), 4200u);  // what a call goes over counts, though others share it
    static_cast<void>(arena.markov_rows(10, 10));
    EXPECT_EQ(arena.bytes(), 4200u);
  }
  EXPECT_EQ(bench_.used(), before + 400);
  bench_.drop_weights();
  EXPECT_EQ(bench_.used(), before);
}

TEST_F(ArenaTest, ABudgetIsKept) {
  Workbench small(*backend_, pools_, 1000);
  Arena arena(small, 0);
  static_cast<void>(arena.rows(2, 100));
  EXPECT_THROW(static_cast<void>(arena.rows(1, 51)), NoRoom);
  static_cast<void>(arena.rows(1, 50));
  EXPECT_THROW(static_cast<void>(arena.vocabulary_matrix(1, 1, BenchStream::w2)), NoRoom);
}

}  // namespace
}  // namespace dspark
