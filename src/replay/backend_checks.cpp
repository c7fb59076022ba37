// The host-side checks of every operation: what a caller can get wrong in numbers the host knows.
// Ids that live in the backend's memory are checked where they are used.
#include <algorithm>
#include <limits>
#include <string>

#include "replay/backend.h"
#include "support/error.h"

namespace dspark {
namespace {

/// Largest number of elements a view may span, so that byte offsets cannot overflow.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 58;

/// The checks of one call of one function. Texts are put together only where a check fails: these
/// run before every launch.
class Checks {
 public:
  explicit Checks(const char* function) : function_(function) {}

  void need(bool holds, const char* what) const {
    if (!holds) fail(what);
  }

  void equal(std::int64_t got, std::int64_t expected, const char* what) const {
    if (got == expected) return;
    fail(std::string(what) + " is " + std::to_string(got) + " where " + std::to_string(expected) +
         " is needed");
  }

  void in_range(std::int64_t got, std::int64_t low, std::int64_t high, const char* what) const {
    if (got >= low && got <= high) return;
    fail(std::string(what) + " is " + std::to_string(got) + ", outside [" + std::to_string(low) +
         ", " + std::to_string(high) + "]");
  }

  /// `count` elements are read or written through `data`.
  void pointer(const void* data, std::int64_t count, const char* what) const {
    if (data == nullptr && count != 0) fail(std::string(what) + " is null");
  }

  template <class T>
  void array(const Array<T>& values, const char* what) const {
    if (values.size < 0 || values.size > kMaxElements) {
      fail(std::string(what) + " has an impossible size, " + std::to_string(values.size));
    }
    pointer(values.data, values.size, what);
  }

  template <class T>
  void array(const Array<T>& values, std::int64_t size, const char* what) const {
    array(values, what);
    if (values.size != size) {
      fail(std::string(what) + " has " + std::to_string(values.size) + " elements where " +
           std::to_string(size) + " are needed");
    }
  }

  void matrix(const Matrix& values, const char* what) const {
    if (values.type != DType::f16 && values.type != DType::bf16 && values.type != DType::f32) {
      fail(std::string(what) + " has an unknown element type");
    }
    shape(values.data, values.rows, values.cols, values.stride, what);
  }

  /// A matrix that may hold E4M3 codes too.
  void coded_matrix(const Matrix& values, const char* what) const {
    if (values.type != DType::e4m3) return matrix(values, what);
    shape(values.data, values.rows, values.cols, values.stride, what);
  }

  void rows(const Rows& values, const char* what) const {
    shape(values.data, values.rows, values.vocab, values.stride, what);
  }

  /// Rows whose masses are summed.
  void mass_rows(const Rows& values, const char* what) const {
    rows(values, what);
    if (values.vocab > kMaxMassVocab) {
      fail(std::string(what) + " has " + std::to_string(values.vocab) +
           " columns, more than the largest vocabulary, " + std::to_string(kMaxMassVocab));
    }
  }

  void rule(const SamplingRule& rule) const {
    need(rule.greedy || (rule.inverse_temperature > 0 &&
                         rule.inverse_temperature <= std::numeric_limits<float>::max()),
         "the inverse temperature is not a positive number");
    need(rule.top_k >= 0, "top_k is negative");
    need(rule.top_p < (std::uint64_t{1} << 32), "top_p is not below 2^32");
    need(
        rule.top_p_rule == TopPRule::water_filling || rule.top_p_rule == TopPRule::include_crossing,
        "the top-p rule is unknown");
  }

  /// A rule of a temperature alone.
  void unfiltered_rule(const SamplingRule& values) const {
    rule(values);
    need(values.top_k == 0 && values.top_p == 0, "the rule has a filter");
  }

  void scratch(const Scratch& scratch, std::size_t bytes) const {
    if (scratch.bytes < bytes) {
      fail("scratch has " + std::to_string(scratch.bytes) + " bytes where " +
           std::to_string(bytes) + " are needed");
    }
    need(scratch.data != nullptr || bytes == 0, "scratch is null");
  }

