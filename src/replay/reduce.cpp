#include "replay/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/random.h"
#include "replay/chunk_stream.h"
#include "replay/device_data.h"
#include "replay/pass.h"
#include "support/error.h"
#include "support/text.h"
#include "trace/memory.h"

namespace dspark {
namespace {

constexpr double kProbabilityUnit = 1.0 / static_cast<double>(kUnitProbability);

/// Worlds held at a time, about half a kilobyte each: small vocabularies and many repeats would
/// have millions of them.
constexpr std::int64_t kMaxWorlds = std::int64_t{1} << 17;

/// Rows of a tile of a product on tensor cores (kernels/tensor).
constexpr std::int64_t kTileRows = 256;

/// Lanes of what is copied without waiting: the chunk whose operations run, and the one whose
/// results are read meanwhile.
constexpr int kLanes = 2;

/// Reduces chunk by chunk; one object per pass, buffers allocated once. The operations of a chunk
/// are enqueued before the results of the one before are looked at, so that the backend always has
/// work.
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
        backbone_source_(backend, trace, RowData::draft_logits, RowData::draft_hidden,
                         heads_.draft_lm_head, vocab_, options.products),
        target_source_(backend, trace, RowData::target_logits, RowData::target_hidden,
                       heads_.lm_head, vocab_, options.products),
        status_(backend, kLanes) {
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

    sources_ = {{backbone_source_.data(), 0}, {target_source_.data(), block_ - 1}};
    if (table_.has_confidence && backbone_source_.stored()) {
      sources_.push_back({RowData::draft_hidden, 0});
    }
    chunk_ = std::min(n, choose_chunk());
    report_memory();
    allocate();
  }
  AnchorReducer(const AnchorReducer&) = delete;
  AnchorReducer& operator=(const AnchorReducer&) = delete;
  ~AnchorReducer() {
    // Where the pass has failed, copies to the memory of this object may be under way.
    try {
      backend_.synchronize();
    } catch (...) {
      // The pass has thrown what is wrong with the backend.
    }
  }

