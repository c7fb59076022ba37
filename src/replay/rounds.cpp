#include "replay/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "core/random.h"
#include "replay/chunk_stream.h"
#include "replay/device_data.h"
#include "replay/open_loop.h"
#include "replay/pass.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

/// A uniform on the 2^-24 grid, keyed.
float keyed_uniform(std::uint64_t seed, std::int32_t request, std::int32_t round, std::int32_t slot,
                    RandomPurpose purpose) {
  const std::uint64_t bits = random_uniform({.seed = seed,
                                             .sequence = static_cast<std::uint64_t>(request),
                                             .position = static_cast<std::uint32_t>(round),
                                             .slot = static_cast<std::uint32_t>(slot),
                                             .purpose = purpose});
  return static_cast<float>(bits >> 40) * 0x1p-24f;
}

class RoundReplayer {
 public:
  RoundReplayer(Backend& backend, TraceFile& trace, const Heads& heads,
                const SamplingLabel& sampling, Verification verification,
                const ReplayOptions& options, bool top_probability)
      : backend_(backend),
        trace_(trace),
        header_(trace.header()),
        options_(options),
        heads_(backend, heads, header_.vocab_size_logical),
        records_(trace.read_round_records(options.memory_budget)),
        greedy_(verification == Verification::greedy),
        vocab_(header_.vocab_size_logical),
        block_(header_.block_size),
        stride_(static_cast<std::size_t>(block_)),
        rule_(sampling_rule(sampling, verification, vocab_)),
        backbone_source_(backend, trace, RowData::draft_logits, RowData::draft_hidden,
                         heads_.draft_lm_head, vocab_, options.products),
        target_source_(backend, trace, RowData::target_logits, RowData::target_hidden,
                       heads_.lm_head, vocab_, options.products),
        status_(backend) {
    const auto rounds = static_cast<std::size_t>(trace.blocks());
    table_.block_size = block_;
    table_.has_confidence =
        trace.row_data(RowData::draft_hidden).has_value() && heads.has_confidence();
    table_.drafts_replayed = greedy_ || !records_.proposal_uniforms.empty();
    table_.outcomes_recorded = greedy_ || !records_.accept_uniforms.empty();
    table_.rounds.resize(rounds);
    table_.request = records_.request;
    constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
    table_.confidence.assign(rounds * stride_, kNone);
    if (top_probability) table_.top_probability.assign(rounds * stride_, kNone);
    sources_ = {{backbone_source_.data()}, {target_source_.data()}};
    if (table_.has_confidence && backbone_source_.stored()) {
      sources_.push_back({RowData::draft_hidden});
    }
    chunk_ = std::min(trace.blocks(), choose_chunk());
    report_memory();
    allocate();
  }

  RoundTable run() {
    const std::int64_t total = trace_.blocks();
    for (std::int64_t first = 0; first < total; first += chunk_) {
      first_ = first;
      count_ = std::min(chunk_, total - first);
      load();
      propose();
      stream_->prefetch();
      score();
      verify();
      status_.require_good_ids();
      if (options_.progress) options_.progress(first + count_, total);
    }
    if (std::none_of(table_.rounds.begin(), table_.rounds.end(),
                     [](const RoundOutcome& round) { return round.slots > 0; })) {
      throw trace_error(header_.file,
                        "no round has a valid first row, so there is nothing to replay",
                        "the first invalid row: " + table_.first_problem);
    }
    const std::string notice = invalid_rows_notice(header_.file, table_);
    if (!notice.empty() && options_.note) options_.note(notice);
    return std::move(table_);
  }

 private:
  [[nodiscard]] std::int64_t choose_chunk() const {
    const std::int64_t most = (std::int64_t{1} << 30) / (block_ + 1);
    if (options_.chunk > 0) return std::min(options_.chunk, most);
    const std::uint64_t stored = ChunkStream::bytes_per_block(trace_, sources_);
    return std::min(most, chunk_within(backend_, options_, rows_per_round(), stored));
  }