  /// Rows b·stride + slot + offset for b < batch and first ≤ slot ≤ last lie in an array of `rows`
  /// rows.
  void block_rows(std::int32_t batch, std::int32_t block_size, std::int32_t stride,
                  std::int32_t offset, std::int32_t first, std::int32_t last, std::int64_t rows,
                  const char* what) const {
    if (batch == 0 || last < first) return;
    const std::int64_t step = stride > 0 ? stride : block_size;
    const std::int64_t low = std::int64_t{first} + offset;
    const std::int64_t high = (std::int64_t{batch} - 1) * step + last + offset;
    if (low >= 0 && high < rows) return;
    fail(std::string(what) + " has " + std::to_string(rows) + " rows, rows " + std::to_string(low) +
         " to " + std::to_string(high) + " are asked for");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw internal_error(function_, what, "this is a mistake in the program, report it");
  }

  void shape(const void* data, std::int64_t rows, std::int64_t cols, std::int64_t stride,
             const char* what) const {
    if (rows < 0 || cols < 0) fail(std::string(what) + " has a negative size");
    if (rows == 0) return;
    if (cols == 0) fail(std::string(what) + " has no columns");
    if (stride < cols) {
      fail(std::string(what) + " has a stride of " + std::to_string(stride) +
           ", shorter than its rows of " + std::to_string(cols));
    }
    if (stride > kMaxElements / rows) fail(std::string(what) + " is too large");
    pointer(data, rows, what);
  }

