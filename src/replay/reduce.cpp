#include "replay/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/random.h"
#include "replay/device_data.h"
#include "replay/pass.h"
#include "support/error.h"
#include "support/text.h"
#include "trace/memory.h"

namespace dspark {
namespace {

constexpr double kProbabilityUnit = 1.0 / static_cast<double>(kUnitProbability);

/// Worlds held at a time, 40 bytes each: small vocabularies and many repeats would have millions of
/// them.
constexpr std::int64_t kMaxWorlds = std::int64_t{1} << 20;

/// Reduces chunk by chunk; one object per pass, buffers allocated once.
class AnchorReducer {
 public:
  AnchorReducer(Backend& backend, TraceFile& trace, const Heads& heads,
                const ReduceRequest& request, const ReplayOptions& options)
      : backend_(backend),
        trace_(trace),
        header_(trace.header()),
        options_(options),
        heads_(backend, heads, header_.vocab_size_logical),
        tokens_(trace.read_anchor_tokens(options.memory_budget)),
        vocab_(header_.vocab_size_logical),
        block_(header_.block_size),
        off_policy_(request.off_policy),
        top_probability_(request.top_probability),
        greedy_verification_(request.verification == Verification::greedy),
        status_(backend) {
    choose_rules(request.sampling);
    const bool hidden = trace.row_data(RowData::draft_hidden).has_value();
    const std::int64_t n = trace.blocks();
    table_.block_size = block_;
    table_.greedy = greedy_verification_ || request.sampling.drafts == "greedy";
    table_.has_confidence = hidden && heads.has_confidence();
    const bool seen = table_.has_confidence || top_probability_;
    table_.repeats = request.worlds && seen && !table_.greedy ? options.repeats : 0;
    table_.sequence_offsets = tokens_.sequence_offsets;
    check_table_size(n);

    const auto cells = static_cast<std::size_t>(n) * static_cast<std::size_t>(block_);
    table_.slots.assign(static_cast<std::size_t>(n), 0);
    table_.beta.assign(cells, 0.0);
    table_.alpha.assign(cells, 0.0);
    if (off_policy_) table_.importance.assign(cells, 0.0);
    constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
    table_.confidence.assign(cells, kNone);
    table_.agreement.assign(cells, 0);
    const std::size_t worlds = static_cast<std::size_t>(n) * worlds_per_anchor();
    if (table_.has_confidence) table_.world_confidence.assign(worlds, kNone);
    if (top_probability_) {
      table_.top_probability.assign(cells, kNone);
      table_.world_top_probability.assign(worlds, kNone);
    }
    target_counted_.assign(static_cast<std::size_t>(n), 0);

    chunk_ = std::min(n, choose_chunk());
    allocate();
  }

  OutcomeTable run() {
    const std::int64_t n = trace_.blocks();
    for (std::int64_t first = 0; first < n; first += chunk_) {
      const std::int64_t count = std::min(chunk_, n - first);
      load(first, count);
      if (table_.greedy) {
        reduce_chain();
      } else {
        reduce_probabilistic();
        if (table_.repeats > 0) sample_worlds();
      }
      status_.require_good_ids();
      if (options_.progress) options_.progress(first + count, n);
    }
    if (std::none_of(table_.slots.begin(), table_.slots.end(),
                     [](std::uint8_t s) { return s > 0; })) {
      throw trace_error(header_.file,
                        "no block has a valid first row, so there is nothing to replay",
                        first_problem_.empty() ? "check the recording"
                                               : "the first invalid row: " + first_problem_);
    }
    table_.first_problem = std::move(first_problem_);
    const std::string notice = invalid_rows_notice(header_.file, table_);
    if (!notice.empty() && options_.note) options_.note(notice);
    return std::move(table_);
  }

 private:
  /// A draft row that the replay reads: slot `slot` (1-based) of anchor `anchor` (trace position).
  struct Cell {
    std::int64_t anchor;
    std::int32_t slot;
  };
  /// A world under way: the block of `anchor` rejected at slot `rejected` in repeat `repeat`;
  /// `token` is its latest draft.
  struct World {
    std::int64_t anchor;
    std::int32_t rejected;
    std::int32_t repeat;
    std::int32_t token;
  };