  OutcomeTable run() {
    const std::int64_t n = trace_.blocks();
    for (std::int64_t first = 0; first < n; first += chunk_) {
      start_chunk(first);
      if (table_.greedy) {
        reduce_chain();
        finish(now_);
        continue;
      }
      enqueue_text();
      stream_->prefetch();
      finish_pending();
      stream_->prefetch();  // if it had not been read yet
      if (table_.repeats > 0) {
        settle_text(now_);
        enqueue_worlds();
      }
      pending_ = now_;
    }
    finish_pending();
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
  /// A step of the pass: anchors [first, first + count), whose blocks are compared with `positions`
  /// target rows.
  struct Chunk {
    std::int64_t first = 0, count = 0, positions = 0;
    int lane = 0;
  };
  /// A draft row that the replay reads: slot `slot` (1-based) of anchor `anchor` (trace position).
  struct Cell {
    std::int64_t anchor;
    std::int32_t slot;
  };
  /// A world under way: the block of `anchor` (of the chunk) rejected at slot `rejected` in repeat
  /// `repeat`.
  struct World {
    std::int32_t anchor;
    std::int32_t rejected;
    std::int32_t repeat;
  };
  /// Where an anchor of the chunk stands: its sequence, that one's end, and its first cell.
  struct Place {
    std::int64_t sequence, end;
    std::int32_t cell;
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

  [[nodiscard]] std::uint64_t bytes_per_table_anchor() const {
    const std::uint64_t signals = (table_.has_confidence ? 1 : 0) + (top_probability_ ? 1 : 0);
    const std::uint64_t per_cell =
        8 + 8 + 4 + 1 + (off_policy_ ? 8 : 0) + (top_probability_ ? 4 : 0);
    return static_cast<std::uint64_t>(block_) * per_cell + 2 +
           signals * worlds_per_anchor() * sizeof(float);
  }

  void check_table_size(std::int64_t n) const {
    const std::uint64_t bytes = bytes_per_table_anchor() * static_cast<std::uint64_t>(n);
    const std::uint64_t budget = resolve_memory_budget(options_.memory_budget);
    if (bytes > budget) {
      throw trace_error(
          header_.file,
          fmt::format("the outcome table of {} anchors needs {} bytes, the memory budget is {}", n,
                      bytes, budget),
          "lower --repeats, raise --memory-budget, or split the trace");
    }
  }

  /// True if draft rows are made from hidden states at once: nobody needs the backbone's logits
  /// again.
  [[nodiscard]] bool direct_drafts() const {
    return !backbone_source_.stored() && !table_.greedy && table_.repeats == 0;
  }
  /// Draft rows that are held, of an anchor.
  [[nodiscard]] std::int32_t drafts_per_anchor() const { return table_.greedy ? 1 : block_; }
  /// Worlds of an anchor at most, and the slots of all of them behind the rejected one.
  [[nodiscard]] std::int64_t most_worlds() const {
    return std::int64_t{table_.repeats} * (block_ - 1);
  }

  /// Vocabulary-wide rows in backend memory for each anchor of a chunk.
  [[nodiscard]] std::uint64_t rows_per_anchor() const {
    const std::int32_t backbone = direct_drafts() ? 0 : backbone_source_.rows_needed() * block_;
    return static_cast<std::uint64_t>(drafts_per_anchor() + target_source_.rows_needed() +
                                      backbone) *
           static_cast<std::uint64_t>(vocab_) * sizeof(float);
  }

  [[nodiscard]] std::int64_t choose_chunk() const {
    // Row indices within a chunk are 32-bit.
    std::int64_t most = (std::int64_t{1} << 30) / block_;
    if (table_.repeats > 0) {
      const std::int64_t worlds = std::int64_t{table_.repeats} * block_;
      most = std::max<std::int64_t>(1, std::min(most, kMaxWorlds / worlds));
    }
    if (options_.chunk > 0) return std::min(options_.chunk, most);
    const std::uint64_t stored = ChunkStream::bytes_per_block(trace_, sources_);
    std::int64_t chunk = chunk_within(backend_, options_, rows_per_anchor(), stored);
    // Products on tensor cores take as long for a part of a tile as for a whole one: the target
    // rows of a chunk, which are P - 1 more than its anchors, shall fill theirs.
    if (options_.products == Products::tensor && chunk > kTileRows) {
      chunk = (chunk + block_ - 1) / kTileRows * kTileRows - (block_ - 1);
    }
    return std::min(most, chunk);
  }

  void report_memory() const {
    if (!options_.plan) return;
    const auto anchors = static_cast<std::uint64_t>(chunk_);
    options_.plan(memory_plan(
        backend_, header_.file,
        {.blocks = chunk_,
         .heads = heads_.bytes,
         .rows = rows_per_anchor() * anchors,
         .stored = ChunkStream::bytes_per_block(trace_, sources_) * anchors,
         .table = bytes_per_table_anchor() * static_cast<std::uint64_t>(trace_.blocks())}));
  }

  void allocate() {
    const std::int64_t cells = chunk_ * block_;
    const std::int64_t positions = std::min(chunk_ + block_ - 1, trace_.blocks());
    stream_.emplace(backend_, trace_, sources_, chunk_);
    if (!direct_drafts()) backbone_source_.allocate(chunk_);
    target_source_.allocate(positions);
    draft_capacity_ = chunk_ * drafts_per_anchor();
    draft_rows_ = DeviceRows(backend_, draft_capacity_, vocab_);
    draft_laws_ = StagedArray<RowLaw>(backend_, draft_capacity_, kLanes);
    if (has_top_laws()) top_laws_ = StagedArray<RowLaw>(backend_, draft_capacity_, kLanes);
    target_laws_ = StagedArray<RowLaw>(backend_, positions, kLanes);
    if (off_policy_) recorded_laws_ = StagedArray<RowLaw>(backend_, positions, kLanes);
    pairs_ = StagedArray<RowPair>(backend_, cells, kLanes);
    outcomes_ = StagedArray<PairOutcome>(backend_, cells, kLanes);
    index_ = StagedArray<std::int32_t>(backend_, cells, kLanes);
    previous_ = StagedArray<std::int32_t>(backend_, cells, kLanes);
    if (table_.has_confidence) scores_ = StagedArray<float>(backend_, cells, kLanes);
    for (auto& fence : done_) fence = backend_.make_fence();
    places_.resize(static_cast<std::size_t>(chunk_));
    if (table_.repeats > 0) allocate_worlds();
  }

  void allocate_worlds() {
    const std::int64_t worlds = chunk_ * most_worlds();
    const std::int64_t steps = chunk_ * static_cast<std::int64_t>(worlds_per_anchor());
    tokens_of_worlds_ = DeviceArray<std::int32_t>(backend_, worlds);
    first_token_ = backend_.allocate_host(static_cast<std::size_t>(worlds) * sizeof(std::int32_t));
    world_pair_ = StagedArray<std::int32_t>(backend_, worlds, 1);
    world_uniform_ = StagedArray<std::uint64_t>(backend_, worlds, 1);
    step_row_ = StagedArray<std::int32_t>(backend_, steps, 1);
    step_pick_ = StagedArray<std::int32_t>(backend_, steps, 1);
    step_uniform_ = StagedArray<std::uint64_t>(backend_, steps, 1);
    step_laws_ = StagedArray<RowLaw>(backend_, steps, 1);
    if (table_.has_confidence) step_scores_ = StagedArray<float>(backend_, steps, 1);
    // The rows of worlds that have ended are looked at like the others; what is in them does not
    // matter.
    backend_.fill(draft_rows_.buffer().data(), 0, draft_rows_.buffer().bytes());
    worlds_.reserve(static_cast<std::size_t>(worlds));
    worlds_before_.assign(static_cast<std::size_t>(block_) + 2, 0);
  }

  /// Makes the chunk at `first` the current one and enqueues what its target rows say.
  void start_chunk(std::int64_t first) {
    try {
      stream_->advance();
    } catch (...) {
      finish_pending();  // what is wrong before comes first
      throw;
    }
    now_ = {.first = first,
            .count = std::min(chunk_, trace_.blocks() - first),
            .positions = std::min(chunk_ + block_ - 1, trace_.blocks() - first),
            .lane = now_.lane ^ 1};
    find_places();
    if (!direct_drafts()) backbone_ = backbone_source_.make(stream_->stored(0));
    target_ = target_source_.make(stream_->stored(1));
    if (off_policy_) {
      backend_.row_laws({.logits = target_,
                         .rule = recorded_rule_,
                         .laws = recorded_laws_.view(now_.lane, now_.positions)});
      recorded_laws_.download(now_.lane, now_.positions);
    }
    backend_.row_laws({.logits = target_,
                       .rule = target_rule_,
                       .laws = target_laws_.view(now_.lane, now_.positions)});
    target_laws_.download(now_.lane, now_.positions);
  }

  /// Where the current chunk's anchors stand. Chunks come in order, so no sequence is searched for.
  void find_places() {
    const auto& offsets = tokens_.sequence_offsets;
    std::int32_t cell = 0;
    for (std::int64_t i = 0; i < now_.count; ++i) {
      const std::int64_t n = now_.first + i;
      while (n >= offsets[sequence_ + 1]) ++sequence_;
      const std::int64_t end = offsets[sequence_ + 1];
      const std::int64_t slots = std::min<std::int64_t>(block_, end - n);
      places_[static_cast<std::size_t>(i)] = {static_cast<std::int64_t>(sequence_), end, cell};
      table_.slots[static_cast<std::size_t>(n)] = static_cast<std::uint8_t>(slots);
      cell += static_cast<std::int32_t>(slots);
    }
    cells_of_text_ = cell;
  }

  void finish_pending() {
    if (!pending_) return;
    const Chunk chunk = *pending_;
    pending_.reset();
    if (table_.repeats > 0) {
      collect_worlds(chunk);
    } else {
      settle_text(chunk);
    }
    finish(chunk);
  }

  /// Nothing of the chunk is left to do.
  void finish(const Chunk& chunk) {
    status_.require_good_ids(chunk.lane);
    if (options_.progress) options_.progress(chunk.first + chunk.count, trace_.blocks());
  }

  /// Enqueues the copy of the status word, and the fence that stands for all results so far.
  void end_of_results(int lane) {
    status_.download(lane);
    backend_.mark(Queue::operations, *done_[static_cast<std::size_t>(lane)]);
  }
  void wait_for_results(int lane) { backend_.wait(*done_[static_cast<std::size_t>(lane)]); }

  // --- the recorded text ---

  /// The token at `position` of a sequence that ends at `end`; its end stands for the token after
  /// the last one.
  [[nodiscard]] std::int32_t token_at(const Place& place, std::int64_t position) const {
    return position < place.end ? tokens_.tokens[static_cast<std::size_t>(position)]
                                : tokens_.last_tokens[static_cast<std::size_t>(place.sequence)];
  }
  [[nodiscard]] const Place& place_of(std::int64_t anchor) const {
    return places_[static_cast<std::size_t>(anchor - now_.first)];
  }
  [[nodiscard]] std::size_t cell_index(const Cell& cell) const {
    return static_cast<std::size_t>(cell.anchor * block_ + cell.slot - 1);
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
  /// Probability of the recorded token of a pair under the recorded setting, in units of 2^-61.
  [[nodiscard]] std::uint64_t recorded_probability(const Chunk& chunk, const RowPair& pair,
                                                   const PairOutcome& outcome) const {
    if (!off_policy_) return outcome.target_token;
    return law_probability(recorded_laws_.host(chunk.lane)[pair.target_row], outcome.target_logit,
                           pair.token);
  }
  /// False if the target row of a pair is invalid or its recorded next token impossible under the
  /// recorded setting; counts each once.
  bool target_valid(const Chunk& chunk, const RowPair& pair, const PairOutcome& outcome) {
    const RowLaw& law = target_laws_.host(chunk.lane)[pair.target_row];
    const std::int64_t position = chunk.first + pair.target_row;
    const std::int32_t token = pair.token;
    auto& counted = target_counted_[static_cast<std::size_t>(position)];
    if (law.status != kRowValid) {
      if (!counted) count_invalid_row(target_name(), position, std::nullopt, law.status);
      counted = 1;
      return false;
    }
    if (outcome.valid == 0) return true;  // the draft row is invalid: nothing is known of the token
    bool possible = recorded_probability(chunk, pair, outcome) > 0;
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
    return target_source_.stored() ? "/anchors/target_logits" : "/anchors/target_hidden";
  }
  [[nodiscard]] const char* draft_name() const {
    return backbone_source_.stored() ? "/anchors/draft_logits" : "/anchors/draft_hidden";
  }

  // --- draft rows: Markov logits, laws, comparison with the target ---

  /// Enqueues the draft rows of the first `cells` cells that index_, previous_ and pairs_ of the
  /// current chunk's lane hold, and the copies of what they say.
  void enqueue_cells(std::int64_t cells) {
    const int lane = now_.lane;
    const Rows draft = draft_rows_.rows(cells);
    const auto row = index_.upload(lane, cells);
    const auto previous = previous_.upload(lane, cells);
    if (direct_drafts()) {
      backend_.draft_rows({.hidden = stream_->stored(0),
                           .hidden_row = row,
                           .previous = previous,
                           .head = heads_.draft_lm_head,
                           .w1 = heads_.markov_w1,
                           .w2 = heads_.markov_w2,
                           .out = draft,
                           .products = options_.products,
                           .status = status_.data()});
    } else {
      add_bias(row, previous, draft);
    }
    backend_.row_laws(
        {.logits = draft, .rule = draft_rule_, .laws = draft_laws_.view(lane, cells)});
    draft_laws_.download(lane, cells);
    backend_.compare_pairs({.target = target_,
                            .target_laws = target_laws_.const_view(lane, now_.positions),
                            .draft = draft,
                            .draft_laws = draft_laws_.const_view(lane, cells),
                            .pairs = pairs_.upload(lane, cells),
                            .out = outcomes_.view(lane, cells)});
    outcomes_.download(lane, cells);
    if (has_top_laws()) {
      backend_.row_laws({.logits = draft, .rule = top_rule_, .laws = top_laws_.view(lane, cells)});
      top_laws_.download(lane, cells);
    }
    if (table_.has_confidence) {
      score(row, previous, scores_.view(lane, cells));
      scores_.download(lane, cells);
    }
  }

  /// Enqueues draft rows from the backbone's: `out` has one for each of `previous`.
  void add_bias(const Array<const std::int32_t>& row, const Array<const std::int32_t>& previous,
                const Rows& out) {
    backend_.markov_rows({.backbone = backbone_,
                          .backbone_row = row,
                          .previous = previous,
                          .w1 = heads_.markov_w1,
                          .w2 = heads_.markov_w2,
                          .out = out,
                          .products = options_.products,
                          .status = status_.data()});
  }

  /// Enqueues the confidences of draft rows given the token before each.
  void score(const Array<const std::int32_t>& row, const Array<const std::int32_t>& previous,
             const Array<float>& out) {
    backend_.confidence_rows({.hidden = stream_->stored(backbone_source_.stored() ? 2 : 0),
                              .hidden_row = row,
                              .previous = previous,
                              .w1 = heads_.markov_w1,
                              .weight = heads_.confidence_weight,
                              .bias = heads_.confidence_bias,
                              .out = out,
                              .status = status_.data()});
  }

  /// True if the laws whose top probabilities are asked for are not those that are drafted from.
  [[nodiscard]] bool has_top_laws() const { return top_probability_ && draft_rule_.greedy; }

  /// What is seen of cell `i` of the lane, where it is asked for.
  void store_confidence(int lane, std::int64_t i, std::size_t at) {
    if (table_.has_confidence) table_.confidence[at] = scores_.host(lane)[i];
  }
  void store_top_probability(int lane, std::int64_t i, std::size_t at) {
    if (!top_probability_) return;
    table_.top_probability[at] =
        top_probability((has_top_laws() ? top_laws_ : draft_laws_).host(lane)[i]);
  }

  void store_importance(const Chunk& chunk, std::size_t at, const RowPair& pair,
                        const PairOutcome& outcome) {
    if (!off_policy_) return;
    table_.importance[at] = static_cast<double>(outcome.target_token) /
                            static_cast<double>(recorded_probability(chunk, pair, outcome));
  }

  /// Puts a cell of the current chunk at place `i` of its lane.
  void put_cell(const Cell& cell, std::int64_t i, std::int32_t previous, const Place& place) {
    const auto in_chunk = static_cast<std::int32_t>(cell.anchor - now_.first);
    index_.host(now_.lane)[i] = in_chunk * block_ + cell.slot - 1;
    previous_.host(now_.lane)[i] = previous;
    pairs_.host(now_.lane)[i] = {.target_row = in_chunk + cell.slot - 1,
                                 .draft_row = static_cast<std::int32_t>(i),
                                 .token = token_at(place, cell.anchor + cell.slot)};
  }

  // --- sampled drafts: draft rows along the recorded text ---

  void enqueue_text() {
    std::int64_t cell = 0;
    for (std::int64_t i = 0; i < now_.count; ++i) {
      const std::int64_t n = now_.first + i;
      const Place& place = places_[static_cast<std::size_t>(i)];
      const std::int32_t slots = table_.slots[static_cast<std::size_t>(n)];
      for (std::int32_t k = 1; k <= slots; ++k) {
        put_cell({n, k}, cell++, token_at(place, n + k - 1), place);
      }
    }
    enqueue_cells(cell);
    end_of_results(now_.lane);
  }

  /// Waits for what the draft rows along the text say, and keeps it.
  void settle_text(const Chunk& chunk) {
    wait_for_results(chunk.lane);
    std::int64_t cell = 0;
    for (std::int64_t n = chunk.first; n < chunk.first + chunk.count; ++n) {
      const std::int64_t slots = table_.slots[static_cast<std::size_t>(n)];
      settle_block(chunk, n, cell);
      cell += slots;
    }
  }

  /// The block of anchor `n`, whose cells start at `cell`; cuts it before its first invalid row.
  void settle_block(const Chunk& chunk, std::int64_t n, std::int64_t cell) {
    auto& slots = table_.slots[static_cast<std::size_t>(n)];
    for (std::int32_t k = 1; k <= slots; ++k) {  // a cut cuts no confidences
      store_confidence(chunk.lane, cell + k - 1, cell_index({n, k}));
    }
    for (std::int32_t k = 1; k <= slots; ++k) {
      const std::int64_t i = cell + k - 1;
      const RowLaw& law = draft_laws_.host(chunk.lane)[i];
      const PairOutcome& outcome = outcomes_.host(chunk.lane)[i];
      const RowPair& pair = pairs_.host(chunk.lane)[i];
      const std::size_t at = cell_index({n, k});
      if (law.status != kRowValid) count_invalid_row(draft_name(), n, k, law.status);
      const bool target = target_valid(chunk, pair, outcome);
      if (law.status != kRowValid || !target) {
        slots = static_cast<std::uint8_t>(k - 1);
        return;
      }
      const double p = static_cast<double>(outcome.target_token);
      const double q = static_cast<double>(outcome.draft_token);
      table_.beta[at] = q >= p ? 1.0 : q / p;
      table_.alpha[at] = std::min(1.0, static_cast<double>(outcome.alpha) * kProbabilityUnit);
      store_importance(chunk, at, pair, outcome);
      table_.agreement[at] = law.argmax == target_laws_.host(chunk.lane)[pair.target_row].argmax;
      store_top_probability(chunk.lane, i, at);
    }
  }

  // --- deterministic drafts: the drafted chain ---

  void reduce_chain() {
    stream_->prefetch();
    const int lane = now_.lane;
    chain_.resize(static_cast<std::size_t>(now_.count));
    on_text_.assign(static_cast<std::size_t>(now_.count), 1);
    for (std::int64_t i = 0; i < now_.count; ++i) {
      chain_[static_cast<std::size_t>(i)] =
          tokens_.tokens[static_cast<std::size_t>(now_.first + i)];
    }
    for (std::int32_t k = 1; k <= block_; ++k) {
      cells_.clear();
      for (std::int64_t n = now_.first; n < now_.first + now_.count; ++n) {
        if (k > table_.slots[static_cast<std::size_t>(n)]) continue;
        put_cell({n, k}, static_cast<std::int64_t>(cells_.size()),
                 chain_[static_cast<std::size_t>(n - now_.first)], place_of(n));
        cells_.push_back({n, k});
      }
      if (cells_.empty()) break;
      enqueue_cells(static_cast<std::int64_t>(cells_.size()));
      end_of_results(lane);
      stream_->prefetch();
      wait_for_results(lane);
      for (std::size_t i = 0; i < cells_.size(); ++i) {
        settle_draft(cells_[i], static_cast<std::int64_t>(i));
      }
    }
  }

  /// A draft of the chain, cell `i` of the lane.
  void settle_draft(const Cell& cell, std::int64_t i) {
    const auto block = static_cast<std::size_t>(cell.anchor - now_.first);
    const RowLaw& law = draft_laws_.host(now_.lane)[i];
    const RowPair& pair = pairs_.host(now_.lane)[i];
    store_confidence(now_.lane, i, cell_index(cell));
    if (law.status != kRowValid)
      count_invalid_row(draft_name(), cell.anchor, cell.slot, law.status);
    const bool target = target_valid(now_, pair, outcomes_.host(now_.lane)[i]);
    if (law.status != kRowValid || !target) {
      table_.slots[static_cast<std::size_t>(cell.anchor)] =
          static_cast<std::uint8_t>(cell.slot - 1);
      return;
    }
    if (on_text_[block] &&
        static_cast<double>(law.max_logit) - static_cast<double>(law.second_logit) < kNearTie) {
      ++table_.near_ties;
    }
    chain_[block] = law.argmax;
    store_top_probability(now_.lane, i, cell_index(cell));
    if (on_text_[block]) {
      on_text_[block] = law.argmax == pair.token;
      store_draft(cell, i, on_text_[block] != 0);
    }
  }

  /// Outcome of a draft whose block has been the recorded text so far; `matches`: and still is.
  void store_draft(const Cell& cell, std::int64_t i, bool matches) {
    const std::size_t at = cell_index(cell);
    const RowLaw& law = draft_laws_.host(now_.lane)[i];
    const RowPair& pair = pairs_.host(now_.lane)[i];
    const PairOutcome& outcome = outcomes_.host(now_.lane)[i];
    const RowLaw& target = target_laws_.host(now_.lane)[pair.target_row];
    table_.beta[at] = matches ? 1.0 : 0.0;
    store_importance(now_, at, pair, outcome);
    if (greedy_verification_ && !off_policy_) {
      // A near tie may have gone the other way in the recording: the recorded token decides.
      table_.alpha[at] = table_.beta[at];
      table_.agreement[at] = matches;
    } else {
      table_.alpha[at] = std::min(1.0, static_cast<double>(outcome.alpha) * kProbabilityUnit);
      table_.agreement[at] = law.argmax == target.argmax;
      if (greedy_verification_ &&
          static_cast<double>(target.max_logit) - static_cast<double>(target.second_logit) <
              kNearTie) {
        ++table_.near_ties;
      }
    }
  }

  // --- sampled worlds: what is drafted after a rejection ---
  //
  // Worlds stand in the order of the slot that they were rejected at, so that those which have
  // drafted x_{k-1} are the first ones at every slot k. Their tokens stay in backend memory: all
  // slots are enqueued one after the other, and nothing is waited for in between. A world that has
  // ended has a token of -1, for which the operations do nothing.

  /// Enqueues the worlds of the current chunk, whose text is settled. The draft rows along the text
  /// are still in draft_rows_.
  void enqueue_worlds() {
    list_worlds();
    const auto count = static_cast<std::int64_t>(worlds_.size());
    draw_rejected(count);
    backend_.enqueue_download(first_token_.data(), tokens_of_worlds_.data(),
                              worlds_.size() * sizeof(std::int32_t));
    const std::int64_t steps = list_steps();
    static_cast<void>(step_row_.upload(0, steps));
    static_cast<void>(step_pick_.upload(0, steps));
    static_cast<void>(step_uniform_.upload(0, steps));
    std::int64_t begin = 0;
    for (std::int32_t k = 2; k <= block_; ++k) {
      const std::int64_t active = worlds_before(k);
      advance_worlds(k, begin, active);
      begin += active;
    }
    step_laws_.download(0, steps);
    if (table_.has_confidence) step_scores_.download(0, steps);
    end_of_results(now_.lane);
  }

  /// Worlds that were rejected before slot k.
  [[nodiscard]] std::int64_t worlds_before(std::int32_t k) const {
    return worlds_before_[static_cast<std::size_t>(k)];
  }

  /// One world per anchor, repeat and rejection slot r that can happen and has a later slot.
  void list_worlds() {
    worlds_.clear();
    reached_.assign(static_cast<std::size_t>(now_.count), 1);
    for (std::int32_t r = 1; r < block_; ++r) {
      for (std::int64_t i = 0; i < now_.count; ++i) {
        const std::int64_t n = now_.first + i;
        auto& reached = reached_[static_cast<std::size_t>(i)];
        if (!reached || r >= table_.slots[static_cast<std::size_t>(n)]) continue;
        const std::size_t at = cell_index({n, r});
        // Off policy the recorded token at the slot itself says nothing: it is integrated out.
        if ((off_policy_ ? table_.alpha[at] : table_.beta[at]) < 1.0) {
          for (std::int32_t s = 0; s < table_.repeats; ++s) {
            worlds_.push_back({static_cast<std::int32_t>(i), r, s});
          }
        }
        reached = table_.beta[at] > 0 && (!off_policy_ || table_.importance[at] > 0);
      }
      worlds_before_[static_cast<std::size_t>(r) + 1] = static_cast<std::int64_t>(worlds_.size());
    }
  }

  [[nodiscard]] RandomKey key_of(const World& world, std::int32_t slot,
                                 RandomPurpose purpose) const {
    const auto sequence =
        static_cast<std::size_t>(places_[static_cast<std::size_t>(world.anchor)].sequence);
    return {.seed = options_.seed,
            .sequence = static_cast<std::uint64_t>(sequence),
            .position = static_cast<std::uint32_t>(now_.first + world.anchor -
                                                   tokens_.sequence_offsets[sequence]),
            .slot = static_cast<std::uint32_t>(slot),
            .branch = static_cast<std::uint32_t>(world.rejected),
            .repeat = static_cast<std::uint32_t>(world.repeat),
            .purpose = purpose};
  }

  /// Enqueues the rejected draft x_r ~ (q_r - p_r)⁺ of every world. Where the excess vanishes in
  /// the integers the rejection has no mass worth a world: its token is -1.
  void draw_rejected(std::int64_t count) {
    for (std::int64_t w = 0; w < count; ++w) {
      const World& world = worlds_[static_cast<std::size_t>(w)];
      world_pair_.host(0)[w] =
          places_[static_cast<std::size_t>(world.anchor)].cell + world.rejected - 1;
      world_uniform_.host(0)[w] =
          random_uniform(key_of(world, world.rejected, RandomPurpose::rejected));
    }
    static_cast<void>(world_pair_.upload(0, count));
    static_cast<void>(world_uniform_.upload(0, count));
    for (std::int64_t begin = 0; begin < count; begin += draft_capacity_) {
      const std::int64_t part = std::min(draft_capacity_, count - begin);
      backend_.sample_excess({.target = target_,
                              .target_laws = target_laws_.const_view(now_.lane, now_.positions),
                              .draft = draft_rows_.rows(cells_of_text_),
                              .draft_laws = draft_laws_.const_view(now_.lane, cells_of_text_),
                              .pairs = pairs_.const_view(now_.lane, cells_of_text_),
                              .pair = world_pair_.const_view(0, part, begin),
                              .uniform = world_uniform_.const_view(0, part, begin),
                              .token = {tokens_of_worlds_.data() + begin, part}});
    }
  }

  /// What every world needs at every slot behind the rejected one, slot by slot; returns how many.
  std::int64_t list_steps() {
    std::int64_t step = 0;
    std::int32_t* const rows = step_row_.host(0);
    std::int32_t* const picks = step_pick_.host(0);
    std::uint64_t* const uniforms = step_uniform_.host(0);
    for (std::int32_t k = 2; k <= block_; ++k) {
      std::int64_t row = 0;  // among those that are drafted together
      for (std::int64_t w = 0; w < worlds_before(k); ++w, ++step, ++row) {
        if (row == draft_capacity_) row = 0;
        const World& world = worlds_[static_cast<std::size_t>(w)];
        const bool followed = k < slots_of(now_, world);
        rows[step] = world.anchor * block_ + k - 1;
        picks[step] = followed ? static_cast<std::int32_t>(row) : -1;  // -1: the world ends
        uniforms[step] = followed ? random_uniform(key_of(world, k, RandomPurpose::draft)) : 0;
      }
    }
    return step;
  }

  [[nodiscard]] std::int32_t slots_of(const Chunk& chunk, const World& world) const {
    return table_.slots[static_cast<std::size_t>(chunk.first + world.anchor)];
  }

  /// Enqueues slot k of the first `active` worlds, whose steps start at `first`: what is seen of
  /// the draft, and the draft x_k where a later slot needs it.
  void advance_worlds(std::int32_t k, std::int64_t first, std::int64_t active) {
    if (active == 0) return;
    std::int32_t* const tokens = tokens_of_worlds_.data();
    if (table_.has_confidence) {
      score(step_row_.const_view(0, active, first), {tokens, active},
            step_scores_.view(0, active, first));
    }
    if (k == block_ && !top_probability_) return;
    for (std::int64_t begin = 0; begin < active; begin += draft_capacity_) {
      const std::int64_t part = std::min(draft_capacity_, active - begin);
      const Rows draft = draft_rows_.rows(part);
      add_bias(step_row_.const_view(0, part, first + begin), {tokens + begin, part}, draft);
      backend_.row_laws(
          {.logits = draft, .rule = draft_rule_, .laws = step_laws_.view(0, part, first + begin)});
      if (k == block_) continue;
      backend_.sample_rows({.logits = draft,
                            .laws = step_laws_.const_view(0, part, first + begin),
                            .row = step_pick_.const_view(0, part, first + begin),
                            .uniform = step_uniform_.const_view(0, part, first + begin),
                            .token = {tokens + begin, part}});
    }
  }

  /// Waits for the worlds of `chunk` and keeps what is seen in them.
  void collect_worlds(const Chunk& chunk) {
    wait_for_results(chunk.lane);
    const auto* const first_token = static_cast<const std::int32_t*>(first_token_.data());
    std::int64_t step = 0;
    for (std::int32_t k = 2; k <= block_; ++k) {
      const World* invalid = nullptr;
      for (std::int64_t w = 0; w < worlds_before(k); ++w, ++step) {
        const World& world = worlds_[static_cast<std::size_t>(w)];
        const std::int32_t slots = slots_of(chunk, world);
        if (first_token[w] < 0 || k > slots) continue;
        const std::size_t at = world_index(chunk, world, k);
        if (table_.has_confidence) table_.world_confidence[at] = step_scores_.host(0)[step];
        if (k == slots && !top_probability_) continue;  // its draft is not looked at
        const RowLaw& law = step_laws_.host(0)[step];
        if (law.status != kRowValid && (invalid == nullptr || world.anchor < invalid->anchor)) {
          invalid = &world;
        }
        if (top_probability_) table_.world_top_probability[at] = top_probability(law);
      }
      if (invalid == nullptr) continue;
      throw trace_error(
          header_.file,
          fmt::format("{}[{}, {}] is invalid once the Markov bias of a drafted token is added",
                      draft_name(), chunk.first + invalid->anchor, k - 1),
          "check the Markov weights for very large values");
    }
  }

  /// Where what is seen of the draft at slot k of `world` stands among the numbers of all worlds.
  [[nodiscard]] std::size_t world_index(const Chunk& chunk, const World& world,
                                        std::int32_t k) const {
    return static_cast<std::size_t>(chunk.first + world.anchor) * worlds_per_anchor() +
           static_cast<std::size_t>(world.repeat) *
               static_cast<std::size_t>(worlds_per_repeat(block_)) +
           static_cast<std::size_t>(world_offset(block_, world.rejected, k));
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
  std::vector<ChunkSource> sources_;  // backbone, target, and hidden states that nothing else reads
  LogitSource backbone_source_, target_source_;
  DeviceRows draft_rows_;
  StagedArray<RowLaw> draft_laws_, target_laws_;
  StagedArray<RowLaw> top_laws_, recorded_laws_;  // has_top_laws(), off policy
  StagedArray<RowPair> pairs_;
  StagedArray<PairOutcome> outcomes_;
  StagedArray<std::int32_t> index_, previous_;
  StagedArray<float> scores_;
  StatusWord status_;
  std::array<std::unique_ptr<Fence>, kLanes> done_;

  // Of worlds; one lane, as they are collected before the next chunk's are listed.
  DeviceArray<std::int32_t> tokens_of_worlds_;
  HostBuffer first_token_;
  StagedArray<std::int32_t> world_pair_, step_row_, step_pick_;
  StagedArray<std::uint64_t> world_uniform_, step_uniform_;
  StagedArray<RowLaw> step_laws_;
  StagedArray<float> step_scores_;
  std::vector<World> worlds_;
  std::vector<std::int64_t> worlds_before_;  // [P + 2], by slot
  std::vector<std::uint8_t> reached_;        // by anchor of the chunk: along the text

  // The chunk at hand, and the one whose results are still to be read.
  Chunk now_;
  std::optional<Chunk> pending_;
  Rows backbone_, target_;
  std::size_t sequence_ = 0;
  std::int32_t cells_of_text_ = 0;
  std::vector<Place> places_;
  std::vector<Cell> cells_;
  std::vector<std::int32_t> chain_;    // latest token of each block
  std::vector<std::uint8_t> on_text_;  // by block: all drafts so far are the recorded tokens

  std::optional<ChunkStream> stream_;  // goes first, as it waits for its copies
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
