#include "replay/rounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backends/cpu/cpu_backend.h"
#include "support/error.h"
#include "tests/support/temporary_folder.h"
#include "trace/writer.h"

namespace dspark {
namespace {

/// Rounds over four tokens and two slots, without heads, all rows flat: a uniform u draws token
/// floor(4 u), every draft is accepted, and each test spoils what it is about.
struct FlatRounds {
  static constexpr std::int64_t kVocab = 4, kBlock = 2;
  static constexpr double kTemperature = 2;
  RoundRecords records;
  std::vector<float> draft_logits, target_logits;  ///< [M, P, V], [M, P + 1, V]

  /// A round that drafts 0 and 1, accepts both and emits 3.
  std::size_t add() {
    const std::size_t m = records.request.size();
    const auto append = [](auto& to, std::initializer_list<double> values) {
      for (const double value : values)
        to.push_back(static_cast<typename std::decay_t<decltype(to)>::value_type>(value));
    };
    records.request.push_back(static_cast<std::int32_t>(m));
    append(records.round, {0});
    append(records.anchor_token, {2});
    append(records.draft_tokens, {0, 1});
    append(records.proposal_length, {2});
    append(records.accept_length, {3});
    append(records.accepted_tokens, {0, 1, 3});
    append(records.proposal_uniforms, {0.125, 0.375});
    append(records.accept_uniforms, {0.5, 0.5, 0.625, 0.625, 0.875});
    draft_logits.resize(draft_logits.size() + kBlock * kVocab, 0.0f);
    target_logits.resize(target_logits.size() + (kBlock + 1) * kVocab, 0.0f);
    return m;
  }
  void outcome(std::size_t m, const std::vector<std::int32_t>& emitted) {
    records.accept_length[m] = static_cast<std::int32_t>(emitted.size());
    for (std::size_t i = 0; i < 3; ++i)
      records.accepted_tokens[m * 3 + i] = i < emitted.size() ? emitted[i] : -1;
  }
  float& target(std::size_t m, std::size_t row, std::size_t token) {
    return target_logits[(m * 3 + row) * 4 + token];
  }
  float& draft(std::size_t m, std::size_t slot, std::size_t token) {
    return draft_logits[(m * 2 + slot) * 4 + token];
  }