  /// The laws of target and draft rows under the setting replayed, and the recorded target law.
  void choose_rules(const SamplingLabel& asked) {
    const Verification sampled = Verification::probabilistic;
    target_rule_ =
        sampling_rule(asked, greedy_verification_ ? Verification::greedy : sampled, vocab_);
    draft_rule_ = target_rule_;
    if (asked.drafts == "greedy") draft_rule_.greedy = true;
    SamplingLabel recorded = asked;  // a trace does not record its top-p rule
    recorded.temperature = header_.temperature;
    recorded.top_k = header_.top_k;
    recorded.top_p = header_.top_p;
    recorded_rule_ = sampling_rule(recorded, sampled, vocab_);
    top_rule_ = top_probability_rule(draft_rule_);
  }

  [[nodiscard]] std::size_t worlds_per_anchor() const {
    return static_cast<std::size_t>(table_.repeats) *
           static_cast<std::size_t>(worlds_per_repeat(block_));
  }

  void check_table_size(std::int64_t n) const {
    const std::uint64_t signals = (table_.has_confidence ? 1 : 0) + (top_probability_ ? 1 : 0);
    const std::uint64_t per_cell =
        8 + 8 + 4 + 1 + (off_policy_ ? 8 : 0) + (top_probability_ ? 4 : 0);
    const std::uint64_t per_anchor = static_cast<std::uint64_t>(block_) * per_cell + 2 +
                                     signals * worlds_per_anchor() * sizeof(float);
    const std::uint64_t bytes = per_anchor * static_cast<std::uint64_t>(n);
    const std::uint64_t budget = resolve_memory_budget(options_.memory_budget);
    if (bytes > budget) {
      throw trace_error(
          header_.file,
          fmt::format("the outcome table of {} anchors needs {} bytes, the memory budget is {}", n,
                      bytes, budget),
          "lower --repeats, raise --memory-budget, or split the trace");
    }
  }

  [[nodiscard]] std::int64_t choose_chunk() const {
    // Row indices within a chunk are 32-bit.
    std::int64_t most = (std::int64_t{1} << 30) / block_;
    if (table_.repeats > 0) {
      const std::int64_t worlds = std::int64_t{table_.repeats} * block_;
      most = std::max<std::int64_t>(1, std::min(most, kMaxWorlds / worlds));
    }
    if (options_.chunk > 0) return std::min(options_.chunk, most);
    const std::uint64_t tile = tile_bytes(backend_, options_);
    const std::uint64_t per_anchor = static_cast<std::uint64_t>(2 * block_ + 1) *
                                     static_cast<std::uint64_t>(vocab_) * sizeof(float);
    // At least a handful of anchors, so that every weight that is read serves many rows, unless
    // those would be very large.
    const std::uint64_t handful =
        std::min<std::uint64_t>(16, std::max<std::uint64_t>(1, (tile * 8) / per_anchor));
    return std::min(most, static_cast<std::int64_t>(std::max(tile / per_anchor, handful)));
  }

  void allocate() {
    const std::int64_t cells = chunk_ * block_;
    const std::int64_t positions = std::min(chunk_ + block_ - 1, trace_.blocks());
    backbone_stream_.emplace(backend_, trace_, RowData::draft_logits, RowData::draft_hidden,
                             heads_.draft_lm_head, chunk_, vocab_, options_.products,
                             table_.has_confidence);
    target_stream_.emplace(backend_, trace_, RowData::target_logits, RowData::target_hidden,
                           heads_.lm_head, positions, vocab_, options_.products);
    draft_capacity_ = table_.greedy ? chunk_ : cells;
    draft_rows_ = DeviceRows(backend_, draft_capacity_, vocab_);
    draft_laws_ = DeviceArray<RowLaw>(backend_, draft_capacity_);
    if (has_top_laws()) top_laws_ = DeviceArray<RowLaw>(backend_, draft_capacity_);
    target_laws_ = DeviceArray<RowLaw>(backend_, positions);
    pairs_ = DeviceArray<RowPair>(backend_, cells);
    outcomes_ = DeviceArray<PairOutcome>(backend_, cells);
    index_ = DeviceArray<std::int32_t>(backend_, cells);
    previous_ = DeviceArray<std::int32_t>(backend_, cells);
    uniforms_ = DeviceArray<std::uint64_t>(backend_, cells);
    sampled_ = DeviceArray<std::int32_t>(backend_, cells);
    scores_ = DeviceArray<float>(backend_, cells);
  }