  /// Vocabulary-wide rows in backend memory for each round of a chunk.
  [[nodiscard]] std::uint64_t rows_per_round() const {
    const std::int32_t logits =
        backbone_source_.rows_needed() * block_ + target_source_.rows_needed() * (block_ + 1);
    const std::int32_t probabilities = block_ + (greedy_ ? 0 : block_ + 1);
    return static_cast<std::uint64_t>(logits + probabilities + 2) *
           static_cast<std::uint64_t>(vocab_) * sizeof(float);
  }

  void report_memory() const {
    if (!options_.plan) return;
    const auto rounds = static_cast<std::uint64_t>(chunk_);
    const std::uint64_t per_slot =
        sizeof(float) * (table_.top_probability.empty() ? 1 : 2) + sizeof(RoundOutcome) / stride_;
    options_.plan(memory_plan(backend_, header_.file,
                              {.blocks = chunk_,
                               .heads = heads_.bytes,
                               .rows = rows_per_round() * rounds,
                               .stored = ChunkStream::bytes_per_block(trace_, sources_) * rounds,
                               .table = per_slot * table_.confidence.size()}));
  }

  void allocate() {
    const std::int64_t drafts = chunk_ * block_;
    const std::int64_t targets = chunk_ * (block_ + 1);
    stream_.emplace(backend_, trace_, sources_, chunk_);
    backbone_source_.allocate(chunk_);
    target_source_.allocate(chunk_);
    step_logits_ = DeviceRows(backend_, chunk_, vocab_);
    step_probabilities_ = DeviceRows(backend_, chunk_, vocab_);
    draft_probabilities_ = DeviceRows(backend_, drafts, vocab_);
    if (!greedy_) target_probabilities_ = DeviceRows(backend_, targets, vocab_);
    laws_ = DeviceArray<RowLaw>(backend_, targets);
    const auto batch = static_cast<std::int32_t>(chunk_);
    scratch_ = backend_.allocate(
        std::max(build_markov_logits_scratch(batch), row_scan_scratch(chunk_, vocab_)));
    anchors_ = DeviceArray<std::int32_t>(backend_, chunk_);
    drafts_ = DeviceArray<std::int32_t>(backend_, drafts);
    draft_uniforms_ = DeviceArray<float>(backend_, drafts);
    distances_ = DeviceArray<float>(backend_, targets);
    scores_ = DeviceArray<float>(backend_, drafts);
    lengths_ = DeviceArray<std::int32_t>(backend_, chunk_);
    accept_uniforms_ = DeviceArray<float>(backend_, chunk_ * (2 * block_ + 1));
    accepted_ = DeviceArray<std::int32_t>(backend_, targets);
    accept_length_ = DeviceArray<std::int32_t>(backend_, chunk_);
  }

  [[nodiscard]] Scratch scratch() const { return {scratch_.data(), scratch_.bytes()}; }
  [[nodiscard]] RoundOutcome& round(std::int64_t b) {
    return table_.rounds[static_cast<std::size_t>(first_ + b)];
  }
  [[nodiscard]] std::size_t draft_at(std::int64_t m, std::int32_t slot0) const {
    return static_cast<std::size_t>(m) * stride_ + static_cast<std::size_t>(slot0);
  }

  void cut(std::int64_t b, std::int32_t slots, const char* dataset, std::int32_t row,
           std::uint32_t status) {
    ++table_.invalid_rows;
    if (table_.first_problem.empty()) {
      table_.first_problem =
          fmt::format("{}[{}, {}] has {}", dataset, first_ + b, row, invalid_row_reason(status));
    }
    round(b).slots = std::min(round(b).slots, slots);
  }

  void load() {
    stream_->advance();
    backbone_ = backbone_source_.make(stream_->stored(0));
    target_ = target_source_.make(stream_->stored(1));
    for (std::int64_t b = 0; b < count_; ++b) round(b).slots = block_;
  }

