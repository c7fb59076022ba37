// Batch-wide scheduling on both backends.
#include <algorithm>
#include <cmath>

#include "tests/parity/parity.h"

namespace dspark::parity {
namespace {

class ScheduleParity : public Parity {};

/// What the confidences of a step can look like.
enum class Confidences { random, sure, ties, doubtful, nan, all_nan, zeros, beyond_one };

const char* name_of(Confidences kind) {
  switch (kind) {
    case Confidences::random:
      return "random";
    case Confidences::sure:
      return "sure";
    case Confidences::ties:
      return "ties";
    case Confidences::doubtful:
      return "doubtful";
    case Confidences::nan:
      return "some NaN";
    case Confidences::all_nan:
      return "all NaN";
    case Confidences::zeros:
      return "zeros";
    default:
      return "beyond 1";
  }
}

float confidence_of(Numbers& numbers, Confidences kind) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float u = numbers.uniform();
  switch (kind) {
    case Confidences::sure:
      return 1.0f - u * 1e-3f;
    case Confidences::ties:
      return 0.25f * static_cast<float>(1 + numbers.below(4));
    case Confidences::doubtful:
      return u * u * u * u;
    case Confidences::nan:
      return numbers.below(12) == 0 ? nan : 0.5f + 0.5f * u;
    case Confidences::all_nan:
      return nan;
    case Confidences::zeros:
      return numbers.below(4) == 0 ? 0.0f : 1.0f;
    case Confidences::beyond_one:
      return 3.0f * u - 1.0f;
    default:
      return 0.5f + 0.5f * u;
  }
}

/// One step, and how it is scheduled.
struct ScheduledStep {
  std::int32_t requests;
  std::int32_t positions;
  Confidences kind;
  std::vector<float> confidence;
  std::vector<std::int32_t> slots;
  std::vector<double> price;

  ScheduledStep(std::int32_t r, std::int32_t p, Confidences k, std::uint64_t seed)
      : requests(r), positions(p), kind(k) {
    Numbers numbers(seed);
    for (std::int32_t i = 0; i < requests * (positions + 2); ++i) {
      confidence.push_back(confidence_of(numbers, kind));
    }
    for (std::int32_t i = 0; i < requests; ++i) {
      // Most blocks are whole, some cut, some empty; now and then a number that is none.
      const std::int32_t draw = numbers.below(40);
      slots.push_back(draw < 4     ? 0
                      : draw < 10  ? numbers.below(positions + 1)
                      : draw == 10 ? positions + 1
                                   : positions);
    }
    // A riser for about every R drafts, so that the walks end early and late.
    double cost = 1 + 0.1 * requests;
    for (std::int32_t n = 0; n <= requests * positions; ++n) {
      const bool riser = numbers.below(requests + 8) == 0;
      cost += riser ? 0.4 * static_cast<double>(numbers.uniform()) : 0.01;
      const bool none = kind == Confidences::nan && numbers.below(50) == 0;
      price.push_back(none ? std::nan("") : cost);
    }
  }

  void run(Side& side, const BatchOptions& options, const std::string& output,
           const std::int32_t* capacity = nullptr) const {
    const auto count = static_cast<std::size_t>(requests);
    BatchScheduleArgs args;
    args.step = {requests, positions, positions + 2, side.put(confidence), side.put(slots)};
    args.price = {side.put(price), static_cast<std::int64_t>(price.size())};
    args.options = options;
    args.capacity = capacity;
    args.chosen = side.make<std::int32_t>(1);
    args.lengths = side.make<std::int32_t>(count);
    args.status = side.status();
    side.backend.batch_schedule(args);
    side.get(output + "chosen", args.chosen, 1);
    side.get(output + "lengths", args.lengths, count);
    side.get(output + "status", args.status, 1);
  }

