// batch_schedule.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tests/kernels/kernel_test.h"

namespace dspark::test {
namespace {

class Schedule : public KernelTest {};

using Lengths = std::vector<std::int32_t>;
constexpr std::int32_t kUntouched = -77;

/// A step with its arrays in the backend's memory.
struct ScheduleCase {
  ScheduleCase(std::vector<std::vector<float>> rows, std::vector<double> prices)
      : positions(0), price(prices.empty() ? std::vector<double>{0} : prices) {
    for (const std::vector<float>& row : rows) {
      positions = std::max(positions, static_cast<std::int32_t>(row.size()));
    }
    std::vector<float> values;
    std::vector<std::int32_t> counts;
    for (std::vector<float>& row : rows) {
      counts.push_back(static_cast<std::int32_t>(row.size()));
      row.resize(static_cast<std::size_t>(positions) + 1, canary());
      values.insert(values.end(), row.begin(), row.end());
    }
    confidence.emplace(values);
    slots.emplace(counts);
    lengths.emplace(rows.size(), kUntouched);
    args.step = {static_cast<std::int32_t>(rows.size()), positions, positions + 1,
                 confidence->data(), slots->data()};
    args.price = {price.data(), static_cast<std::int64_t>(prices.size())};
    args.chosen = chosen.data();
    args.lengths = lengths->data();
    args.status = status.data();
  }

  Lengths run() {
    backend().batch_schedule(args);
    return lengths->values();
  }
  Lengths run(BatchRule rule) {
    args.options.rule = rule;
    return run();
  }
  std::int32_t capacity() const { return chosen.values()[0]; }