  /// Draft tokens and their probabilities; where the drafts cannot be replayed the recorded ones
  /// are taken.
  void propose() {
    const auto m0 = static_cast<std::size_t>(first_);
    const auto count = static_cast<std::size_t>(count_);
    anchors_.upload({records_.anchor_token.begin() + static_cast<std::ptrdiff_t>(m0),
                     records_.anchor_token.begin() + static_cast<std::ptrdiff_t>(m0 + count)});
    std::vector<float> uniforms(count * stride_, 0.0f);
    if (!greedy_ && !records_.proposal_uniforms.empty()) {
      std::copy_n(records_.proposal_uniforms.begin() + static_cast<std::ptrdiff_t>(m0 * stride_),
                  count * stride_, uniforms.begin());
    }
    draft_uniforms_.upload(uniforms);
    std::vector<std::int32_t> recorded(
        records_.draft_tokens.begin() + static_cast<std::ptrdiff_t>(m0 * stride_),
        records_.draft_tokens.begin() + static_cast<std::ptrdiff_t>((m0 + count) * stride_));
    drafts_.upload(recorded);

    const auto batch = static_cast<std::int32_t>(count_);
    const Rows logits = step_logits_.rows(count_);
    const Rows probabilities = step_probabilities_.rows(count_);
    std::vector<RowLaw> law;
    for (std::int32_t step = 0; step < block_; ++step) {
      backend_.build_markov_logits({.batch = batch,
                                    .block_size = block_,
                                    .step = step,
                                    .backbone = backbone_,
                                    .w1 = heads_.markov_w1,
                                    .w2 = heads_.markov_w2,
                                    .first_previous = anchors_.data(),
                                    .draft = drafts_.data(),
                                    .corrected = logits,
                                    .products = options_.products,
                                    .scratch = scratch(),
                                    .status = status_.data()});
      backend_.logits_to_probabilities({.logits = logits,
                                        .rule = rule_,
                                        .probabilities = probabilities,
                                        .laws = laws_.data(),
                                        .status = status_.data()});
      if (table_.drafts_replayed) {
        backend_.sample_probability_rows({.batch = batch,
                                          .block_size = block_,
                                          .step = step,
                                          .probabilities = probabilities,
                                          .uniforms = draft_uniforms_.data(),
                                          .tokens = drafts_.data(),
                                          .distance = distances_.data(),
                                          .scratch = scratch(),
                                          .status = status_.data()});
      }
      backend_.store_draft_step_probabilities(
          {.batch = batch,
           .block_size = block_,
           .step = step,
           .source = probabilities,
           .destination = draft_probabilities_.rows(count_ * block_)});
      laws_.download(law, count_);
      for (std::int64_t b = 0; b < count_; ++b) {
        const RowLaw& row = law[static_cast<std::size_t>(b)];
        if (row.status != kRowValid) {
          if (step < round(b).slots) cut(b, step, draft_name(), step, row.status);
        } else if (greedy_ &&
                   static_cast<double>(row.max_logit) - static_cast<double>(row.second_logit) <
                       kNearTie) {
          tie_slot_[b].push_back(step);
        }
      }
      if (!table_.top_probability.empty()) keep_top_probabilities(logits, step, law);
    }
    drafts_.download(draft_, count_ * block_);
    if (table_.drafts_replayed && !greedy_) {
      std::vector<float> distance;
      distances_.download(distance, count_ * block_);
      for (std::int64_t b = 0; b < count_; ++b) {
        for (std::int32_t step = 0; step < block_; ++step) {
          if (distance[draft_at(b, step)] < static_cast<float>(kNearTie))
            tie_slot_[b].push_back(step);
        }
      }
    }
    for (std::int64_t b = 0; b < count_; ++b) {
      for (std::int32_t step = 0; step < block_ && round(b).diverged_slot == 0; ++step) {
        if (draft_[draft_at(b, step)] != recorded[draft_at(b, step)])
          round(b).diverged_slot = step + 1;
      }
    }
  }