  std::string text() const {
    return "R=" + std::to_string(requests) + " P=" + std::to_string(positions) + " " +
           name_of(kind);
  }
};

std::string text_of(const BatchOptions& options) {
  return std::string(options.rule == BatchRule::global ? "global" : "algorithm1") + " floor " +
         std::to_string(options.floor) + " epsilon " + std::to_string(options.survival_epsilon) +
         " gain " + std::to_string(options.min_gain) +
         (options.ties == TieOrder::position_request ? " by position" : " by request") +
         (options.last_maximum ? " last" : "");
}

std::vector<BatchOptions> all_options() {
  std::vector<BatchOptions> out;
  for (const TieOrder ties : {TieOrder::position_request, TieOrder::request_position}) {
    for (const std::int32_t floor : {0, 1}) {
      for (const double epsilon : {0.0, 1e-6, 0.3}) {
        BatchOptions options;
        options.ties = ties;
        options.floor = floor;
        options.survival_epsilon = epsilon;
        options.rule = BatchRule::algorithm1;
        out.push_back(options);
        options.rule = BatchRule::global;
        out.push_back(options);
        options.last_maximum = true;
        options.min_gain = 0.04;
        out.push_back(options);
      }
    }
  }
  return out;
}

const std::vector<Confidences> kKinds = {
    Confidences::random, Confidences::sure,    Confidences::ties,  Confidences::doubtful,
    Confidences::nan,    Confidences::all_nan, Confidences::zeros, Confidences::beyond_one};

TEST_F(ScheduleParity, EveryOptionOfStepsOfOneBlock) {
  for (const std::int32_t requests : cases({1, 2, 33, 64}, {33})) {
    for (const std::int32_t positions : cases({1, 7, 64}, {7})) {
      for (const Confidences kind : kKinds) {
        const ScheduledStep step(requests, positions, kind, static_cast<std::uint64_t>(requests));
        for (const BatchOptions& options : all_options()) {
          same(step.text() + " " + text_of(options),
               [&](Side& side) { step.run(side, options, ""); });
        }
      }
    }
  }
}

TEST_F(ScheduleParity, StepsAroundAndBeyondOneBlock) {
  struct Size {
    std::int32_t requests;
    std::int32_t positions;
  };
  // 1024 and 4096 drafts are the largest of either block.
  for (const Size size : cases<Size>({{146, 7},
                                      {147, 7},
                                      {16, 64},
                                      {585, 7},
                                      {586, 7},
                                      {64, 64},
                                      {65, 64},
                                      {1000, 7},
                                      {4096, 7},
                                      {4096, 64},
                                      {65536, 1}},
                                     {{586, 7}})) {
    for (const Confidences kind : kKinds) {
      const ScheduledStep step(size.requests, size.positions, kind, 5);
      BatchOptions options;
      for (const BatchRule rule : {BatchRule::algorithm1, BatchRule::global}) {
        for (const std::int32_t floor : {0, 1}) {
          options.rule = rule;
          options.floor = floor;
          options.ties = floor == 0 ? TieOrder::position_request : TieOrder::request_position;
          same(step.text() + " " + text_of(options),
               [&](Side& side) { step.run(side, options, ""); });
        }
      }
      options.min_gain = 0.5;
      same(step.text() + " " + text_of(options), [&](Side& side) { step.run(side, options, ""); });
    }
  }
}

TEST_F(ScheduleParity, GivenCapacities) {
  for (const std::int32_t requests : cases({5, 64, 1500}, {64})) {
    const ScheduledStep step(requests, 7, Confidences::ties, 11);
    for (const std::int32_t capacity :
         {-3, 0, 1, requests, 3 * requests + 1, 8 * requests, kEveryDraft}) {
      BatchOptions options;
      options.floor = capacity % 2 == 0 ? 0 : 1;
      same(step.text() + " capacity " + std::to_string(capacity), [&](Side& side) {
        step.run(side, options, "", side.put(std::vector<std::int32_t>{capacity}));
      });
    }
  }
}

TEST_F(ScheduleParity, CapacityOfAnEarlierStepStaysOnTheDevice) {
  for (const std::int32_t requests : cases({9, 1500}, {9})) {
    const ScheduledStep before(requests, 7, Confidences::random, 12);
    const ScheduledStep now(requests, 7, Confidences::ties, 13);
    same(before.text() + " then " + now.text(), [&](Side& side) {
      BatchScheduleArgs args;
      auto* chosen = side.make<std::int32_t>(1);
      args.step = {requests, 7, 9, side.put(before.confidence), side.put(before.slots)};
      args.price = {side.put(before.price), static_cast<std::int64_t>(before.price.size())};
      args.chosen = chosen;
      args.lengths = side.make<std::int32_t>(static_cast<std::size_t>(requests));
      side.backend.batch_schedule(args);
      now.run(side, {}, "", chosen);
    });
  }
}

}  // namespace
}  // namespace dspark::parity