  /// Reads the rows of anchors [first, first + count) and of the target positions their blocks are
  /// compared with.
  void load(std::int64_t first, std::int64_t count) {
    first_ = first;
    count_ = count;
    positions_ = std::min(count + block_ - 1, trace_.blocks() - first);
    backbone_ = backbone_stream_->load(first, count);
    target_ = target_stream_->load(first, positions_);
    const auto laws = target_laws_.view(positions_);
    if (off_policy_) {
      backend_.row_laws({.logits = target_, .rule = recorded_rule_, .laws = laws});
      target_laws_.download(recorded_law_, positions_);
    }
    backend_.row_laws({.logits = target_, .rule = target_rule_, .laws = laws});
    target_laws_.download(target_law_, positions_);
  }

  // --- the recorded text ---

  /// The sequence that owns position n.
  [[nodiscard]] std::int64_t sequence_of(std::int64_t n) const {
    const auto& offsets = tokens_.sequence_offsets;
    const auto it = std::upper_bound(offsets.begin(), offsets.end(), n);
    return std::distance(offsets.begin(), it) - 1;
  }
  /// The token at `position` of sequence s; its end stands for the token after the last one.
  [[nodiscard]] std::int32_t token_at(std::int64_t s, std::int64_t position) const {
    const auto index = static_cast<std::size_t>(s);
    return position < tokens_.sequence_offsets[index + 1]
               ? tokens_.tokens[static_cast<std::size_t>(position)]
               : tokens_.last_tokens[index];
  }
  [[nodiscard]] std::size_t cell_index(const Cell& cell) const {
    return static_cast<std::size_t>(cell.anchor * block_ + cell.slot - 1);
  }
  [[nodiscard]] std::int32_t backbone_index(std::int64_t anchor, std::int32_t slot) const {
    return static_cast<std::int32_t>((anchor - first_) * block_ + slot - 1);
  }

  // --- validity ---

  void report(const std::string& what) {
    if (first_problem_.empty()) first_problem_ = what;
  }
  void count_invalid_row(const char* dataset, std::int64_t row, std::optional<std::int32_t> slot,
                         std::uint32_t status) {
    ++table_.invalid_rows;
    const char* what = invalid_row_reason(status);
    report(slot ? fmt::format("{}[{}, {}] has {}", dataset, row, *slot - 1, what)
                : fmt::format("{}[{}] has {}", dataset, row, what));
  }
  /// Probability of the recorded token under the recorded setting, in units of 2^-61.
  [[nodiscard]] std::uint64_t recorded_probability(std::int64_t position, std::int32_t token,
                                                   const PairOutcome& outcome) const {
    if (!off_policy_) return outcome.target_token;
    return law_probability(recorded_law_[static_cast<std::size_t>(position - first_)],
                           outcome.target_logit, token);
  }
  /// False if target row `position` is invalid or its recorded next token impossible under the
  /// recorded setting; counts each once.
  bool target_valid(std::int64_t position, std::int32_t token, const PairOutcome& outcome) {
    const RowLaw& law = target_law_[static_cast<std::size_t>(position - first_)];
    auto& counted = target_counted_[static_cast<std::size_t>(position)];
    if (law.status != kRowValid) {
      if (!counted) count_invalid_row(target_name(), position, std::nullopt, law.status);
      counted = 1;
      return false;
    }
    if (outcome.valid == 0) return true;  // the draft row is invalid: nothing is known of the token
    bool possible = recorded_probability(position, token, outcome) > 0;
    if (greedy_verification_ && !off_policy_ && law.argmax != token) {
      possible =
          static_cast<double>(law.max_logit) - static_cast<double>(outcome.target_logit) < kNearTie;
      if (possible && !counted) ++table_.near_ties;
    }
    if (!possible && !counted) {
      ++table_.impossible_tokens;
      report(
          fmt::format("token {} after position {} cannot be drawn from its target row under the "
                      "recorded sampling",
                      token, position));
    }
    counted = 1;
    return possible;
  }
  [[nodiscard]] const char* target_name() const {
    return target_stream_->stored() ? "/anchors/target_logits" : "/anchors/target_hidden";
  }
  [[nodiscard]] const char* draft_name() const {
    return backbone_stream_->stored() ? "/anchors/draft_logits" : "/anchors/draft_hidden";
  }