  /// Keeps the top probabilities of the rows of `step`, whose laws under rule_ are `law`. Uses
  /// `laws_` where greedy.
  void keep_top_probabilities(const Rows& logits, std::int32_t step, std::vector<RowLaw>& law) {
    if (rule_.greedy) {
      const SamplingRule rule = top_probability_rule(rule_);
      backend_.row_laws({.logits = logits, .rule = rule, .laws = laws_.view(count_)});
      laws_.download(law, count_);
    }
    for (std::int64_t b = 0; b < count_; ++b) {
      table_.top_probability[draft_at(first_ + b, step)] =
          top_probability(law[static_cast<std::size_t>(b)]);
    }
  }

  void score() {
    if (!table_.has_confidence) return;
    backend_.confidence_scores({.batch = static_cast<std::int32_t>(count_),
                                .block_size = block_,
                                .hidden = stream_->stored(backbone_source_.stored() ? 2 : 0),
                                .w1 = heads_.markov_w1,
                                .weight = heads_.confidence_weight,
                                .bias = heads_.confidence_bias,
                                .first_previous = anchors_.data(),
                                .draft = drafts_.data(),
                                .scores = scores_.data(),
                                .status = status_.data()});
    std::vector<float> confidence;
    scores_.download(confidence, count_ * block_);
    std::copy(confidence.begin(), confidence.end(),
              table_.confidence.begin() + static_cast<std::ptrdiff_t>(first_ * block_));
  }

  void verify() {
    examine_targets();
    upload_accept_uniforms();
    // Everything verified: what any shorter length would have accepted follows from it.
    std::vector<std::int32_t> length(static_cast<std::size_t>(count_), block_);
    std::vector<std::int32_t> emitted, tokens;
    std::vector<float> distance;
    accept(length, emitted, tokens, distance);
    for (std::int64_t b = 0; b < count_; ++b) {
      RoundOutcome& outcome = round(b);
      outcome.accepted = std::min(emitted[static_cast<std::size_t>(b)] - 1, outcome.slots);
      // With a draft that is not the recorded one accepted, the next target row speaks of another
      // text.
      if (outcome.diverged_slot > 0 && outcome.accepted >= outcome.diverged_slot) {
        outcome.accepted = outcome.diverged_slot;
        outcome.censored = true;
      }
      outcome.near_tie = near_tie(b, outcome, distance);
    }
    tie_slot_.clear();
    compare_with_recording();
  }

  [[nodiscard]] const char* draft_name() const {
    return backbone_source_.stored() ? "/rounds/draft_logits" : "/rounds/draft_hidden";
  }
  [[nodiscard]] const char* target_name() const {
    return target_source_.stored() ? "/rounds/target_logits" : "/rounds/target_hidden";
  }

  /// Target laws (validity, margins) and, unless greedy, probabilities.
  void examine_targets() {
    const std::int64_t rows = count_ * (block_ + 1);
    if (greedy_) {
      backend_.row_laws({.logits = target_, .rule = rule_, .laws = laws_.view(rows)});
    } else {
      backend_.logits_to_probabilities({.logits = target_,
                                        .rule = rule_,
                                        .probabilities = target_probabilities_.rows(rows),
                                        .laws = laws_.data(),
                                        .status = status_.data()});
    }
    laws_.download(target_law_, rows);
    for (std::int64_t b = 0; b < count_; ++b) {
      for (std::int32_t i = 0; i <= block_; ++i) {
        const RowLaw& law = target_law(b, i);
        // Row i is read if slot i+1 is verified, or as the bonus row of a full block.
        if (law.status != kRowValid && i <= round(b).slots) {
          cut(b, i, target_name(), i, law.status);
          break;
        }
      }
    }
  }

  [[nodiscard]] const RowLaw& target_law(std::int64_t b, std::int32_t row) const {
    return target_law_[static_cast<std::size_t>(b * (block_ + 1) + row)];
  }