  [[nodiscard]] RoundTable replay(std::int64_t chunk = 0,
                                  Verification verification = Verification::probabilistic) const {
    const test::TemporaryFolder folder;
    const std::string path = folder.file("rounds.h5");
    const auto count = static_cast<std::int64_t>(records.request.size());
    TraceHeader header;
    header.kind = TraceKind::rounds;
    header.vocab_size = header.vocab_size_logical = kVocab;
    header.block_size = kBlock;
    header.temperature = verification == Verification::greedy ? 0 : kTemperature;
    TraceWriter writer(path, header, count);
    writer.write(records);
    writer.create(RowData::draft_logits, StoredType::f32);
    writer.append(RowData::draft_logits, draft_logits.data(), count);
    writer.create(RowData::target_logits, StoredType::f32);
    writer.append(RowData::target_logits, target_logits.data(), count);
    writer.commit();
    const auto trace = TraceFile::open(path);
    const auto backend = make_cpu_backend(1);
    ReplayOptions options;
    options.chunk = chunk;
    return replay_rounds(*backend, *trace, Heads{}, {header.temperature, 0, 1, "water_filling"},
                         verification, options, true);
  }
};

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMasked = -std::numeric_limits<float>::infinity();

TEST(RoundsReplay, WhatWasRecordedIsReproducedWhateverTheChunk) {
  FlatRounds rounds;
  rounds.add();
  const std::size_t rejected = rounds.add();  // slot 2, then the residual uniform 0.625 draws 2
  rounds.target(rejected, 1, 1) = kMasked;
  rounds.draft(rejected, 1, 2) = rounds.draft(rejected, 1, 3) = kMasked;
  rounds.records.proposal_uniforms[rejected * 2 + 1] = 0.75f;
  rounds.outcome(rejected, {0, 3});
  const std::size_t unverified = rounds.add();  // length 0: the bonus uniform draws from row 0
  rounds.records.proposal_length[unverified] = 0;
  rounds.outcome(unverified, {3});
  for (const std::int64_t chunk : {0, 1, 2}) {
    const RoundTable table = rounds.replay(chunk);
    for (const RoundOutcome& round : table.rounds) {
      EXPECT_TRUE(round.reproduced);
      EXPECT_EQ(round.diverged_slot, 0);
      EXPECT_FALSE(round.censored);
    }
    EXPECT_EQ(table.rounds[rejected].accepted, 1);
    EXPECT_EQ(table.rounds[unverified].accepted, 2);  // had they been verified
  }
}

TEST(RoundsReplay, AnotherOutcomeThanTheUniformsSayIsNotReproduced) {
  FlatRounds rounds;
  rounds.outcome(rounds.add(), {0, 1, 2});
  rounds.outcome(rounds.add(), {0, 3});
  const std::size_t unverified = rounds.add();
  rounds.records.proposal_length[unverified] = 0;
  rounds.outcome(unverified, {2});
  for (const RoundOutcome& round : rounds.replay().rounds) {
    EXPECT_FALSE(round.reproduced);
    EXPECT_EQ(round.diverged_slot, 0);
  }
}

TEST(RoundsReplay, ADivergedDraftIsCensoredOnlyIfItIsAccepted) {
  FlatRounds rounds;
  const std::size_t accepted = rounds.add();
  const std::size_t rejected = rounds.add();
  rounds.target(rejected, 0, 0) = kMasked;
  for (const std::size_t m : {accepted, rejected}) rounds.records.draft_tokens[m * 2] = 2;
  const RoundTable table = rounds.replay();
  EXPECT_EQ(table.rounds[accepted].diverged_slot, 1);
  EXPECT_EQ(table.rounds[accepted].accepted, 1);
  EXPECT_TRUE(table.rounds[accepted].censored);
  EXPECT_EQ(table.rounds[rejected].diverged_slot, 1);
  EXPECT_EQ(table.rounds[rejected].accepted, 0);
  EXPECT_FALSE(table.rounds[rejected].censored);
}

TEST(RoundsReplay, AnInvalidRowCutsItsBlock) {
  FlatRounds rounds;
  const std::size_t bonus = rounds.add();
  rounds.target(bonus, 2, 0) = kNaN;
  rounds.outcome(bonus, {0, 1, 0});  // what a row without weights would give
  const std::size_t target = rounds.add();
  rounds.target(target, 1, 3) = kNaN;
  const std::size_t draft = rounds.add();
  rounds.draft(draft, 0, 3) = kNaN;
  rounds.add();
  const RoundTable table = rounds.replay();
  EXPECT_EQ(table.invalid_rows, 3);
  EXPECT_NE(table.first_problem.find("NaN"), std::string::npos);
  const std::vector<std::int32_t> slots = {2, 1, 0, 2};
  for (std::size_t m = 0; m < slots.size(); ++m) {
    EXPECT_EQ(table.rounds[m].slots, slots[m]) << m;
    EXPECT_EQ(table.rounds[m].reproduced, m == 3) << m;
    EXPECT_LE(table.rounds[m].accepted, slots[m]) << m;
  }
}

TEST(RoundsReplay, TopProbabilitiesAreThoseOfTheDraftLawsOrOfThePlainSoftmaxOfGreedyOnes) {
  FlatRounds rounds;
  rounds.add();
  const std::size_t sharp = rounds.add();
  rounds.draft(sharp, 0, 0) = 4;
  rounds.draft(sharp, 1, 1) = -2;
  const std::size_t invalid = rounds.add();
  rounds.draft(invalid, 1, 0) = kNaN;
  for (const Verification verification : {Verification::probabilistic, Verification::greedy}) {
    SCOPED_TRACE(verification_name(verification));
    const double t =
        verification == Verification::greedy ? 1 : FlatRounds::kTemperature;  // of the softmax
    for (const std::int64_t chunk : {0, 1, 2}) {
      const std::vector<float> top = rounds.replay(chunk, verification).top_probability;
      ASSERT_EQ(top.size(), 6u);
      EXPECT_EQ(top[0], 0.25f);
      EXPECT_EQ(top[1], 0.25f);
      EXPECT_NEAR(top[2], 1 / (1 + 3 * std::exp(-4 / t)), 1e-6);
      EXPECT_NEAR(top[3], 1 / (3 + std::exp(-2 / t)), 1e-6);
      EXPECT_EQ(top[4], 0.25f);
      EXPECT_TRUE(std::isnan(top[5]));
    }
  }
}

TEST(RoundsReplay, WithoutAValidFirstRowThereIsNothingToReplay) {
  FlatRounds rounds;
  rounds.target(rounds.add(), 0, 1) = kNaN;
  try {
    static_cast<void>(rounds.replay());
    FAIL() << "replayed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::trace);
  }
}

RoundTable table_of(std::vector<RoundOutcome> rounds, std::vector<float> confidence) {
  RoundTable table;
  table.block_size = 3;
  table.has_confidence = true;
  table.rounds = std::move(rounds);
  table.confidence = std::move(confidence);
  return table;
}

TEST(RoundsEvaluation, AShorterLengthCutsWhatWasAccepted) {
  const RoundTable table = table_of({{.slots = 3, .accepted = 2}, {.slots = 3, .accepted = 0}},
                                    {0.9f, 0.9f, 0.1f, 0.9f, 0.1f, 0.1f});
  EXPECT_DOUBLE_EQ(*evaluate_rounds(table, FixedLength{3}, {}).tau, (3 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(*evaluate_rounds(table, FixedLength{1}, {}).tau, (2 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(*evaluate_rounds(table, NoSpeculation{}, {}).tau, 1);
  const PolicyResult threshold =
      evaluate_rounds(table, Threshold{ThresholdRule::per_position, 0.5, 0, 0}, {});
  EXPECT_DOUBLE_EQ(*threshold.verified_per_round, (2 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(*threshold.tau, (3 + 1) / 2.0);
}

TEST(RoundsEvaluation, ARuleOfTopProbabilitiesSeesThoseAndNotConfidences) {
  RoundTable table = table_of({{.slots = 3, .accepted = 2}, {.slots = 3, .accepted = 0}},
                              std::vector<float>(6, 0.9f));
  EXPECT_THROW(static_cast<void>(evaluate_rounds(table, SoftmaxMin{0.5, 0}, {})), Error);
  table.top_probability = {0.6f, 0.4f, 0.9f, 0.9f, 0.7f, 0.5f};
  const PolicyResult row = evaluate_rounds(table, SoftmaxMin{0.5, 0}, {});
  EXPECT_DOUBLE_EQ(*row.verified_per_round, (1 + 3) / 2.0);
  EXPECT_DOUBLE_EQ(*row.tau, (2 + 1) / 2.0);
}

TEST(RoundsEvaluation, CensoredRoundsGiveABracketOnlyWhereALengthReachesPastThem) {
  const RoundTable table =
      table_of({{.slots = 3, .accepted = 1, .diverged_slot = 1, .censored = true},
                {.slots = 3, .accepted = 0}},
               std::vector<float>(6, 0.5f));
  const PolicyResult full = evaluate_rounds(table, FixedLength{3}, {});
  EXPECT_EQ(*full.censored_rounds, 1);
  EXPECT_DOUBLE_EQ(*full.tau_lo, (2 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(*full.tau_hi, (4 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(*full.tau, *full.tau_lo);
  const PolicyResult one = evaluate_rounds(table, FixedLength{1}, {});
  EXPECT_FALSE(one.censored_rounds.has_value());
  EXPECT_DOUBLE_EQ(*one.tau, (2 + 1) / 2.0);
}

TEST(RoundsEvaluation, RoundsWithoutAValidRowAreLeftOut) {
  const RoundTable table =
      table_of({{.slots = 0}, {.slots = 3, .accepted = 3}}, std::vector<float>(6, 0.5f));
  EXPECT_DOUBLE_EQ(*evaluate_rounds(table, FixedLength{3}, {}).tau, 4);
  EXPECT_DOUBLE_EQ(*evaluate_rounds(table, FixedLength{3}, {}).rounds, 1);
}

TEST(RoundPositions, ConditionalIsAmongRoundsThatReachTheSlot) {
  const RoundTable table = table_of(
      {{.slots = 3, .accepted = 2}, {.slots = 3, .accepted = 0}, {.slots = 3, .accepted = 1}},
      std::vector<float>(9, 0.5f));
  const std::vector<PositionResult> at = round_positions(table);
  EXPECT_DOUBLE_EQ(*at[0].survival, 2.0 / 3);
  EXPECT_DOUBLE_EQ(*at[1].survival, 1.0 / 3);
  EXPECT_DOUBLE_EQ(*at[1].conditional, 1.0 / 2);
  EXPECT_DOUBLE_EQ(*at[2].conditional, 0.0);
  EXPECT_DOUBLE_EQ(*at[1].predicted, 0.25);
  EXPECT_DOUBLE_EQ(*at[1].predicted_conditional, 0.5);
}

}  // namespace
}  // namespace dspark