  // --- one step of draft rows: Markov logits, laws, comparison with the target ---

  /// Draft rows of `cells` given the token before each; fills draft_law_ and outcome_ in the order
  /// of `cells`.
  void draft_step(const std::vector<Cell>& cells, const std::vector<std::int32_t>& previous) {
    const auto rows = static_cast<std::int64_t>(cells.size());
    backbone_index_.clear();
    pair_.clear();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const Cell& cell = cells[i];
      backbone_index_.push_back(backbone_index(cell.anchor, cell.slot));
      pair_.push_back(
          {.target_row = static_cast<std::int32_t>(cell.anchor + cell.slot - 1 - first_),
           .draft_row = static_cast<std::int32_t>(i),
           .token = token_at(sequence_of(cell.anchor), cell.anchor + cell.slot)});
    }
    const Rows draft = draft_rows_.rows(rows);
    const auto laws = draft_laws_.view(rows);
    backend_.markov_rows({.backbone = backbone_,
                          .backbone_row = index_.upload(backbone_index_),
                          .previous = previous_.upload(previous),
                          .w1 = heads_.markov_w1,
                          .w2 = heads_.markov_w2,
                          .out = draft,
                          .products = options_.products,
                          .status = status_.data()});
    backend_.row_laws({.logits = draft, .rule = draft_rule_, .laws = laws});
    backend_.compare_pairs({.target = target_,
                            .target_laws = target_laws_.const_view(positions_),
                            .draft = draft,
                            .draft_laws = draft_laws_.const_view(rows),
                            .pairs = pairs_.upload(pair_),
                            .out = outcomes_.view(rows)});
    outcomes_.download(outcome_, rows);
    draft_laws_.download(draft_law_, rows);
    find_top_probabilities(draft);
  }

  /// True if the laws whose top probabilities are asked for are not those that are drafted from.
  [[nodiscard]] bool has_top_laws() const { return top_probability_ && draft_rule_.greedy; }

  /// Top probabilities of the draft rows that draft_law_ was just taken of, into `top_`.
  void find_top_probabilities(const Rows& draft) {
    if (!top_probability_) return;
    if (has_top_laws()) {
      backend_.row_laws({.logits = draft, .rule = top_rule_, .laws = top_laws_.view(draft.rows)});
      top_laws_.download(top_law_, draft.rows);
    }
    const std::vector<RowLaw>& laws = has_top_laws() ? top_law_ : draft_law_;
    top_.resize(laws.size());
    std::transform(laws.begin(), laws.end(), top_.begin(), top_probability);
  }

  /// Confidences of `cells` given the token before each, into `score_`.
  void score(const std::vector<Cell>& cells, const std::vector<std::int32_t>& previous) {
    const auto rows = static_cast<std::int64_t>(cells.size());
    backbone_index_.clear();
    for (const Cell& cell : cells)
      backbone_index_.push_back(backbone_index(cell.anchor, cell.slot));
    backend_.confidence_rows({.hidden = backbone_stream_->hidden(count_),
                              .hidden_row = index_.upload(backbone_index_),
                              .previous = previous_.upload(previous),
                              .w1 = heads_.markov_w1,
                              .weight = heads_.confidence_weight,
                              .bias = heads_.confidence_bias,
                              .out = scores_.view(rows),
                              .status = status_.data()});
    scores_.download(score_, rows);
  }

  [[nodiscard]] std::int32_t slots_left(std::int64_t anchor) const {
    const std::int64_t end =
        tokens_.sequence_offsets[static_cast<std::size_t>(sequence_of(anchor)) + 1];
    return static_cast<std::int32_t>(std::min<std::int64_t>(block_, end - anchor));
  }