  void upload_accept_uniforms() {
    if (greedy_) return;
    const std::size_t width = 2 * stride_ + 1;
    std::vector<float> uniforms(static_cast<std::size_t>(count_) * width);
    if (!records_.accept_uniforms.empty()) {
      std::copy_n(records_.accept_uniforms.begin() +
                      static_cast<std::ptrdiff_t>(static_cast<std::size_t>(first_) * width),
                  uniforms.size(), uniforms.begin());
    } else {
      for (std::int64_t b = 0; b < count_; ++b) {
        const auto m = static_cast<std::size_t>(first_ + b);
        float* u = uniforms.data() + static_cast<std::size_t>(b) * width;
        for (std::int32_t slot = 1; slot <= block_; ++slot) {
          u[slot - 1] = keyed_uniform(options_.seed, records_.request[m], records_.round[m], slot,
                                      RandomPurpose::accept);
          u[block_ + slot - 1] = keyed_uniform(options_.seed, records_.request[m],
                                               records_.round[m], slot, RandomPurpose::residual);
        }
        u[2 * block_] = keyed_uniform(options_.seed, records_.request[m], records_.round[m], 0,
                                      RandomPurpose::bonus);
      }
    }
    accept_uniforms_.upload(uniforms);
  }

  /// Verifies the first length[b] drafts of every round (each ≥ 1): tokens emitted [B], tokens [B,
  /// P+1], distance to the nearest decision [B] (probabilistic) or [B, P+1] (greedy).
  void accept(const std::vector<std::int32_t>& length, std::vector<std::int32_t>& emitted,
              std::vector<std::int32_t>& tokens, std::vector<float>& distance) {
    lengths_.upload(length);
    const auto batch = static_cast<std::int32_t>(count_);
    if (greedy_) {
      backend_.greedy_accept({.batch = batch,
                              .length = block_,
                              .draft_stride = block_,
                              .logits = target_,
                              .draft = drafts_.data(),
                              .lengths = lengths_.data(),
                              .accepted = accepted_.data(),
                              .accept_length = accept_length_.data(),
                              .margin = distances_.data(),
                              .laws = laws_.data(),
                              .status = status_.data()});
      distances_.download(distance, count_ * (block_ + 1));
    } else {
      backend_.probabilistic_accept({.batch = batch,
                                     .length = block_,
                                     .draft_stride = block_,
                                     .target = target_probabilities_.rows(count_ * (block_ + 1)),
                                     .draft = draft_probabilities_.rows(count_ * block_),
                                     .tokens = drafts_.data(),
                                     .lengths = lengths_.data(),
                                     .uniforms = accept_uniforms_.data(),
                                     .accepted = accepted_.data(),
                                     .accept_length = accept_length_.data(),
                                     .distance = distances_.data(),
                                     .scratch = scratch(),
                                     .status = status_.data()});
      distances_.download(distance, count_);
    }
    accept_length_.download(emitted, count_);
    accepted_.download(tokens, count_ * (block_ + 1));
  }

  [[nodiscard]] bool near_tie(std::int64_t b, const RoundOutcome& outcome,
                              const std::vector<float>& distance) const {
    const std::int32_t used =
        std::min(outcome.accepted + 1, outcome.slots);  // slots whose outcome was decided
    if (const auto it = tie_slot_.find(b); it != tie_slot_.end()) {
      if (std::any_of(it->second.begin(), it->second.end(),
                      [&](std::int32_t step) { return step < used; }))
        return true;
    }
    if (!greedy_) return distance[static_cast<std::size_t>(b)] < static_cast<float>(kNearTie);
    for (std::int32_t i = 0; i <= outcome.accepted && i <= outcome.slots; ++i) {
      if (distance[static_cast<std::size_t>(b * (block_ + 1) + i)] < static_cast<float>(kNearTie))
        return true;
    }
    return false;
  }