  const char* function_;
};

void check_confidence_scores(const Checks& checks, const ConfidenceScoresArgs& args) {
  checks.need(args.batch >= 0 && args.block_size >= 0, "negative batch or block size");
  const std::int64_t cells = std::int64_t{args.batch} * args.block_size;
  checks.matrix(args.hidden, "hidden");
  checks.block_rows(args.batch, args.block_size, args.hidden_stride, args.hidden_offset, 0,
                    args.block_size - 1, args.hidden.rows, "hidden");
  checks.array(args.weight, "weight");
  if (cells == 0) return;
  if (args.weight.size != args.hidden.cols) {
    checks.matrix(args.w1, "w1");
    checks.pointer(args.w1.data, 1, "w1");
    checks.equal(args.weight.size, args.hidden.cols + args.w1.cols, "weight: size");
    checks.pointer(args.first_previous, args.batch, "first_previous");
    checks.pointer(args.draft, cells, "draft");
  }
  checks.pointer(args.scores, cells, "scores");
}

void check_markov_head(const Checks& checks, const Matrix& w1, const Matrix& w2,
                       std::int32_t vocab) {
  if (w1.data == nullptr) return;
  checks.matrix(w1, "w1");
  checks.matrix(w2, "w2");
  checks.equal(w2.cols, w1.cols, "w2: columns");
  checks.equal(w2.rows, vocab, "w2: rows");
}

/// What the greedy step and the greedy proposal have in common.
template <class Args>
void check_greedy(const Checks& checks, const Args& args, std::int32_t first, std::int32_t last) {
  checks.need(args.batch >= 0, "negative batch");
  checks.rows(args.backbone, "backbone");
  if (args.batch == 0) return;
  checks.need(args.backbone.vocab > 0, "backbone has no columns");
  checks.block_rows(args.batch, args.block_size, args.logits_stride, args.logits_offset, first,
                    last, args.backbone.rows, "backbone");
  if (args.w1.data == nullptr) return;
  checks.matrix(args.w1, "w1");
  checks.coded_matrix(args.w2, "w2");
  checks.equal(args.w2.cols, args.w1.cols, "w2: columns");
  checks.equal(args.w2.rows, args.backbone.vocab, "w2: rows");
  checks.need(fused_greedy_supported(args.w2.cols, args.w2.type), "the rank is not supported");
  if (args.w2.type == DType::e4m3) checks.pointer(args.w2_scale, args.w2.rows, "w2_scale");
  if (first == 0) checks.pointer(args.first_previous, args.batch, "first_previous");
}

}  // namespace

void check(const ProjectArgs& args) {
  const Checks checks("project");
  checks.matrix(args.a, "a");
  checks.matrix(args.b, "b");
  checks.rows(args.out, "out");
  checks.equal(args.out.rows, args.a.rows, "out: rows");
  checks.equal(args.out.vocab, args.b.rows, "out: columns");
  checks.equal(args.b.cols, args.a.cols, "b: columns");
}

void check(const WidenArgs& args) {
  const Checks checks("widen");
  checks.matrix(args.in, "in");
  checks.rows(args.out, "out");
  checks.equal(args.out.rows, args.in.rows, "out: rows");
  checks.equal(args.out.vocab, args.in.cols, "out: columns");
}

void check(const MarkovRowsArgs& args) {
  const Checks checks("markov_rows");
  checks.rows(args.backbone, "backbone");
  checks.rows(args.out, "out");
  checks.array(args.backbone_row, args.out.rows, "backbone_row");
  checks.array(args.previous, args.out.rows, "previous");
  if (args.out.rows == 0) return;
  checks.equal(args.out.vocab, args.backbone.vocab, "out: columns");
  check_markov_head(checks, args.w1, args.w2, args.out.vocab);
}

void check(const DraftRowsArgs& args) {
  const Checks checks("draft_rows");
  checks.matrix(args.hidden, "hidden");
  checks.matrix(args.head, "head");
  checks.rows(args.out, "out");
  checks.array(args.previous, args.out.rows, "previous");
  if (args.hidden_row.data != nullptr) {
    checks.array(args.hidden_row, args.out.rows, "hidden_row");
  } else {
    checks.equal(args.hidden.rows, args.out.rows, "hidden: rows");
  }
  if (args.out.rows == 0) return;
  checks.equal(args.head.rows, args.out.vocab, "head: rows");
  checks.equal(args.head.cols, args.hidden.cols, "head: columns");
  check_markov_head(checks, args.w1, args.w2, args.out.vocab);
}

void check(const ConfidenceRowsArgs& args) {
  const Checks checks("confidence_rows");
  checks.matrix(args.hidden, "hidden");
  checks.array(args.out, "out");
  checks.array(args.hidden_row, args.out.size, "hidden_row");
  checks.array(args.previous, args.out.size, "previous");
  checks.array(args.weight, "weight");
  if (args.out.size == 0) return;
  if (args.weight.size != args.hidden.cols) {
    checks.matrix(args.w1, "w1");
    checks.pointer(args.w1.data, 1, "w1");
    checks.equal(args.weight.size, args.hidden.cols + args.w1.cols, "weight: size");
  }
}

void check(const RowLawsArgs& args) {
  const Checks checks("row_laws");
  checks.mass_rows(args.logits, "logits");
  checks.array(args.laws, args.logits.rows, "laws");
  checks.rule(args.rule);
}

void check(const ComparePairsArgs& args) {
  const Checks checks("compare_pairs");
  checks.mass_rows(args.target, "target");
  checks.mass_rows(args.draft, "draft");
  checks.array(args.target_laws, args.target.rows, "target_laws");
  checks.array(args.draft_laws, args.draft.rows, "draft_laws");
  checks.array(args.pairs, "pairs");
  checks.array(args.out, args.pairs.size, "out");
  checks.equal(args.draft.vocab, args.target.vocab, "draft: columns");
}

void check(const SampleRowsArgs& args) {
  const Checks checks("sample_rows");
  checks.mass_rows(args.logits, "logits");
  checks.array(args.laws, args.logits.rows, "laws");
  checks.array(args.token, "token");
  checks.array(args.row, args.token.size, "row");
  checks.array(args.uniform, args.token.size, "uniform");
}

void check(const SampleExcessArgs& args) {
  const Checks checks("sample_excess");
  checks.mass_rows(args.target, "target");
  checks.mass_rows(args.draft, "draft");
  checks.array(args.target_laws, args.target.rows, "target_laws");
  checks.array(args.draft_laws, args.draft.rows, "draft_laws");
  checks.array(args.pairs, "pairs");
  checks.array(args.token, "token");
  checks.array(args.pair, args.token.size, "pair");
  checks.array(args.uniform, args.token.size, "uniform");
  checks.equal(args.draft.vocab, args.target.vocab, "draft: columns");
}

void check(const BuildVerifyTokensArgs& args) {
  const Checks checks("build_verify_tokens");
  checks.need(args.batch >= 0 && args.length >= 0, "negative batch or length");
  if (args.batch == 0) return;
  checks.need(args.draft_stride >= args.length, "draft_stride is shorter than the length");
  checks.pointer(args.last, args.batch, "last");
  checks.pointer(args.draft, args.length, "draft");
  checks.pointer(args.verify, args.batch, "verify");
}

void check(const FillProposalLengthsArgs& args) {
  const Checks checks("fill_proposal_lengths");
  checks.need(args.batch >= 0, "negative batch");
  checks.pointer(args.lengths, args.batch, "lengths");
}

void check(const GreedyAcceptArgs& args) {
  const Checks checks("greedy_accept");
  checks.need(args.batch >= 0, "negative batch");
  checks.need(args.length >= 1, "the length is below 1");
  checks.need(args.draft_stride >= args.length, "draft_stride is shorter than the length");
  checks.mass_rows(args.logits, "logits");
  checks.equal(args.logits.rows, std::int64_t{args.batch} * (std::int64_t{args.length} + 1),
               "logits: rows");
  checks.pointer(args.draft, args.batch, "draft");
  checks.pointer(args.lengths, args.batch, "lengths");
  checks.pointer(args.accepted, args.batch, "accepted");
  checks.pointer(args.accept_length, args.batch, "accept_length");
  checks.pointer(args.laws, args.batch, "laws");
}

void check(const ConfidenceScoresArgs& args) {
  check_confidence_scores(Checks("confidence_scores"), args);
}

void check(const ThresholdLengthsArgs& args) {
  const Checks checks("threshold_lengths");
  check_confidence_scores(checks, args.scores);
  checks.pointer(args.lengths, args.scores.batch, "lengths");
}

void check(const SpsLengthsArgs& args) {
  const Checks checks("sps_lengths");
  check_confidence_scores(checks, args.scores);
  checks.pointer(args.lengths, args.scores.batch, "lengths");
}

void check(const BatchScheduleArgs& args) {
  const Checks checks("batch_schedule");
  const BatchStep& step = args.step;
  checks.in_range(step.requests, 0, kMaxScheduledRequests, "requests");
  checks.in_range(step.positions, 0, kMaxScheduledPositions, "positions");
  checks.in_range(step.stride, step.positions, kMaxElements / kMaxScheduledRequests, "stride");
  checks.pointer(step.confidence, std::int64_t{step.requests} * step.positions, "confidence");
  checks.pointer(step.slots, step.requests, "slots");
  checks.array(args.price, "price");
  checks.pointer(args.lengths, step.requests, "lengths");
  const BatchOptions& options = args.options;
  checks.need(options.rule == BatchRule::algorithm1 || options.rule == BatchRule::global,
              "the rule is unknown");
  checks.need(
      options.ties == TieOrder::position_request || options.ties == TieOrder::request_position,
      "the order of ties is unknown");
  checks.in_range(options.floor, 0, kMaxScheduledPositions, "floor");
  checks.need(options.survival_epsilon >= 0, "survival_epsilon is not a number of 0 or more");
  checks.need(options.min_gain >= 0, "min_gain is not a number of 0 or more");
}

void check(const LogitsToProbabilitiesArgs& args) {
  const Checks checks("logits_to_probabilities");
  checks.mass_rows(args.logits, "logits");
  checks.rows(args.probabilities, "probabilities");
  checks.equal(args.probabilities.rows, args.logits.rows, "probabilities: rows");
  checks.rule(args.rule);
  if (args.logits.rows == 0) return;
  checks.equal(args.probabilities.vocab, args.logits.vocab, "probabilities: columns");
  checks.need(args.probabilities.data != args.logits.data, "probabilities alias the logits");
  checks.pointer(args.laws, args.logits.rows, "laws");
}

void check(const FillUniformsArgs& args) {
  Checks("fill_uniforms").array(args.uniforms, "uniforms");
}

void check(const BuildMarkovLogitsArgs& args) {
  const Checks checks("build_markov_logits");
  checks.need(args.batch >= 0, "negative batch");
  checks.in_range(args.step, 0, std::int64_t{args.block_size} - 1, "step");
  checks.rows(args.backbone, "backbone");
  checks.rows(args.corrected, "corrected");
  checks.equal(args.corrected.rows, args.batch, "corrected: rows");
  // The scratch holds the row of each batch entry in 32 bits.
  checks.in_range(args.backbone.rows, 0, std::numeric_limits<std::int32_t>::max(),
                  "backbone: rows");
  if (args.batch == 0) return;
  checks.equal(args.corrected.vocab, args.backbone.vocab, "corrected: columns");
  checks.block_rows(args.batch, args.block_size, args.logits_stride, args.logits_offset, args.step,
                    args.step, args.backbone.rows, "backbone");
  check_markov_head(checks, args.w1, args.w2, args.backbone.vocab);
  if (args.w1.data != nullptr) {
    if (args.step == 0) checks.pointer(args.first_previous, args.batch, "first_previous");
    if (args.step > 0) checks.pointer(args.draft, args.batch, "draft");
  }
  checks.scratch(args.scratch, build_markov_logits_scratch(args.batch));
}

void check(const SampleProbabilityRowsArgs& args) {
  const Checks checks("sample_probability_rows");
  checks.need(args.batch >= 0, "negative batch");
  checks.in_range(args.step, 0, std::int64_t{args.block_size} - 1, "step");
  checks.mass_rows(args.probabilities, "probabilities");
  checks.equal(args.probabilities.rows, args.batch, "probabilities: rows");
  checks.pointer(args.uniforms, args.batch, "uniforms");
  checks.pointer(args.tokens, args.batch, "tokens");
  checks.scratch(args.scratch,
                 args.batch == 0 ? 0 : row_scan_scratch(args.batch, args.probabilities.vocab));
}

void check(const StoreDraftStepProbabilitiesArgs& args) {
  const Checks checks("store_draft_step_probabilities");
  checks.need(args.batch >= 0, "negative batch");
  checks.in_range(args.step, 0, std::int64_t{args.block_size} - 1, "step");
  checks.rows(args.source, "source");
  checks.rows(args.destination, "destination");
  checks.equal(args.source.rows, args.batch, "source: rows");
  checks.equal(args.destination.rows, std::int64_t{args.batch} * args.block_size,
               "destination: rows");
  if (args.batch > 0)
    checks.equal(args.destination.vocab, args.source.vocab, "destination: columns");
}

void check(const VanillaMarkovSampleArgs& args) {
  const Checks checks("vanilla_markov_sample");
  checks.need(args.batch >= 0, "negative batch");
  checks.need(args.block_size >= 1, "the block size is below 1");
  checks.mass_rows(args.backbone, "backbone");
  checks.mass_rows(args.draft_probabilities, "draft_probabilities");
  checks.equal(args.draft_probabilities.rows, std::int64_t{args.batch} * args.block_size,
               "draft_probabilities: rows");
  checks.rule(args.rule);
  if (args.batch == 0) return;
  checks.equal(args.draft_probabilities.vocab, args.backbone.vocab, "draft_probabilities: columns");
  checks.block_rows(args.batch, args.block_size, args.logits_stride, args.logits_offset, 0,
                    args.block_size - 1, args.backbone.rows, "backbone");
  check_markov_head(checks, args.w1, args.w2, args.backbone.vocab);
  if (args.w1.data != nullptr) checks.pointer(args.first_previous, args.batch, "first_previous");
  checks.pointer(args.uniforms, args.batch, "uniforms");
  checks.pointer(args.tokens, args.batch, "tokens");
  checks.scratch(args.scratch, vanilla_markov_sample_scratch(args.batch, args.backbone.vocab));
}

void check(const ProbabilisticAcceptArgs& args) {
  const Checks checks("probabilistic_accept");
  checks.need(args.batch >= 0, "negative batch");
  checks.need(args.length >= 1, "the length is below 1");
  checks.need(args.draft_stride >= args.length, "draft_stride is shorter than the length");
  checks.mass_rows(args.target, "target");
  checks.mass_rows(args.draft, "draft");
  checks.equal(args.target.rows, std::int64_t{args.batch} * (std::int64_t{args.length} + 1),
               "target: rows");
  checks.equal(args.draft.rows, std::int64_t{args.batch} * args.draft_stride, "draft: rows");
  if (args.batch == 0) return;
  checks.equal(args.draft.vocab, args.target.vocab, "draft: columns");
  checks.pointer(args.tokens, args.batch, "tokens");
  checks.pointer(args.lengths, args.batch, "lengths");
  checks.pointer(args.uniforms, args.batch, "uniforms");
  checks.pointer(args.accepted, args.batch, "accepted");
  checks.pointer(args.accept_length, args.batch, "accept_length");
  checks.scratch(args.scratch, row_scan_scratch(args.batch, args.target.vocab));
}

void check(const QuantizeMarkovW2Args& args) {
  const Checks checks("quantize_markov_w2");
  checks.matrix(args.w2, "w2");
  if (args.w2.rows == 0) return;
  checks.need(args.w2.cols % kFloat8Piece == 0, "the rank is not a multiple of 16");
  checks.pointer(args.codes, args.w2.rows, "codes");
  checks.pointer(args.scale, args.w2.rows, "scale");
}

void check(const MarkovGreedyStepArgs& args) {
  const Checks checks("markov_greedy_step");
  checks.in_range(args.step, 0, std::int64_t{args.block_size} - 1, "step");
  check_greedy(checks, args, args.step, args.step);
  if (args.batch == 0) return;
  checks.pointer(args.slots, args.batch, "slots");
  if (args.stacked.data != nullptr) {
    checks.rows(args.stacked, "stacked");
    checks.equal(args.stacked.rows, std::int64_t{args.batch} * (std::int64_t{args.block_size} + 1),
                 "stacked: rows");
    checks.equal(args.stacked.vocab, args.backbone.vocab, "stacked: columns");
    checks.need(args.stacked_row <= args.block_size, "stacked_row lies beyond the block");
  }
  checks.scratch(args.scratch, markov_greedy_step_scratch(args.batch));
}

void check(const FinalizeGreedyDraftTokensArgs& args) {
  const Checks checks("finalize_greedy_draft_tokens");
  checks.need(args.vocab >= 0, "negative vocabulary");
  checks.array(args.slots, "slots");
  checks.array(args.tokens, args.slots.size, "tokens");
}

void check(const GreedyProposeArgs& args) {
  const Checks checks("greedy_propose");
  checks.need(args.block_size >= 1, "the block size is below 1");
  check_greedy(checks, args, 0, args.block_size - 1);
  if (args.batch == 0) return;
  checks.pointer(args.tokens, args.batch, "tokens");
  checks.scratch(args.scratch, greedy_propose_scratch(args.batch, args.block_size));
}

void check(const SelectTopKArgs& args) {
  const Checks checks("select_top_k");
  checks.mass_rows(args.logits, "logits");
  checks.rows(args.values, "values");
  checks.equal(args.values.rows, args.logits.rows, "values: rows");
  if (args.logits.rows == 0) return;
  checks.in_range(args.values.vocab, 1, std::min(args.logits.vocab, kMaxTopK), "values: columns");
  checks.pointer(args.ids, args.logits.rows, "ids");
  checks.scratch(args.scratch,
                 select_top_k_scratch(args.logits.rows, args.logits.vocab, args.values.vocab));
}

void check(const NormalizeTopKRowsArgs& args) {
  const Checks checks("normalize_top_k_rows");
  checks.rows(args.values, "values");
  checks.rows(args.probabilities, "probabilities");
  checks.unfiltered_rule(args.rule);
  checks.equal(args.probabilities.rows, args.values.rows, "probabilities: rows");
  if (args.values.rows == 0) return;
  checks.in_range(args.values.vocab, 1, kMaxTopK, "values: columns");
  checks.equal(args.probabilities.vocab, args.values.vocab, "probabilities: columns");
  if (args.probabilities.data == args.values.data) {
    checks.equal(args.probabilities.stride, args.values.stride, "probabilities: stride");
  }
}

void check(const StoreDraftStepTop1Args& args) {
  const Checks checks("store_draft_step_top1");
  checks.need(args.batch >= 0, "negative batch");
  checks.need(args.vocab >= 0, "negative vocabulary");
  checks.in_range(args.step, 0, std::int64_t{args.block_size} - 1, "step");
  checks.need(args.ids_stride >= 1, "ids_stride is below 1");
  checks.pointer(args.ids, args.batch, "ids");
  checks.pointer(args.tokens, args.batch, "tokens");
}

void check(const SampleTopKRowsArgs& args) {
  const Checks checks("sample_top_k_rows");
  checks.need(args.batch >= 0, "negative batch");
  checks.need(args.vocab >= 0, "negative vocabulary");
  checks.in_range(args.step, 0, std::int64_t{args.block_size} - 1, "step");
  checks.rows(args.values, "values");
  checks.rows(args.probabilities, "probabilities");
  checks.unfiltered_rule(args.rule);
  checks.equal(args.values.rows, args.batch, "values: rows");
  checks.equal(args.probabilities.rows, std::int64_t{args.batch} * args.block_size,
               "probabilities: rows");
  if (args.batch == 0) return;
  checks.in_range(args.values.vocab, 1, kMaxTopK, "values: columns");
  checks.equal(args.probabilities.vocab, args.values.vocab, "probabilities: columns");
  checks.need(args.probabilities.data != args.values.data, "probabilities alias the values");
  checks.pointer(args.ids, args.batch, "ids");
  checks.pointer(args.uniforms, args.batch, "uniforms");
  checks.pointer(args.stored_ids, args.batch, "stored_ids");
  checks.pointer(args.tokens, args.batch, "tokens");
}

}  // namespace dspark