  void store_importance(const Cell& cell, std::int32_t token, const PairOutcome& outcome) {
    if (!off_policy_) return;
    const std::uint64_t recorded =
        recorded_probability(cell.anchor + cell.slot - 1, token, outcome);
    table_.importance[cell_index(cell)] =
        static_cast<double>(outcome.target_token) / static_cast<double>(recorded);
  }

  // --- sampled drafts: draft rows along the recorded text ---

  void reduce_probabilistic() {
    cells_.clear();
    previous_token_.clear();
    for (std::int64_t n = first_; n < first_ + count_; ++n) {
      const std::int64_t s = sequence_of(n);
      const std::int32_t slots = slots_left(n);
      table_.slots[static_cast<std::size_t>(n)] = static_cast<std::uint8_t>(slots);
      for (std::int32_t k = 1; k <= slots; ++k) {
        cells_.push_back({n, k});
        previous_token_.push_back(token_at(s, n + k - 1));
      }
    }
    draft_step(cells_, previous_token_);
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      const Cell& cell = cells_[i];
      auto& slots = table_.slots[static_cast<std::size_t>(cell.anchor)];
      if (cell.slot > slots) continue;  // behind a cut: not read
      const RowLaw& law = draft_law_[i];
      const PairOutcome& outcome = outcome_[i];
      if (law.status != kRowValid)
        count_invalid_row(draft_name(), cell.anchor, cell.slot, law.status);
      const bool target = target_valid(cell.anchor + cell.slot - 1, pair_[i].token, outcome);
      if (law.status != kRowValid || !target) {
        slots = static_cast<std::uint8_t>(cell.slot - 1);
        continue;
      }
      const std::size_t at = cell_index(cell);
      const double p = static_cast<double>(outcome.target_token);
      const double q = static_cast<double>(outcome.draft_token);
      table_.beta[at] = q >= p ? 1.0 : q / p;
      table_.alpha[at] = std::min(1.0, static_cast<double>(outcome.alpha) * kProbabilityUnit);
      store_importance(cell, pair_[i].token, outcome);
      table_.agreement[at] =
          law.argmax == target_law_[static_cast<std::size_t>(pair_[i].target_row)].argmax;
      if (top_probability_) table_.top_probability[at] = top_[i];
    }
    if (!table_.has_confidence) return;
    score(cells_, previous_token_);
    for (std::size_t i = 0; i < cells_.size(); ++i)
      table_.confidence[cell_index(cells_[i])] = score_[i];
  }

  // --- deterministic drafts: the drafted chain ---

  void reduce_chain() {
    std::vector<std::int32_t> chain(
        static_cast<std::size_t>(count_));  // latest token of each block
    std::vector<std::uint8_t> on_text(static_cast<std::size_t>(count_), 1);
    for (std::int64_t n = first_; n < first_ + count_; ++n) {
      chain[static_cast<std::size_t>(n - first_)] = tokens_.tokens[static_cast<std::size_t>(n)];
      table_.slots[static_cast<std::size_t>(n)] = static_cast<std::uint8_t>(slots_left(n));
    }
    for (std::int32_t k = 1; k <= block_; ++k) {
      cells_.clear();
      previous_token_.clear();
      for (std::int64_t n = first_; n < first_ + count_; ++n) {
        if (k > table_.slots[static_cast<std::size_t>(n)]) continue;
        cells_.push_back({n, k});
        previous_token_.push_back(chain[static_cast<std::size_t>(n - first_)]);
      }
      if (cells_.empty()) break;
      draft_step(cells_, previous_token_);
      for (std::size_t i = 0; i < cells_.size(); ++i) {
        const Cell& cell = cells_[i];
        const auto block = static_cast<std::size_t>(cell.anchor - first_);
        const RowLaw& law = draft_law_[i];
        if (law.status != kRowValid)
          count_invalid_row(draft_name(), cell.anchor, cell.slot, law.status);
        const bool target = target_valid(cell.anchor + cell.slot - 1, pair_[i].token, outcome_[i]);
        if (law.status != kRowValid || !target) {
          table_.slots[static_cast<std::size_t>(cell.anchor)] = static_cast<std::uint8_t>(k - 1);
          continue;
        }
        if (on_text[block] &&
            static_cast<double>(law.max_logit) - static_cast<double>(law.second_logit) < kNearTie) {
          ++table_.near_ties;
        }
        chain[block] = law.argmax;
        if (top_probability_) table_.top_probability[cell_index(cell)] = top_[i];
        if (on_text[block]) {
          on_text[block] = law.argmax == pair_[i].token;
          store_draft(cell, law, i, on_text[block] != 0);
        }
      }
      if (!table_.has_confidence) continue;
      score(cells_, previous_token_);
      for (std::size_t i = 0; i < cells_.size(); ++i)
        table_.confidence[cell_index(cells_[i])] = score_[i];
    }
  }