  /// Runs the recorded lengths and compares accept length and tokens with the recording.
  void compare_with_recording() {
    std::vector<std::int32_t> length(static_cast<std::size_t>(count_));
    for (std::int64_t b = 0; b < count_; ++b) {
      length[static_cast<std::size_t>(b)] =
          std::max(1, records_.proposal_length[static_cast<std::size_t>(first_ + b)]);
    }
    std::vector<std::int32_t> emitted, tokens;
    std::vector<float> distance;
    accept(length, emitted, tokens, distance);
    const std::vector<std::int32_t> unverified = first_tokens();
    for (std::int64_t b = 0; b < count_; ++b) {
      const auto m = static_cast<std::size_t>(first_ + b);
      RoundOutcome& outcome = round(b);
      const std::int32_t* got = tokens.data() + static_cast<std::size_t>(b * (block_ + 1));
      std::int32_t count = emitted[static_cast<std::size_t>(b)];
      if (records_.proposal_length[m] == 0) {
        got = unverified.data() + static_cast<std::size_t>(b);
        count = 1;
      }
      const std::int32_t* want = records_.accepted_tokens.data() + m * (stride_ + 1);
      outcome.reproduced =
          table_.outcomes_recorded && outcome.diverged_slot == 0 &&
          outcome.slots >= std::min(count, block_) &&
          target_law(b, count - 1).status == kRowValid && count == records_.accept_length[m] &&
          std::equal(got, got + count, want) &&
          std::all_of(want + count, want + block_ + 1, [](std::int32_t t) { return t == -1; });
    }
  }

  /// What a round that verifies nothing emits: the token of its first target row, by argmax or with
  /// the bonus uniform. The accept functions clamp lengths to at least 1 (as the engine's do), so
  /// these rounds sample their row directly. [B]
  std::vector<std::int32_t> first_tokens() {
    std::vector<std::int32_t> token(static_cast<std::size_t>(count_), -1);
    const bool needed =
        std::any_of(records_.proposal_length.begin() + static_cast<std::ptrdiff_t>(first_),
                    records_.proposal_length.begin() + static_cast<std::ptrdiff_t>(first_ + count_),
                    [](std::int32_t length) { return length == 0; });
    if (!needed) return token;
    if (greedy_) {
      for (std::int64_t b = 0; b < count_; ++b)
        token[static_cast<std::size_t>(b)] = target_law(b, 0).argmax;
      return token;
    }
    const std::size_t width = 2 * stride_ + 1;
    std::vector<float> bonus(static_cast<std::size_t>(count_));
    std::vector<float> uniforms(static_cast<std::size_t>(count_) * width);
    backend_.download(uniforms.data(), accept_uniforms_.data(), uniforms.size() * sizeof(float));
    for (std::size_t b = 0; b < bonus.size(); ++b) bonus[b] = uniforms[b * width + 2 * stride_];
    draft_uniforms_.upload(bonus);
    // Row 0 of every round: the same rows with a stride of a whole round.
    Rows first = target_probabilities_.rows(count_ * (block_ + 1));
    first.rows = count_;
    first.stride *= block_ + 1;
    backend_.sample_probability_rows({.batch = static_cast<std::int32_t>(count_),
                                      .block_size = 1,
                                      .step = 0,
                                      .probabilities = first,
                                      .uniforms = draft_uniforms_.data(),
                                      .tokens = accept_length_.data(),
                                      .scratch = scratch(),
                                      .status = status_.data()});
    accept_length_.download(token, count_);
    return token;
  }

  Backend& backend_;
  TraceFile& trace_;
  const TraceHeader& header_;
  const ReplayOptions& options_;
  DeviceHeads heads_;
  RoundRecords records_;
  bool greedy_;
  std::int32_t vocab_;
  std::int32_t block_;
  std::size_t stride_;
  SamplingRule rule_;
  RoundTable table_;
  std::int64_t chunk_ = 1;