  std::int32_t positions;
  Device<double> price;
  std::optional<Device<float>> confidence;
  std::optional<Device<std::int32_t>> slots;
  std::optional<Device<std::int32_t>> lengths;
  Device<std::int32_t> chosen = Device<std::int32_t>(1, kUntouched);
  Device<std::uint32_t> status = Device<std::uint32_t>(1);
  BatchScheduleArgs args;
};

const double kNaN = std::nan("");

TEST_F(Schedule, PapersCurveStopsAlgorithm1AtOnce) {
  ScheduleCase test({{0.8f, 0.9f}}, {1.0, 2.0, 1 / 0.45});
  EXPECT_EQ(test.run(BatchRule::algorithm1), Lengths{0});
  EXPECT_EQ(test.capacity(), 0);
  EXPECT_EQ(test.run(BatchRule::global), Lengths{2});
  EXPECT_EQ(test.capacity(), 2);
  EXPECT_EQ(test.status.values()[0], kOpOk);
}

TEST_F(Schedule, AdmitsTheLargestSurvivalsOfAllRequests) {
  // Survivals 0.9 0.81 0.4, 0.5 0.25, none, 0.7; every draft of at least 0.45 pays.
  std::vector<double> price;
  for (int n = 0; n <= 6; ++n) price.push_back(n <= 4 ? 1 : 9);
  ScheduleCase test({{0.9f, 0.9f, 0.5f}, {0.5f, 0.5f}, {}, {0.7f}}, price);
  for (const BatchRule rule : {BatchRule::algorithm1, BatchRule::global}) {
    EXPECT_EQ(test.run(rule), (Lengths{2, 1, 0, 1}));
    EXPECT_EQ(test.capacity(), 4);
  }
}

TEST_F(Schedule, TiesGoByPositionOrByRequest) {
  ScheduleCase test({{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, {1, 1, 1, 1, 1, 9, 9, 9, 9, 9});
  test.args.options.ties = TieOrder::position_request;
  EXPECT_EQ(test.run(BatchRule::global), (Lengths{2, 1, 1}));
  test.args.options.ties = TieOrder::request_position;
  EXPECT_EQ(test.run(BatchRule::global), (Lengths{3, 1, 0}));
}

TEST_F(Schedule, TheFloorIsVerifiedWhateverItPromises) {
  ScheduleCase test({{0.0f, 1.0f}, {std::nanf("")}, {}}, {1, 9, 9, 9});
  test.args.options.floor = 1;
  EXPECT_EQ(test.run(BatchRule::algorithm1), (Lengths{1, 1, 0}));
  EXPECT_EQ(test.run(BatchRule::global), (Lengths{1, 1, 0}));
  EXPECT_EQ(test.capacity(), 2);
}

TEST_F(Schedule, TotalsWithoutAPriceAreLeftOut) {
  ScheduleCase test({{1, 1, 1}}, {1, 1, kNaN, 1});
  EXPECT_EQ(test.run(BatchRule::algorithm1), Lengths{1});
  EXPECT_EQ(test.run(BatchRule::global), Lengths{3});
  ScheduleCase none({{1, 1, 1}}, {kNaN, kNaN, kNaN, kNaN});
  none.args.options.last_maximum = true;
  EXPECT_EQ(none.run(BatchRule::algorithm1), Lengths{0});
  EXPECT_EQ(none.run(BatchRule::global), Lengths{0});
  ScheduleCase missing({{1, 1, 1}}, {1, 1});
  EXPECT_EQ(missing.run(BatchRule::global), Lengths{1});
  ScheduleCase empty({{1, 1, 1}}, {});
  EXPECT_EQ(empty.run(BatchRule::global), Lengths{0});
}

TEST_F(Schedule, OfEqualTotalsTheFirstOrTheLast) {
  ScheduleCase test({{1, 1}}, {1, 2, 3});
  EXPECT_EQ(test.run(BatchRule::global), Lengths{0});
  test.args.options.last_maximum = true;
  EXPECT_EQ(test.run(BatchRule::global), Lengths{2});
}

TEST_F(Schedule, TheGainGuardVerifiesAll) {
  ScheduleCase test({{1.0f, 0.5f}, {0.75f, 0.5f}}, {9, 9, 1, 1.25, 1.25});
  test.args.options.floor = 1;
  test.args.options.min_gain = 0.01;
  EXPECT_EQ(test.run(BatchRule::global), (Lengths{1, 1}));
  test.args.options.min_gain = 0.04;
  EXPECT_EQ(test.run(BatchRule::global), (Lengths{2, 2}));
  EXPECT_EQ(test.capacity(), kEveryDraft);
}

TEST_F(Schedule, AGivenCapacityIsFilledByTheCurrentConfidences) {
  ScheduleCase test({{0.9f, 0.9f}, {0.5f, 0.9f}}, {});
  const std::vector<std::pair<std::int32_t, Lengths>> expected = {
      {0, {0, 0}}, {1, {1, 0}},  {2, {2, 0}},          {3, {2, 1}},
      {9, {2, 2}}, {-1, {0, 0}}, {kEveryDraft, {2, 2}}};
  for (const auto& [capacity, lengths] : expected) {
    const Device<std::int32_t> given({capacity});
    test.args.capacity = given.data();
    EXPECT_EQ(test.run(), lengths) << capacity;
    EXPECT_EQ(test.capacity(), capacity);
  }
}

TEST_F(Schedule, BadSlotsAreReportedAndClamped) {
  for (const std::int32_t bad : {-1, 3, std::numeric_limits<std::int32_t>::max(),
                                 std::numeric_limits<std::int32_t>::min()}) {
    ScheduleCase test({{1, 1}, {1, 1}}, {1, 1, 1, 1, 1});
    const Device<std::int32_t> slots({2, bad});
    test.args.step.slots = slots.data();
    EXPECT_EQ(test.run(BatchRule::global), (Lengths{2, bad < 0 ? 0 : 2})) << bad;
    EXPECT_EQ(test.status.values()[0], kOpBadLength) << bad;
  }
}

TEST_F(Schedule, NoRequestsChooseNothing) {
  ScheduleCase test({}, {1});
  test.args.lengths = nullptr;
  test.run();
  EXPECT_EQ(test.capacity(), 0);
}

TEST_F(Schedule, EmptyBlocksGiveEmptyLengths) {
  ScheduleCase test({{}, {}, {}}, {1});
  test.args.options.floor = 1;
  EXPECT_EQ(test.run(BatchRule::algorithm1), (Lengths{0, 0, 0}));
  EXPECT_EQ(test.run(BatchRule::global), (Lengths{0, 0, 0}));
}

/// Lengths by sorting all drafts and walking them, in doubles that are exact: the confidences are
/// powers of two.
struct Oracle {
  std::vector<std::vector<float>> rows;
  std::vector<double> price;

  std::pair<std::int32_t, Lengths> schedule(BatchRule rule) const {
    struct Draft {
      double survival;
      std::size_t position;
      std::size_t request;
    };
    std::vector<Draft> drafts;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      double survival = 1;
      for (std::size_t k = 0; k < rows[r].size(); ++k) {
        survival *= static_cast<double>(rows[r][k]);
        if (survival >= 1e-6) drafts.push_back({survival, k, r});
      }
    }
    std::sort(drafts.begin(), drafts.end(), [](const Draft& a, const Draft& b) {
      if (a.survival != b.survival) return a.survival > b.survival;
      return a.position != b.position ? a.position < b.position : a.request < b.request;
    });
    double tokens = static_cast<double>(rows.size());
    double best = tokens / price[0];
    std::size_t total = 0;
    for (std::size_t n = 1; n <= drafts.size(); ++n) {
      tokens += drafts[n - 1].survival;
      if (tokens / price[n] > best) {
        best = tokens / price[n];
        total = n;
      } else if (rule == BatchRule::algorithm1) {
        break;
      }
    }
    Lengths lengths(rows.size(), 0);
    for (std::size_t n = 0; n < total; ++n) ++lengths[drafts[n].request];
    return {static_cast<std::int32_t>(total), lengths};
  }
};

TEST_F(Schedule, IsTheWalkOverTheSortedDraftsAtEverySize) {
  // One block, small and large, and the whole device; requests of 0 to P drafts.
  const std::vector<std::pair<std::int32_t, std::int32_t>> sizes = {
      {1, 1},   {1, 64},  {3, 7},   {146, 7},  {147, 7}, {64, 64},
      {585, 7}, {65, 64}, {586, 7}, {4096, 7}, {500, 64}};
  Random random(71);
  for (const auto& [requests, positions] : sizes) {
    Oracle oracle;
    std::size_t drafts = 0;
    for (std::int32_t r = 0; r < requests; ++r) {
      std::vector<float> row(
          static_cast<std::size_t>(random.integer(r == 0 ? positions : 0, positions)));
      for (float& c : row) c = std::exp2(-static_cast<float>(random.integer(0, 2)));
      drafts += row.size();
      oracle.rows.push_back(row);
    }
    // Rising, with risers that end Algorithm 1 after a third of the requests.
    double price = 0.05 * requests;
    for (std::size_t n = 0; n <= drafts; ++n) {
      price += (n + 1) % static_cast<std::size_t>(16 + requests / 3) == 0 ? 0.9 : 0.002;
      oracle.price.push_back(price);
    }
    ScheduleCase test(oracle.rows, oracle.price);
    for (const BatchRule rule : {BatchRule::algorithm1, BatchRule::global}) {
      const auto [total, lengths] = oracle.schedule(rule);
      SCOPED_TRACE(testing::Message() << "R = " << requests << ", P = " << positions
                                      << (rule == BatchRule::global ? ", global" : ", algorithm1"));
      const Lengths got = test.run(rule);
      EXPECT_EQ(test.capacity(), total);
      const auto [mine, theirs] = std::mismatch(got.begin(), got.end(), lengths.begin());
      EXPECT_TRUE(mine == got.end()) << "request " << mine - got.begin() << " has " << *mine
                                     << " drafts where " << *theirs << " are right";
    }
  }
}

}  // namespace
}  // namespace dspark::test