  /// Outcome of a draft whose block has been the recorded text so far; `matches`: and still is.
  void store_draft(const Cell& cell, const RowLaw& law, std::size_t i, bool matches) {
    const std::size_t at = cell_index(cell);
    const RowLaw& target = target_law_[static_cast<std::size_t>(pair_[i].target_row)];
    table_.beta[at] = matches ? 1.0 : 0.0;
    store_importance(cell, pair_[i].token, outcome_[i]);
    if (greedy_verification_ && !off_policy_) {
      // A near tie may have gone the other way in the recording: the recorded token decides.
      table_.alpha[at] = table_.beta[at];
      table_.agreement[at] = matches;
    } else {
      table_.alpha[at] = std::min(1.0, static_cast<double>(outcome_[i].alpha) * kProbabilityUnit);
      table_.agreement[at] = law.argmax == target.argmax;
      if (greedy_verification_ &&
          static_cast<double>(target.max_logit) - static_cast<double>(target.second_logit) <
              kNearTie) {
        ++table_.near_ties;
      }
    }
  }

  // --- sampled worlds: what is drafted after a rejection ---

  void sample_worlds() {
    start_worlds();
    for (std::int32_t k = 2; k <= block_; ++k) {
      // Worlds rejected before slot k have drafted x_{k-1}: what is seen of their draft at k, and
      // the draft itself.
      std::vector<World*> active;
      for (World& world : worlds_) {
        if (world.rejected < k && k <= table_.slots[static_cast<std::size_t>(world.anchor)]) {
          active.push_back(&world);
        }
      }
      for (std::size_t begin = 0; begin < active.size();) {
        const std::size_t end =
            std::min(active.size(), begin + static_cast<std::size_t>(draft_capacity_));
        advance_worlds({active.begin() + static_cast<std::ptrdiff_t>(begin),
                        active.begin() + static_cast<std::ptrdiff_t>(end)},
                       k);
        begin = end;
      }
    }
  }

  [[nodiscard]] RandomKey key_of(const World& world, std::int32_t slot,
                                 RandomPurpose purpose) const {
    const std::int64_t s = sequence_of(world.anchor);
    return {.seed = options_.seed,
            .sequence = static_cast<std::uint64_t>(s),
            .position = static_cast<std::uint32_t>(
                world.anchor - tokens_.sequence_offsets[static_cast<std::size_t>(s)]),
            .slot = static_cast<std::uint32_t>(slot),
            .branch = static_cast<std::uint32_t>(world.rejected),
            .repeat = static_cast<std::uint32_t>(world.repeat),
            .purpose = purpose};
  }