  std::vector<ChunkSource> sources_;  // backbone, target, and hidden states that nothing else reads
  LogitSource backbone_source_, target_source_;
  DeviceRows step_logits_, step_probabilities_, draft_probabilities_, target_probabilities_;
  DeviceArray<RowLaw> laws_;
  Buffer scratch_;
  DeviceArray<std::int32_t> anchors_, drafts_, lengths_, accepted_, accept_length_;
  DeviceArray<float> draft_uniforms_, accept_uniforms_, distances_, scores_;
  StatusWord status_;

  // The chunk at hand.
  std::int64_t first_ = 0, count_ = 0;
  Rows backbone_, target_;
  std::vector<std::int32_t> draft_;
  std::vector<RowLaw> target_law_;
  std::map<std::int64_t, std::vector<std::int32_t>>
      tie_slot_;  ///< 0-based slots with a near tie, by round of the chunk

  std::optional<ChunkStream> stream_;  // goes first, as it waits for its copies
};

}  // namespace

std::string invalid_rows_notice(const std::string& file, const RoundTable& table) {
  if (table.first_problem.empty()) return {};
  return fmt::format("{}: {} invalid rows; blocks are cut before them; first: {}", file,
                     table.invalid_rows, table.first_problem);
}

RoundTable replay_rounds(Backend& backend, TraceFile& trace, const Heads& heads,
                         const SamplingLabel& sampling, Verification verification,
                         const ReplayOptions& options, bool top_probability) {
  return RoundReplayer(backend, trace, heads, sampling, verification, options, top_probability)
      .run();
}

RoundOrder order_rounds(const RoundTable& table) {
  RoundOrder order;
  order.rounds.resize(table.rounds.size());
  std::iota(order.rounds.begin(), order.rounds.end(), std::size_t{0});
  // Rounds of a request stand in ascending order in a trace.
  std::stable_sort(order.rounds.begin(), order.rounds.end(), [&](std::size_t a, std::size_t b) {
    return table.request[a] < table.request[b];
  });
  order.offsets.push_back(0);
  for (std::size_t i = 1; i < order.rounds.size(); ++i) {
    if (table.request[order.rounds[i]] != table.request[order.rounds[i - 1]]) {
      order.offsets.push_back(static_cast<std::int64_t>(i));
    }
  }
  order.offsets.push_back(static_cast<std::int64_t>(order.rounds.size()));
  return order;
}

std::vector<PositionResult> round_positions(const RoundTable& table, const RoundOrder* order,
                                            const Resampling* resampling) {
  const auto block = static_cast<std::size_t>(table.block_size);
  std::vector<PositionResult> out(block);
  for (std::size_t k = 0; k < block; ++k) {
    std::vector<SlotSums> cells(resampling != nullptr ? resampling->cells() : 1);
    std::size_t cell = 0;
    for (std::size_t i = 0; i < table.rounds.size(); ++i) {
      const std::size_t m = order != nullptr ? order->rounds[i] : i;
      while (resampling != nullptr &&
             static_cast<std::int64_t>(i) >= resampling->cell_starts()[cell + 1]) {
        ++cell;
      }
      SlotSums& at = cells[cell];
      const RoundOutcome& round = table.rounds[m];
      const auto accepted = static_cast<std::size_t>(round.accepted);
      if (k >= static_cast<std::size_t>(round.slots)) continue;
      if (table.has_confidence) {
        double along = 1;
        for (std::size_t j = 0; j <= k; ++j)
          along *= static_cast<double>(table.confidence[m * block + j]);
        at.predicted += along;
        at.predictions += 1;
      }
      if (round.censored && k >= accepted) continue;  // unknown
      const double label = accepted > k ? 1.0 : 0.0;
      at.anchors += 1;
      at.survival += label;
      if (accepted >= k) {
        at.reached += 1;
        at.calibration.add(static_cast<double>(table.confidence[m * block + k]), label, 1.0);
      }
    }
    out[k].position = static_cast<std::int32_t>(k) + 1;
    fill_position(cells, resampling, {}, out[k]);
    // Nothing is integrated out here, and no closed loop visits anything.
    out[k].survival_trajectory.reset();
    out[k].intervals.survival_trajectory.reset();
  }
  return out;
}

