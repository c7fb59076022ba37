#include "policy/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "policy/survival.h"
#include "tests/policy/batch_case.h"

namespace dspark {
namespace {

using test::BatchCase;
using Lengths = std::vector<std::int32_t>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr float kNoConfidence = std::numeric_limits<float>::quiet_NaN();
/// Weights are multiples of 2^-40: what a step promises is off by less than this.
constexpr double kWeightError = 1e-11;
constexpr std::uint64_t kCases = 20000;

struct Scheduled {
  Capacity capacity;
  Lengths lengths;
};

Scheduled schedule(const BatchCase& batch, const std::vector<double>& price,
                   const BatchOptions& options) {
  BatchWorkspace workspace;
  Scheduled out;
  out.lengths.assign(batch.requests(), -1);
  out.capacity = batch_capacity(batch.step(), price, options, workspace);
  allocate(batch.step(), out.capacity.drafts, options, out.lengths, workspace);
  return out;
}

Lengths allocated(const BatchCase& batch, std::int32_t capacity, const BatchOptions& options = {}) {
  BatchWorkspace workspace;
  Lengths lengths(batch.requests(), -1);
  allocate(batch.step(), capacity, options, lengths, workspace);
  return lengths;
}

BatchOptions options_of(BatchRule rule, std::int32_t floor = 0) {
  BatchOptions options;
  options.rule = rule;
  options.floor = floor;
  return options;
}

/// The largest Θ of all length vectors that keep the floor.
double best_theta(const BatchCase& batch, const std::vector<double>& price, std::int32_t floor) {
  double best = 0;
  test::for_each_lengths(batch, [&](const Lengths& lengths) {
    for (std::size_t r = 0; r < lengths.size(); ++r) {
      if (lengths[r] < std::min(floor, batch.slots[r])) return;
    }
    best = std::max(best, test::theta_of(batch, price, lengths));
  });
  return best;
}

/// Θ along falling survival from the floor on, by sorting doubles.
std::vector<double> thetas_on_path(const BatchCase& batch, const std::vector<double>& price,
                                   std::int32_t floor) {
  double tokens = static_cast<double>(batch.requests());
  std::size_t total = 0;
  std::vector<double> rest;
  for (std::size_t r = 0; r < batch.requests(); ++r) {
    for (std::int32_t k = 0; k < batch.slots[r]; ++k) {
      const auto survival = static_cast<double>(batch.survival(r, k));
      if (k < floor) {
        tokens += survival;
        ++total;
      } else {
        rest.push_back(survival);
      }
    }
  }
  std::sort(rest.rbegin(), rest.rend());
  std::vector<double> thetas = {tokens / price[total]};
  for (const double survival : rest) {
    tokens += survival;
    thetas.push_back(tokens / price[++total]);
  }
  return thetas;
}

/// Strictly up to the peak, never above it afterwards.
bool is_unimodal(const std::vector<double>& thetas) {
  const auto peak = std::max_element(thetas.begin(), thetas.end());
  return std::adjacent_find(thetas.begin(), peak + 1, std::greater_equal<>()) == peak + 1;
}

// For every total the path holds an optimum: of all sets of n drafts the n largest survivals
// promise most, and as survival never rises along a request they can be taken as prefixes. So the
// best total of the path is the best of all length vectors.
TEST(Global, IsTheOptimumOfAllLengthVectors) {
  for (std::uint64_t number = 0; number < kCases; ++number) {
    const BatchCase batch = test::random_case(number);
    const std::vector<double> price = test::random_steps(number, batch.drafts());
    for (const std::int32_t floor : {0, 1}) {
      const BatchOptions options = options_of(BatchRule::global, floor);
      const Scheduled got = schedule(batch, price, options);
      const double best = best_theta(batch, price, floor);
      ASSERT_NEAR(test::theta_of(batch, price, got.lengths), best, kWeightError)
          << "case " << number << ", floor " << floor;
      ASSERT_NEAR(got.capacity.score, best, kWeightError) << number;
      ASSERT_EQ(test::total_of(got.lengths), got.capacity.drafts) << number;
    }
  }
}

TEST(Algorithm1, IsTheOptimumWhereThetaIsUnimodalAndNeverAboveIt) {
  int unimodal = 0;
  int below = 0;
  for (std::uint64_t number = 0; number < kCases; ++number) {
    const BatchCase batch = test::random_case(number);
    const std::vector<double> price = test::random_steps(number, batch.drafts());
    for (const std::int32_t floor : {0, 1}) {
      const Scheduled got = schedule(batch, price, options_of(BatchRule::algorithm1, floor));
      const double theta = test::theta_of(batch, price, got.lengths);
      const double best = best_theta(batch, price, floor);
      ASSERT_LE(theta, best + kWeightError) << number;
      ASSERT_NEAR(theta, got.capacity.score, kWeightError) << number;
      if (is_unimodal(thetas_on_path(batch, price, floor))) {
        ++unimodal;
        ASSERT_NEAR(theta, best, kWeightError) << number;
      } else if (theta < best - kWeightError) {
        ++below;
      }
    }
  }
  EXPECT_GT(unimodal, 5000);
  EXPECT_GT(below, 1000) << "the cases must show what stopping early costs";
}

// Its appendix A: 1, 2 and 3 tokens take 1, 2 and 1 / 0.45; Θ is 1, 0.9 and 1.134.
TEST(Algorithm1, StopsAtTheFirstDraftOnThePapersCurve) {
  const std::vector<double> price = {1.0, 2.0, 1 / 0.45};
  const BatchCase sure({{0.8f, 0.9f}});
  EXPECT_EQ(schedule(sure, price, options_of(BatchRule::algorithm1)).lengths, Lengths{0});
  const Scheduled global = schedule(sure, price, options_of(BatchRule::global));
  EXPECT_EQ(global.lengths, Lengths{2});
  EXPECT_NEAR(global.capacity.score, 1.134, 1e-6);
  // Were the first draft another, its second confidence 0: the argmax looks back and verifies none.
  EXPECT_EQ(schedule(BatchCase({{0.8f, 0.0f}}), price, options_of(BatchRule::global)).lengths,
            Lengths{0});
}

TEST(Algorithm1, EndsAtADraftThatIsNoBetterThoughALaterOneWouldBe) {
  const BatchCase sure({{1.0f, 1.0f}});
  EXPECT_EQ(schedule(sure, {1, 2, 2}, options_of(BatchRule::algorithm1)).lengths, Lengths{0});
  EXPECT_EQ(schedule(sure, {1, 1.9, 2}, options_of(BatchRule::algorithm1)).lengths, Lengths{2});
}

TEST(Algorithm1, EndsAtATotalThatCannotBeChosen) {
  const BatchCase sure({{1.0f, 1.0f, 1.0f}});
  EXPECT_EQ(schedule(sure, {1, 1, kNaN, 1}, options_of(BatchRule::algorithm1)).lengths, Lengths{1});
  EXPECT_EQ(schedule(sure, {kNaN, 1, 1, 9}, options_of(BatchRule::algorithm1)).lengths, Lengths{2});
  EXPECT_EQ(schedule(sure, {1, 1}, options_of(BatchRule::algorithm1)).lengths, Lengths{1});
}

TEST(Algorithm1, DecidesOnADraftWithoutLookingAtLaterOnes) {
  for (std::uint64_t number = 0; number < 2000; ++number) {
    const BatchCase batch = test::random_case(number);
    const std::vector<double> price = test::random_steps(number, batch.drafts());
    const BatchOptions options = options_of(BatchRule::algorithm1);
    const Lengths lengths = schedule(batch, price, options).lengths;
    for (std::size_t r = 0; r < batch.requests(); ++r) {
      // Behind the first draft that was not admitted anything may stand.
      for (std::int32_t k = lengths[r] + 1; k < batch.slots[r]; ++k) {
        for (const float other : {0.0f, 0.5f, 1.0f}) {
          BatchCase changed = batch;
          changed.confidence[r * static_cast<std::size_t>(batch.positions) +
                             static_cast<std::size_t>(k)] = other;
          ASSERT_EQ(schedule(changed, price, options).lengths, lengths) << number;
        }
      }
    }
  }
}

TEST(Global, LeavesOutTotalsThatCannotBeChosen) {
  const BatchCase sure({{1.0f, 1.0f, 1.0f}});
  const BatchOptions options = options_of(BatchRule::global);
  EXPECT_EQ(schedule(sure, {1, 1, 1, kNaN}, options).lengths, Lengths{2});
  EXPECT_EQ(schedule(sure, {1, kNaN, 0, -1}, options).lengths, Lengths{0});
  EXPECT_EQ(schedule(sure, {1, 1}, options).lengths, Lengths{1}) << "no price behind the table";
}

TEST(Global, KeepsTheFloorWhereNothingHasAPrice) {
  BatchOptions options = options_of(BatchRule::global, 1);
  options.last_maximum = true;
  const Scheduled got = schedule(BatchCase({{1.0f, 1.0f}, {}}), {kNaN, kNaN, kNaN}, options);
  EXPECT_EQ(got.lengths, (Lengths{1, 0}));
  EXPECT_EQ(got.capacity, (Capacity{1, -1}));
}

TEST(Global, TakesTheFirstOfEqualMaximaOrTheLast) {
  // Each certain draft costs as much as the step before it was worth: Θ is 1 throughout.
  const BatchCase sure({{1.0f, 1.0f}});
  BatchOptions options = options_of(BatchRule::global);
  EXPECT_EQ(schedule(sure, {1, 2, 3}, options).lengths, Lengths{0});
  options.last_maximum = true;
  EXPECT_EQ(schedule(sure, {1, 2, 3}, options).lengths, Lengths{2});
}

// TensorRT-LLM A: floor 1, R = 2; tokens 2 + 1 + 0.75 at the floor, then 0.5, 0.375.
TEST(Global, GainGuardVerifiesAllUnlessTheBestIsThatMuchBetter) {
  const BatchCase batch({{1.0f, 0.5f}, {0.75f, 0.5f}});
  BatchOptions options = options_of(BatchRule::global, 1);
  const std::vector<double> price = {9, 9, 1, 1.25, 1.25};  // Θ: 3.75, 3.4, 3.7
  EXPECT_EQ(schedule(batch, price, options).capacity, (Capacity{2, 3.75}));
  options.min_gain = 0.01;  // 3.7 · 1.01 = 3.737
  EXPECT_EQ(schedule(batch, price, options).capacity, (Capacity{2, 3.75}));
  options.min_gain = 0.04;  // 3.848
  const Scheduled guarded = schedule(batch, price, options);
  EXPECT_EQ(guarded.capacity.drafts, kEveryDraft);
  EXPECT_EQ(guarded.lengths, (Lengths{2, 2}));
}

TEST(Global, GainGuardLeavesTheTotalOfAllDraftsAsItIs) {
  BatchOptions options = options_of(BatchRule::global);
  options.min_gain = 0.04;
  EXPECT_EQ(schedule(BatchCase({{0.5f, 0.5f}}), {1, 1, 1}, options).capacity, (Capacity{2, 1.75}));
}

TEST(Global, GainGuardVerifiesEvenWhatIsWorthNothing) {
  BatchOptions options = options_of(BatchRule::global);
  options.min_gain = 0.04;
  const BatchCase batch({{0.5f, 0.0f}});
  EXPECT_EQ(schedule(batch, {1, 1, 1}, options).lengths, Lengths{2});
  EXPECT_EQ(schedule(batch, {1, 1, kNaN}, options).lengths, Lengths{1})
      << "all drafts cannot be chosen";
}

TEST(Global, LooksAtTiersAlone) {
  const BatchCase batch({{1.0f, 1.0f, 1.0f}, {1.0f, 0.5f, 0.5f}});
  BatchWorkspace workspace;
  const std::vector<double> price = {1, 1, 1, 1.1, 1.2, 2.5, 2.6};
  // Drafts by survival 1 1 1 1 0.5 0.25; Θ: 2 3 4 4.54 5 2.6 2.6.
  const auto chosen = [&](const std::vector<std::int32_t>& tiers, bool last) {
    BatchOptions options = options_of(BatchRule::global, 1);
    options.last_maximum = last;
    return global_capacity(batch.step(), price, options, workspace, tiers).drafts;
  };
  EXPECT_EQ(chosen({}, false), 4);
  EXPECT_EQ(chosen({1, 3}, false), 2);
  EXPECT_EQ(chosen({2, 3}, false), 4);
  EXPECT_EQ(chosen({3}, false), 6);
  EXPECT_EQ(chosen({0}, false), 2) << "below the floor there is nothing to choose";
}

TEST(Global, TierBeyondWhatIsWorthVerifyingIsPricedInFull) {
  const BatchCase batch({{1.0f, 1.0f}, {0.0f}});
  BatchWorkspace workspace;
  const std::vector<std::int32_t> tiers = {1, 2};
  const auto capacity = global_capacity(batch.step(), std::vector<double>{1, 1, 1, 1.25},
                                        options_of(BatchRule::global), workspace, tiers);
  EXPECT_EQ(capacity, (Capacity{2, 4.0}));
  // Tier 2 would be 4 drafts, but there are 3.
  EXPECT_EQ(global_capacity(batch.step(), std::vector<double>{1, 1, 9, 1.25},
                            options_of(BatchRule::global), workspace, tiers),
            (Capacity{3, 3.2}));
}

// SGLang: R = 2, survivals 0.5 0.25 and 0.5 0.125; steps per second 4 up to 3 tokens, 3 up to 4,
// then 2. Θ = (2, 2.5, 3, 3.25, 3.375) · (4, 4, 3, 2, 2): the first draft alone, of request 0.
TEST(Global, HasTheBudgetOfSglang) {
  const BatchCase batch({{0.5f, 0.5f}, {0.5f, 0.25f}});
  const Scheduled got =
      schedule(batch, {1 / 4., 1 / 4., 1 / 3., 1 / 2., 1 / 2.}, options_of(BatchRule::global));
  EXPECT_EQ(got.capacity.drafts, 1);
  EXPECT_DOUBLE_EQ(got.capacity.score, 10.0);
  EXPECT_EQ(got.lengths, (Lengths{1, 0}));
  EXPECT_EQ(with_anchor(got.lengths[0]), 2);
}

TEST(Allocate, ByDefaultTiesGoToTheEarlierPosition) {
  const BatchCase sure({{1.0f, 1.0f}, {1.0f, 1.0f}, {0.5f, 1.0f}});
  EXPECT_EQ(allocated(sure, 1), (Lengths{1, 0, 0}));
  EXPECT_EQ(allocated(sure, 2), (Lengths{1, 1, 0}));
  EXPECT_EQ(allocated(sure, 3), (Lengths{2, 1, 0}));
  EXPECT_EQ(allocated(sure, 5), (Lengths{2, 2, 1}));
}

TEST(Allocate, TiesCanGoToTheLowerRequest) {
  const BatchCase sure({{1.0f, 1.0f}, {1.0f, 1.0f}, {0.5f, 1.0f}});
  BatchOptions options;
  options.ties = TieOrder::request_position;
  EXPECT_EQ(allocated(sure, 2, options), (Lengths{2, 0, 0}));
  EXPECT_EQ(allocated(sure, 3, options), (Lengths{2, 1, 0}));
}

TEST(Allocate, FillsByTheCurrentConfidences) {
  BatchWorkspace workspace;
  const std::vector<double> price = {1, 1.1, 1.2, 9, 9};
  const BatchCase before({{0.9f, 0.9f}, {0.1f, 0.1f}});
  const BatchCase now({{0.1f, 0.1f}, {0.9f, 0.9f}});
  const Capacity capacity =
      global_capacity(before.step(), price, options_of(BatchRule::global), workspace);
  EXPECT_EQ(capacity.drafts, 2);
  EXPECT_EQ(allocated(now, capacity.drafts), (Lengths{0, 2}));
}

TEST(Allocate, KeepsTheFloorWhateverTheCapacity) {
  const BatchCase batch({{0.0f, 0.0f}, {0.9f}, {}});
  const BatchOptions options = options_of(BatchRule::global, 1);
  EXPECT_EQ(allocated(batch, 0, options), (Lengths{1, 1, 0}));
  EXPECT_EQ(allocated(batch, 3, options), (Lengths{1, 1, 0})) << "the rest is worth nothing";
  EXPECT_EQ(allocated(batch, kEveryDraft, options), (Lengths{2, 1, 0}));
}

TEST(Allocate, DropsDraftsBelowTheEpsilon) {
  const BatchCase batch({{1e-3f, 1e-3f, 1e-2f}});  // survivals 1e-3, 1e-6 (a little less), 1e-8
  BatchOptions options;
  options.survival_epsilon = 1e-6;
  const std::int32_t above = static_cast<double>(batch.survival(0, 1)) >= 1e-6 ? 2 : 1;
  EXPECT_EQ(allocated(batch, 3, options), Lengths{above});
  options.survival_epsilon = 1e-4;
  EXPECT_EQ(allocated(batch, 3, options), Lengths{1});
  options.survival_epsilon = 0;
  EXPECT_EQ(allocated(batch, 3, options), Lengths{3});
  EXPECT_EQ(allocated(BatchCase({{0.5f, 0.0f}}), 2, options), Lengths{1}) << "0 is never worth it";
}

TEST(Allocate, NaNIsWorthNothingNorWhatFollowsIt) {
  EXPECT_EQ(allocated(BatchCase({{0.5f, kNoConfidence, 1.0f}, {kNoConfidence}}), 9),
            (Lengths{1, 0}));
}

TEST(Allocate, IsTheRankingByItsKeysInRandomCases) {
  for (std::uint64_t number = 0; number < 5000; ++number) {
    const BatchCase batch = test::random_case(number);
    for (const TieOrder ties : {TieOrder::position_request, TieOrder::request_position}) {
      struct Draft {
        float survival;
        std::int32_t position;
        std::size_t request;
      };
      std::vector<Draft> drafts;
      for (std::size_t r = 0; r < batch.requests(); ++r) {
        for (std::int32_t k = 0; k < batch.slots[r]; ++k) {
          drafts.push_back({batch.survival(r, k), k, r});
        }
      }
      std::sort(drafts.begin(), drafts.end(), [&](const Draft& a, const Draft& b) {
        if (a.survival != b.survival) return a.survival > b.survival;
        if (ties == TieOrder::request_position && a.request != b.request) {
          return a.request < b.request;
        }
        return a.position != b.position ? a.position < b.position : a.request < b.request;
      });
      BatchOptions options;
      options.ties = ties;
      Lengths right(batch.requests(), 0);
      for (std::size_t n = 0; n <= drafts.size(); ++n) {
        ASSERT_EQ(allocated(batch, static_cast<std::int32_t>(n), options), right) << number;
        if (n < drafts.size()) ++right[drafts[n].request];
      }
    }
  }
}

TEST(SurvivalPath, AddsUpTheLargestSurvivals) {
  // 400 requests: sorted by digits, not by comparison.
  std::vector<std::vector<float>> rows;
  for (std::uint32_t r = 0; r < 400; ++r) {
    rows.push_back({static_cast<float>(test::keyed_uniform(1, 2 * r)),
                    static_cast<float>(test::keyed_uniform(1, 2 * r + 1))});
  }
  const BatchCase batch(rows);
  std::vector<double> survivals;
  for (std::size_t r = 0; r < batch.requests(); ++r) {
    for (std::int32_t k = 0; k < 2; ++k) {
      survivals.push_back(static_cast<double>(batch.survival(r, k)));
    }
  }
  std::sort(survivals.rbegin(), survivals.rend());
  for (const auto precision : {SurvivalPrecision::f32, SurvivalPrecision::f64}) {
    BatchWorkspace workspace;
    const SurvivalPath path = survival_path(batch.step(), {}, precision, workspace);
    ASSERT_EQ(path.drafts, 800);
    double tokens = 400;
    for (std::int32_t n = 0; n <= path.last; ++n) {
      ASSERT_NEAR(static_cast<double>(path.at(n)) / static_cast<double>(kTokenWeight), tokens, 1e-5)
          << n;
      if (n < path.last) tokens += survivals[static_cast<std::size_t>(n)];
    }
    EXPECT_EQ(path.at(path.last + 1), path.at(path.last));
  }
}

TEST(SurvivalPath, DoesNotDependOnTheOrderOfTheRequests) {
  for (std::uint64_t number = 0; number < 200; ++number) {
    std::vector<std::vector<float>> rows;
    for (std::uint32_t r = 0; r < 90; ++r) {
      rows.push_back({static_cast<float>(test::keyed_uniform(number, 2 * r)),
                      static_cast<float>(test::keyed_uniform(number, 2 * r + 1))});
    }
    BatchWorkspace workspace;
    BatchWorkspace other;
    const BatchCase batch(rows);
    std::reverse(rows.begin(), rows.end());
    const BatchCase reversed(rows);
    const auto a = survival_path(batch.step(), {}, SurvivalPrecision::f32, workspace).tokens;
    const auto b = survival_path(reversed.step(), {}, SurvivalPrecision::f32, other).tokens;
    ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << number;
  }
}

TEST(SurvivalPath, HasTheSurvivalsOfEitherPrecision) {
  const float third = 1.0f / 3;
  const BatchCase batch({{third, third}});
  BatchWorkspace workspace;
  const auto second = [&](SurvivalPrecision precision) {
    const SurvivalPath path = survival_path(batch.step(), {}, precision, workspace);
    return path.at(2) - path.at(1);
  };
  const double exact = static_cast<double>(third) * static_cast<double>(third);
  EXPECT_EQ(second(SurvivalPrecision::f64), survival_weight(exact));
  EXPECT_EQ(second(SurvivalPrecision::f32),
            survival_weight(static_cast<double>(static_cast<float>(exact))));
  EXPECT_NE(second(SurvivalPrecision::f32), second(SurvivalPrecision::f64));
}

TEST(SurvivalPath, OfNothingIsNothing) {
  BatchWorkspace workspace;
  const SurvivalPath path = survival_path({}, {}, SurvivalPrecision::f32, workspace);
  EXPECT_EQ(path.drafts, 0);
  EXPECT_EQ(path.at(0), 0u);
  EXPECT_TRUE(schedule(BatchCase(), {1}, {}).lengths.empty());
}

TEST(Survival, IsWithinZeroAndOneAndNeverRises) {
  EXPECT_EQ(survival_after(0.5f, 2.0f), 0.5f);
  EXPECT_EQ(survival_after(0.5f, -1.0f), 0.0f);
  EXPECT_EQ(survival_after(0.5f, kNoConfidence), 0.0f);
  EXPECT_EQ(survival_weight(1.0), kTokenWeight);
  EXPECT_EQ(survival_weight(0x1p-41), 1u);
  EXPECT_EQ(survival_weight(0x1p-42), 0u);
}

TEST(AdmissionKey, HoldsTheLargestStepAndGivesBackWhatItWasMadeOf) {
  for (const TieOrder ties : {TieOrder::position_request, TieOrder::request_position}) {
    for (const float survival : {1.0f, 0.75f, 1e-6f, std::numeric_limits<float>::denorm_min()}) {
      for (const std::int32_t request : {0, 1, kMaxScheduledRequests - 1}) {
        for (const std::int32_t position : {0, 1, kMaxScheduledPositions - 1}) {
          const std::uint64_t key = admission_key(survival, request, position, ties);
          EXPECT_LT(key, kNoDraft);
          EXPECT_EQ(request_of(key, ties), request);
          EXPECT_EQ(survival_of(key), survival);
        }
      }
    }
  }
}

TEST(FillBucket, VerifiesDraftsInThePaddingOfABucket) {
  const std::vector<std::int32_t> buckets = {8, 16, 32};
  EXPECT_EQ(fill_bucket(3, 4, 28, buckets), 4);    // 7 tokens run as 8
  EXPECT_EQ(fill_bucket(4, 4, 28, buckets), 4);    // 8 are 8
  EXPECT_EQ(fill_bucket(5, 4, 28, buckets), 12);   // 9 run as 16
  EXPECT_EQ(fill_bucket(14, 4, 20, buckets), 20);  // no more than there are
  EXPECT_EQ(fill_bucket(40, 4, 99, buckets), 40);  // above the last bucket
  EXPECT_EQ(fill_bucket(kEveryDraft, 4, 99, buckets), kEveryDraft);
}

TEST(BudgetFraction, IsRoundedDown) {
  EXPECT_EQ(budget_fraction_capacity(0.5, 3, 7), 10);
  EXPECT_EQ(budget_fraction_capacity(1.0, 3, 7), 21);
  EXPECT_EQ(budget_fraction_capacity(2.0, 3, 7), 21);
  EXPECT_EQ(budget_fraction_capacity(-1.0, 3, 7), 0);
  EXPECT_EQ(budget_fraction_capacity(kNaN, 3, 7), 0);
  // By rank of survival: 2 of 4 drafts.
  EXPECT_EQ(allocated(BatchCase({{0.9f, 0.9f}, {0.5f, 0.9f}}), budget_fraction_capacity(0.5, 2, 2)),
            (Lengths{2, 0}));
}

}  // namespace
}  // namespace dspark