  /// One world per anchor, repeat and rejection slot r that can happen and has a later slot;
  /// draws the rejected draft x_r ~ (q_r - p_r)⁺. The draft rows along the text are still in
  /// draft_rows_.
  void start_worlds() {
    worlds_.clear();
    std::vector<std::int32_t> pair_of_world;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      const Cell& cell = cells_[i];
      const auto slots = table_.slots[static_cast<std::size_t>(cell.anchor)];
      if (cell.slot >= slots) continue;
      const std::size_t row = static_cast<std::size_t>(cell.anchor * block_);
      if (!can_be_rejected(row, static_cast<std::size_t>(cell.slot))) continue;
      for (std::int32_t s = 0; s < table_.repeats; ++s) {
        worlds_.push_back({cell.anchor, cell.slot, s, -1});
        pair_of_world.push_back(static_cast<std::int32_t>(i));
      }
    }
    const auto pairs = pairs_.const_view(static_cast<std::int64_t>(cells_.size()));
    const auto draft_rows = static_cast<std::int64_t>(cells_.size());
    std::vector<std::int32_t> part, token;
    std::vector<std::uint64_t> uniform;
    const auto capacity = static_cast<std::size_t>(chunk_ * block_);
    for (std::size_t begin = 0; begin < worlds_.size(); begin += capacity) {
      const std::size_t end = std::min(worlds_.size(), begin + capacity);
      part.assign(pair_of_world.begin() + static_cast<std::ptrdiff_t>(begin),
                  pair_of_world.begin() + static_cast<std::ptrdiff_t>(end));
      uniform.clear();
      for (std::size_t w = begin; w < end; ++w) {
        uniform.push_back(
            random_uniform(key_of(worlds_[w], worlds_[w].rejected, RandomPurpose::rejected)));
      }
      const auto count = static_cast<std::int64_t>(end - begin);
      backend_.sample_excess({.target = target_,
                              .target_laws = target_laws_.const_view(positions_),
                              .draft = draft_rows_.rows(draft_rows),
                              .draft_laws = draft_laws_.const_view(draft_rows),
                              .pairs = pairs,
                              .pair = index_.upload(part),
                              .uniform = uniforms_.upload(uniform),
                              .token = sampled_.view(count)});
      sampled_.download(token, count);
      for (std::size_t w = begin; w < end; ++w) worlds_[w].token = token[w - begin];
    }
    // Where the excess vanishes in the integers the rejection has no mass worth a world.
    std::erase_if(worlds_, [](const World& world) { return world.token < 0; });
  }

  /// True if the round whose cells start at `row` can reach `slot` along the text and be rejected
  /// there.
  [[nodiscard]] bool can_be_rejected(std::size_t row, std::size_t slot) const {
    const std::size_t at = row + slot - 1;
    // Off policy the recorded token at the slot itself says nothing: it is integrated out.
    if (!((off_policy_ ? table_.alpha[at] : table_.beta[at]) < 1.0)) return false;
    for (std::size_t i = row; i < at; ++i) {
      if (!(table_.beta[i] > 0) || (off_policy_ && !(table_.importance[i] > 0))) return false;
    }
    return true;
  }

  /// Where what is seen of the draft at slot k of `world` stands among the numbers of all worlds.
  [[nodiscard]] std::size_t world_index(const World& world, std::int32_t k) const {
    return static_cast<std::size_t>(world.anchor) * worlds_per_anchor() +
           static_cast<std::size_t>(world.repeat) *
               static_cast<std::size_t>(worlds_per_repeat(block_)) +
           static_cast<std::size_t>(world_offset(block_, world.rejected, k));
  }

  /// What is seen of the draft at slot k of each world, and the draft x_k where a later slot needs
  /// it.
  void advance_worlds(const std::vector<World*>& active, std::int32_t k) {
    if (table_.has_confidence) score_worlds(active, k);
    draft_worlds(active, k);
  }

  void score_worlds(const std::vector<World*>& active, std::int32_t k) {
    std::vector<Cell> cells;
    std::vector<std::int32_t> previous;
    for (const World* world : active) {
      cells.push_back({world->anchor, k});
      previous.push_back(world->token);
    }
    score(cells, previous);
    for (std::size_t i = 0; i < active.size(); ++i) {
      table_.world_confidence[world_index(*active[i], k)] = score_[i];
    }
  }

  void draft_worlds(const std::vector<World*>& active, std::int32_t k) {
    std::vector<World*> drafting;
    std::vector<std::int32_t> previous;
    backbone_index_.clear();
    std::vector<std::int32_t> row;  // of the drafts that something follows
    std::vector<std::uint64_t> uniform;
    for (World* world : active) {
      const bool last = k >= table_.slots[static_cast<std::size_t>(world->anchor)];
      if (last && !top_probability_) continue;
      if (!last) {
        row.push_back(static_cast<std::int32_t>(drafting.size()));
        uniform.push_back(random_uniform(key_of(*world, k, RandomPurpose::draft)));
      }
      drafting.push_back(world);
      previous.push_back(world->token);
      backbone_index_.push_back(backbone_index(world->anchor, k));
    }
    if (drafting.empty()) return;
    const auto rows = static_cast<std::int64_t>(drafting.size());
    const Rows draft = draft_rows_.rows(rows);
    backend_.markov_rows({.backbone = backbone_,
                          .backbone_row = index_.upload(backbone_index_),
                          .previous = previous_.upload(previous),
                          .w1 = heads_.markov_w1,
                          .w2 = heads_.markov_w2,
                          .out = draft,
                          .products = options_.products,
                          .status = status_.data()});
    backend_.row_laws({.logits = draft, .rule = draft_rule_, .laws = draft_laws_.view(rows)});
    draft_laws_.download(draft_law_, rows);
    for (std::size_t i = 0; i < drafting.size(); ++i) {
      if (draft_law_[i].status == kRowValid) continue;
      throw trace_error(
          header_.file,
          fmt::format("{}[{}, {}] is invalid once the Markov bias of a drafted token is added",
                      draft_name(), drafting[i]->anchor, k - 1),
          "check the Markov weights for very large values");
    }
    find_top_probabilities(draft);
    if (top_probability_) {
      for (std::size_t i = 0; i < drafting.size(); ++i) {
        table_.world_top_probability[world_index(*drafting[i], k)] = top_[i];
      }
    }
    if (row.empty()) return;
    const auto followed = static_cast<std::int64_t>(row.size());
    backend_.sample_rows({.logits = draft,
                          .laws = draft_laws_.const_view(rows),
                          .row = index_.upload(row),
                          .uniform = uniforms_.upload(uniform),
                          .token = sampled_.view(followed)});
    std::vector<std::int32_t> token;
    sampled_.download(token, followed);
    for (std::size_t i = 0; i < row.size(); ++i) {
      drafting[static_cast<std::size_t>(row[i])]->token = token[i];
    }
  }

  Backend& backend_;
  TraceFile& trace_;
  const TraceHeader& header_;
  const ReplayOptions& options_;
  DeviceHeads heads_;
  AnchorTokens tokens_;
  std::int32_t vocab_;
  std::int32_t block_;
  bool off_policy_;
  bool top_probability_;
  bool greedy_verification_;
  SamplingRule target_rule_, draft_rule_, recorded_rule_, top_rule_;
  OutcomeTable table_;
  std::vector<std::uint8_t> target_counted_;
  std::string first_problem_;

  std::int64_t chunk_ = 0;
  std::int64_t draft_capacity_ = 0;
  std::optional<LogitStream> backbone_stream_, target_stream_;
  DeviceRows draft_rows_;
  DeviceArray<RowLaw> draft_laws_, target_laws_, top_laws_;  // top_laws_: has_top_laws() only
  DeviceArray<RowPair> pairs_;
  DeviceArray<PairOutcome> outcomes_;
  DeviceArray<std::int32_t> index_, previous_, sampled_;
  DeviceArray<std::uint64_t> uniforms_;
  DeviceArray<float> scores_;
  StatusWord status_;

  // The chunk at hand.
  std::int64_t first_ = 0, count_ = 0, positions_ = 0;
  Rows backbone_, target_;
  std::vector<RowLaw> target_law_, recorded_law_, draft_law_;  // recorded_law_: off policy only
  std::vector<RowLaw> top_law_;
  std::vector<PairOutcome> outcome_;
  std::vector<RowPair> pair_;
  std::vector<Cell> cells_;
  std::vector<World> worlds_;
  std::vector<std::int32_t> previous_token_, backbone_index_;
  std::vector<float> score_, top_;
};

}  // namespace

std::string invalid_rows_notice(const std::string& file, const OutcomeTable& table) {
  if (table.first_problem.empty()) return {};
  return fmt::format(
      "{}: {} invalid rows, {} impossible tokens; blocks are cut before them; first: {}", file,
      table.invalid_rows, table.impossible_tokens, table.first_problem);
}

OutcomeTable reduce_anchors(Backend& backend, TraceFile& trace, const Heads& heads,
                            const ReduceRequest& request, const ReplayOptions& options) {
  return AnchorReducer(backend, trace, heads, request, options).run();
}

}  // namespace dspark