namespace {

/// Drafts that an oracle verifies of a round that accepts `accepted`, where a token is worth
/// `price`.
std::int32_t oracle_length(const RoundPrices& prices, std::int32_t accepted, double price) {
  const auto gain = [&](std::int32_t l) { return (l + 1) - price * prices(l); };
  std::int32_t best = 0;
  for (std::int32_t l = 1; l <= accepted; ++l) {
    if (gain(l) >= gain(best)) best = l;
  }
  return best;
}

/// The price at which the best choice of lengths breaks even: the most tokens per cost that rounds
/// of these outcomes can give (Dinkelbach 1967).
double best_rate(const RoundTable& table, const RoundPrices& prices) {
  double rate = 0;
  for (int step = 0; step < 64; ++step) {  // each step improves; a handful suffices
    double tokens = 0, spent = 0;
    for (const RoundOutcome& round : table.rounds) {
      if (round.slots == 0) continue;
      const std::int32_t l = oracle_length(prices, round.accepted, rate);
      tokens += l + 1;
      spent += prices(l);
    }
    if (!(spent > 0) || !(tokens / spent > rate)) break;
    rate = tokens / spent;
  }
  return rate;
}

}  // namespace

PolicyResult evaluate_rounds(const RoundTable& table, const Policy& policy,
                             const RoundPrices& prices) {
  RoundFlow flow;
  return evaluate_rounds(table, policy, prices, flow);
}

PolicyResult evaluate_rounds(const RoundTable& table, const Policy& policy,
                             const RoundPrices& prices, RoundFlow& flow) {
  if (std::holds_alternative<OracleConfidence>(policy)) {
    throw internal_error("evaluate_rounds", "a rounds trace has no acceptance probabilities");
  }
  const bool looks_at_top = uses_top_probability(policy);
  const std::vector<float>& seen = looks_at_top ? table.top_probability : table.confidence;
  if (looks_at_top && seen.empty()) {
    throw internal_error("evaluate_rounds", "the table has no top probabilities");
  }
  const auto* oracle = std::get_if<Oracle>(&policy);
  const bool shortest = oracle != nullptr && oracle->bound == OracleBound::shortest;
  const double rate = shortest ? best_rate(table, prices) : 0;
  const std::size_t size = table.rounds.size();
  flow.begin(table.block_size, 0);
  PolicyResult out;
  double rounds = 0, low = 0, high = 0, verified = 0;
  std::int64_t censored = 0;
  for (std::size_t m = 0; m < size; ++m) {
    const RoundOutcome& round = table.rounds[m];
    if (round.slots == 0) continue;
    const std::int32_t length =
        shortest ? oracle_length(prices, round.accepted, rate)
        : oracle != nullptr
            ? round.accepted
            : scheduled_length(policy, seen.data() + m * static_cast<std::size_t>(table.block_size),
                               round.slots, prices);
    const std::int32_t accepted = std::min(round.accepted, length);
    rounds += 1;
    verified += length;
    low += accepted + 1;
    const bool open = round.censored && length > round.accepted;
    high += (open ? length : accepted) + 1;
    censored += open;
    flow.add_rounds(m, 1, accepted + 1, false);
    flow.add_length(m, length, 1, speculates(policy));
    flow.add_accepted(accepted, 1);
  }
  out.rounds = rounds;
  out.tokens = low;
  out.tau = low / rounds;
  if (censored > 0) {
    out.censored_rounds = censored;
    out.tau_lo = low / rounds;
    out.tau_hi = high / rounds;
  }
  out.accepted_per_round = *out.tau - 1.0;
  out.verified_per_round = verified / rounds;
  return out;
}

}  // namespace dspark
