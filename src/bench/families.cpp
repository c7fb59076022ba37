// The table of families at the end of this file, and how each makes its inputs and its call.
#include <algorithm>
#include <cmath>
#include <utility>

#include "bench/cases.h"

namespace dspark {
namespace {

constexpr double kHalf = 2;   // bytes of f16
constexpr double kFloat = 4;  // bytes of f32, i32
constexpr auto kLawBytes = static_cast<double>(sizeof(RowLaw));

using Case = BenchCase;

// --- sizes ---

double as_number(std::int64_t value) { return static_cast<double>(value); }
double batch_of(const Case& c) { return c.batch; }
double vocab_of(const Case& c) { return c.vocab; }
/// B·P rows, one for every draft.
std::int64_t draft_rows(const Case& c) { return std::int64_t{c.batch} * c.block_size; }
/// B·(P+1) rows, one for every token that the target verifies.
std::int64_t target_rows(const Case& c) { return std::int64_t{c.batch} * (c.block_size + 1); }
/// The slot of a block at which things go wrong.
std::int32_t middle(const Case& c) { return c.block_size / 2; }

double row_bytes(const Case& c) { return vocab_of(c) * kFloat; }
double w2_bytes(const Case& c) { return vocab_of(c) * c.rank * kHalf; }
/// Markov rows of `tokens` tokens, and their ids.
double w1_bytes(const Case& c, double tokens) { return tokens * (c.rank * kHalf + kFloat); }
double markov_flops(const Case& c, double rows) { return 2 * rows * vocab_of(c) * c.rank; }

// --- inputs that several families share ---

/// The rows that the target verifies.
Rows target_logits(const Case& c, Arena& arena) {
  return arena.logits(target_rows(c), c.vocab, BenchStream::target);
}

/// The draft's rows before the Markov bias: the target's, but for the middle slot, whose row has
/// nothing to do with it, so that blocks are accepted up to there and seldom further.
Rows backbone_logits(const Case& c, Arena& arena) {
  return arena.logits(draft_rows(c), c.vocab, [&c](std::int64_t row) {
    const std::int64_t b = row / c.block_size;
    const std::int64_t slot = row % c.block_size;
    return slot == middle(c) ? std::pair{BenchStream::draft, row}
                             : std::pair{BenchStream::target, b * (c.block_size + 1) + slot};
  });
}

Array<RowLaw> laws_array(Arena& arena, std::int64_t count) {
  return {arena.zeros<RowLaw>(count), count};
}

Array<const RowLaw> laws_of(Arena& arena, const Rows& logits, const SamplingRule& rule) {
  const Array<RowLaw> laws = laws_array(arena, logits.rows);
  arena.backend().row_laws({.logits = logits, .rule = rule, .laws = laws});
  return {laws.data, laws.size};
}

const std::int32_t* tokens(Arena& arena, std::int64_t count, const Case& c, BenchStream stream) {
  return arena.upload(arena.ids(count, c.vocab, stream));
}

template <class T>
BenchOutput output(std::string_view name, T* data, std::int64_t entries, std::int64_t per_entry,
                   Compare compare = Compare::bits) {
  return {name, data, entries, static_cast<std::size_t>(per_entry) * sizeof(T), compare};
}

/// Rows, the same number for each entry.
BenchOutput output(std::string_view name, const Rows& rows, std::int64_t entries, Compare compare) {
  return output(name, rows.data, entries, rows.rows / entries * rows.vocab, compare);
}

// --- row operations ---

PreparedCase prepare_widen(const Case& c, Arena& arena) {
  const WidenArgs args = {
      .in = arena.hidden(target_rows(c), c.vocab, BenchStream::target),
      .out = arena.rows(target_rows(c), c.vocab),
  };
  return {[&b = arena.backend(), args] { b.widen(args); },
          {output("rows", args.out, c.batch, Compare::bits)},
          nullptr};
}

PreparedCase prepare_project(const Case& c, Arena& arena) {
  const ProjectArgs args = {
      .a = arena.hidden(target_rows(c), c.hidden, BenchStream::context),
      .b = arena.vocabulary_matrix(c.vocab, c.hidden, BenchStream::lm_head),
      .out = arena.rows(target_rows(c), c.vocab),
      .products = c.products,
  };
  return {[&b = arena.backend(), args] { b.project(args); },
          {output("logits", args.out, c.batch, Compare::logits)},
          nullptr};
}

PreparedCase prepare_row_laws(const Case& c, Arena& arena) {
  const RowLawsArgs args = {
      .logits = target_logits(c, arena),
      .rule = c.sampling_rule(),
      .laws = laws_array(arena, target_rows(c)),
  };
  return {[&b = arena.backend(), args] { b.row_laws(args); },
          {output("laws", args.laws.data, c.batch, c.block_size + 1)},
          nullptr};
}

/// Target and draft rows with laws, and a pair for every draft.
struct Pairs {
  Rows target, draft;
  Array<const RowLaw> target_laws, draft_laws;
  Array<const RowPair> pairs;
};

Pairs make_pairs(const Case& c, Arena& arena) {
  Pairs out;
  out.target = target_logits(c, arena);
  out.draft = backbone_logits(c, arena);
  out.target_laws = laws_of(arena, out.target, c.sampling_rule());
  out.draft_laws = laws_of(arena, out.draft, c.sampling_rule());
  const std::vector<std::int32_t> recorded = arena.ids(draft_rows(c), c.vocab, BenchStream::token);
  std::vector<RowPair> pairs;
  for (std::int32_t row = 0; row < static_cast<std::int32_t>(draft_rows(c)); ++row) {
    pairs.push_back({row / c.block_size * (c.block_size + 1) + row % c.block_size, row,
                     recorded[static_cast<std::size_t>(row)]});
  }
  out.pairs = {arena.upload(pairs), draft_rows(c)};
  return out;
}

PreparedCase prepare_compare_pairs(const Case& c, Arena& arena) {
  const Pairs pairs = make_pairs(c, arena);
  const ComparePairsArgs args = {
      .target = pairs.target,
      .target_laws = pairs.target_laws,
      .draft = pairs.draft,
      .draft_laws = pairs.draft_laws,
      .pairs = pairs.pairs,
      .out = {arena.zeros<PairOutcome>(draft_rows(c)), draft_rows(c)},
  };
  return {[&b = arena.backend(), args] { b.compare_pairs(args); },
          {output("pairs", args.out.data, c.batch, c.block_size)},
          nullptr};
}

/// 0, 1, 2, ...
Array<const std::int32_t> counting(Arena& arena, std::int64_t count) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  return {arena.upload(values), count};
}

PreparedCase prepare_sample_rows(const Case& c, Arena& arena) {
  const std::int64_t rows = draft_rows(c);
  const Rows logits = backbone_logits(c, arena);
  const SampleRowsArgs args = {
      .logits = logits,
      .laws = laws_of(arena, logits, c.sampling_rule()),
      .row = counting(arena, rows),
      .uniform = {arena.upload(arena.whole_uniforms(rows, BenchStream::propose)), rows},
      .token = {arena.zeros<std::int32_t>(rows), rows},
  };
  return {[&b = arena.backend(), args] { b.sample_rows(args); },
          {output("tokens", args.token.data, c.batch, c.block_size)},
          nullptr};
}

PreparedCase prepare_sample_excess(const Case& c, Arena& arena) {
  const std::int64_t rows = draft_rows(c);
  const Pairs pairs = make_pairs(c, arena);
  const SampleExcessArgs args = {
      .target = pairs.target,
      .target_laws = pairs.target_laws,
      .draft = pairs.draft,
      .draft_laws = pairs.draft_laws,
      .pairs = pairs.pairs,
      .pair = counting(arena, rows),
      .uniform = {arena.upload(arena.whole_uniforms(rows, BenchStream::accept)), rows},
      .token = {arena.zeros<std::int32_t>(rows), rows},
  };
  return {[&b = arena.backend(), args] { b.sample_excess(args); },
          {output("tokens", args.token.data, c.batch, c.block_size)},
          nullptr};
}

PreparedCase prepare_draft_rows(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const std::int64_t rows = draft_rows(c);
  const DraftRowsArgs args = {
      .hidden = arena.hidden(rows, c.hidden, BenchStream::hidden),
      .hidden_row = {},
      .previous = {tokens(arena, rows, c, BenchStream::previous), rows},
      .head = arena.vocabulary_matrix(c.vocab, c.hidden, BenchStream::lm_head),
      .w1 = arena.markov_rows(c.vocab, c.rank),
      .w2 = arena.vocabulary_matrix(c.vocab, c.rank, BenchStream::w2),
      .out = arena.rows(rows, c.vocab),
      .products = c.products,
      .status = status,
  };
  return {[&b = arena.backend(), args] { b.draft_rows(args); },
          {output("logits", args.out, c.batch, Compare::logits)},
          status};
}

// --- the proposal ---

PreparedCase prepare_markov_logits(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const BuildMarkovLogitsArgs args = {
      .batch = c.batch,
      .block_size = c.block_size,
      .step = middle(c),
      // One row an entry: the others of a block belong to other steps.
      .backbone = arena.logits(c.batch, c.vocab, BenchStream::draft),
      .logits_stride = 1,
      .logits_offset = -middle(c),
      .w1 = arena.markov_rows(c.vocab, c.rank),
      .w2 = arena.vocabulary_matrix(c.vocab, c.rank, BenchStream::w2),
      .first_previous = tokens(arena, c.batch, c, BenchStream::previous),
      .draft = tokens(arena, draft_rows(c), c, BenchStream::token),
      .corrected = arena.rows(c.batch, c.vocab),
      .products = c.products,
      .scratch = arena.scratch(build_markov_logits_scratch(c.batch)),
      .status = status,
  };
  return {[&b = arena.backend(), args] { b.build_markov_logits(args); },
          {output("logits", args.corrected, c.batch, Compare::logits)},
          status};
}

VanillaMarkovSampleArgs proposal_args(const Case& c, Arena& arena, std::uint32_t* status) {
  return {
      .batch = c.batch,
      .block_size = c.block_size,
      .backbone = backbone_logits(c, arena),
      .w1 = arena.markov_rows(c.vocab, c.rank),
      .w2 = arena.vocabulary_matrix(c.vocab, c.rank, BenchStream::w2),
      .first_previous = tokens(arena, c.batch, c, BenchStream::previous),
      .uniforms = arena.upload(arena.uniforms(draft_rows(c), BenchStream::propose)),
      .rule = c.sampling_rule(),
      .products = c.products,
      .tokens = arena.zeros<std::int32_t>(draft_rows(c)),
      .draft_probabilities = arena.rows(draft_rows(c), c.vocab),
      .scratch = arena.scratch(vanilla_markov_sample_scratch(c.batch, c.vocab)),
      .status = status,
  };
}

PreparedCase prepare_proposal(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const VanillaMarkovSampleArgs args = proposal_args(c, arena, status);
  return {[&b = arena.backend(), args] { b.vanilla_markov_sample(args); },
          {output("tokens", args.tokens, c.batch, c.block_size),
           output("probabilities", args.draft_probabilities, c.batch,
                  c.rule == BenchRule::top_k_top_p ? Compare::filtered_probabilities
                                                   : Compare::probabilities)},
          status};
}

/// w2 in f16, or what dsparkQuantizeMarkovW2Fp8 makes of it.
struct MarkovW2 {
  Matrix matrix;
  const Float16* scale = nullptr;
};

MarkovW2 half_w2(const Case& c, Arena& arena) {
  return {arena.vocabulary_matrix(c.vocab, c.rank, BenchStream::w2), nullptr};
}

QuantizeMarkovW2Args quantize_args(const Case& c, Arena& arena, const Matrix& w2,
                                   std::uint32_t* status) {
  return {
      .w2 = w2,
      .codes = arena.zeros<Float8>(std::int64_t{c.vocab} * c.rank),
      .scale = arena.zeros<Float16>(c.vocab),
      .status = status,
  };
}

MarkovW2 float8_w2(const Case& c, Arena& arena, std::uint32_t* status) {
  Arena aside = arena.aside();  // proposals read the codes alone
  const QuantizeMarkovW2Args args =
      quantize_args(c, arena, aside.vocabulary_matrix(c.vocab, c.rank, BenchStream::w2), status);
  arena.backend().quantize_markov_w2(args);
  return {float8_matrix(args.codes, c.vocab, c.rank), args.scale};
}

PreparedCase prepare_quantize(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const QuantizeMarkovW2Args args = quantize_args(c, arena, half_w2(c, arena).matrix, status);
  return {[&b = arena.backend(), args] { b.quantize_markov_w2(args); },
          {output("codes", args.codes, c.vocab, c.rank), output("scale", args.scale, c.vocab, 1)},
          status};
}

GreedyProposeArgs greedy_args(const Case& c, Arena& arena, const MarkovW2& w2,
                              std::uint32_t* status) {
  return {
      .batch = c.batch,
      .block_size = c.block_size,
      .backbone = backbone_logits(c, arena),
      .w1 = arena.markov_rows(c.vocab, c.rank),
      .w2 = w2.matrix,
      .w2_scale = w2.scale,
      .first_previous = tokens(arena, c.batch, c, BenchStream::previous),
      .products = c.products,
      .tokens = arena.zeros<std::int32_t>(draft_rows(c)),
      .scratch = arena.scratch(greedy_propose_scratch(c.batch, c.block_size)),
      .status = status,
  };
}

PreparedCase greedy_case(const Case& c, const GreedyProposeArgs& args, Arena& arena) {
  return {[&b = arena.backend(), args] { b.greedy_propose(args); },
          {output("tokens", args.tokens, c.batch, c.block_size)},
          args.status};
}

PreparedCase prepare_greedy_proposal(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  return greedy_case(c, greedy_args(c, arena, half_w2(c, arena), status), arena);
}

PreparedCase prepare_greedy_proposal_float8(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  return greedy_case(c, greedy_args(c, arena, float8_w2(c, arena, status), status), arena);
}

const char* refuses_float8(const Case& c) {
  return fused_greedy_supported(c.rank, DType::e4m3) ? nullptr
                                                     : "FP8 weights need a rank of whole 16s";
}

PreparedCase prepare_store(const Case& c, Arena& arena) {
  const std::int64_t elements = draft_rows(c) * c.vocab;
  const StoreDraftStepProbabilitiesArgs args = {
      .batch = c.batch,
      .block_size = c.block_size,
      .step = middle(c),
      .source = arena.logits(c.batch, c.vocab, BenchStream::draft),
      .destination = {arena.zeros<float>(elements), draft_rows(c), c.vocab, c.vocab},
  };
  return {[&b = arena.backend(), args] { b.store_draft_step_probabilities(args); },
          {output("rows", args.destination, c.batch, Compare::bits)},
          nullptr};
}

// --- sampling ---

PreparedCase prepare_probabilities(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const LogitsToProbabilitiesArgs args = {
      .logits = target_logits(c, arena),
      .rule = c.sampling_rule(),
      .probabilities = arena.rows(target_rows(c), c.vocab),
      .laws = arena.zeros<RowLaw>(target_rows(c)),
      .status = status,
  };
  return {[&b = arena.backend(), args] { b.logits_to_probabilities(args); },
          {output("probabilities", args.probabilities, c.batch, Compare::probabilities)},
          status};
}

PreparedCase prepare_uniforms(const Case& c, Arena& arena) {
  const std::int64_t each = 2 * std::int64_t{c.block_size} + 1;
  const FillUniformsArgs args = {
      .uniforms = {arena.zeros<float>(c.batch * each), c.batch * each},
      .seed = 12,
      .offset = arena.set(),
  };
  return {[&b = arena.backend(), args] { b.fill_uniforms(args); },
          {output("uniforms", args.uniforms.data, c.batch, each)},
          nullptr};
}

Rows probabilities_of(const Case& c, Arena& arena, const Rows& logits) {
  const Rows out = arena.rows(logits.rows, c.vocab);
  arena.backend().logits_to_probabilities({.logits = logits,
                                           .rule = c.sampling_rule(),
                                           .probabilities = out,
                                           .laws = arena.zeros<RowLaw>(logits.rows)});
  return out;
}

PreparedCase prepare_sample_probabilities(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const SampleProbabilityRowsArgs args = {
      .batch = c.batch,
      .block_size = c.block_size,
      .step = middle(c),
      .probabilities =
          probabilities_of(c, arena, arena.logits(c.batch, c.vocab, BenchStream::draft)),
      .uniforms = arena.upload(arena.uniforms(draft_rows(c), BenchStream::propose)),
      .tokens = arena.zeros<std::int32_t>(draft_rows(c)),
      .scratch = arena.scratch(row_scan_scratch(c.batch, c.vocab)),
      .status = status,
  };
  return {[&b = arena.backend(), args] { b.sample_probability_rows(args); },
          {output("tokens", args.tokens, c.batch, c.block_size)},
          status};
}

SelectTopKArgs select_args(const Case& c, Arena& arena, const Rows& logits, Scratch scratch,
                           std::uint32_t* status) {
  return {
      .logits = logits,
      .values = arena.rows(c.batch, c.top_k),
      .ids = arena.zeros<std::int32_t>(std::int64_t{c.batch} * c.top_k),
      .scratch = scratch,
      .status = status,
  };
}

PreparedCase prepare_select_top_k(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const SelectTopKArgs args =
      select_args(c, arena, arena.logits(c.batch, c.vocab, BenchStream::draft),
                  arena.scratch(select_top_k_scratch(c.batch, c.vocab, c.top_k)), status);
  return {[&b = arena.backend(), args] { b.select_top_k(args); },
          {output("values", args.values, c.batch, Compare::bits),
           output("ids", args.ids, c.batch, c.top_k)},
          status};
}

PreparedCase prepare_sample_top_k(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  Arena aside = arena.aside();  // whole rows, of which the call sees the best alone
  const SelectTopKArgs best =
      select_args(c, arena, aside.logits(c.batch, c.vocab, BenchStream::draft),
                  aside.scratch(select_top_k_scratch(c.batch, c.vocab, c.top_k)), status);
  arena.backend().select_top_k(best);
  arena.backend().synchronize();  // before the rows are given back
  const SampleTopKRowsArgs args = {
      .batch = c.batch,
      .block_size = 1,
      .step = 0,
      .vocab = c.vocab,
      .values = best.values,
      .ids = best.ids,
      .uniforms = arena.upload(arena.uniforms(c.batch, BenchStream::propose)),
      .rule = make_sampling_rule(1, 0, 1, TopPRule::water_filling, c.vocab),
      .probabilities = arena.rows(c.batch, c.top_k),
      .stored_ids = arena.zeros<std::int32_t>(std::int64_t{c.batch} * c.top_k),
      .tokens = arena.zeros<std::int32_t>(c.batch),
      .status = status,
  };
  return {
      [&b = arena.backend(), args] { b.sample_top_k_rows(args); },
      {output("probabilities", args.probabilities, c.batch, Compare::bits),
       output("ids", args.stored_ids, c.batch, c.top_k), output("tokens", args.tokens, c.batch, 1)},
      status};
}

const char* refuses_top_k(const Case& c) {
  return c.top_k <= std::min(c.vocab, kMaxTopK)
             ? nullptr
             : "top-k is larger than 1024, the most that is selected, or than the vocabulary";
}

// --- acceptance ---

const std::int32_t* full_lengths(const Case& c, Arena& arena) {
  return arena.upload(std::vector<std::int32_t>(static_cast<std::size_t>(c.batch), c.block_size));
}

PreparedCase prepare_verify_tokens(const Case& c, Arena& arena) {
  const BuildVerifyTokensArgs args = {
      .batch = c.batch,
      .length = c.block_size,
      .draft_stride = c.block_size,
      .last = tokens(arena, c.batch, c, BenchStream::previous),
      .draft = tokens(arena, draft_rows(c), c, BenchStream::token),
      .verify = arena.zeros<std::int32_t>(target_rows(c)),
  };
  return {[&b = arena.backend(), args] { b.build_verify_tokens(args); },
          {output("tokens", args.verify, c.batch, c.block_size + 1)},
          nullptr};
}

/// The target's own choices, but for the middle slot.
std::vector<std::int32_t> almost_accepted(const Case& c, Arena& arena, const Rows& target) {
  const Array<const RowLaw> laws =
      laws_of(arena, target, make_sampling_rule(0, 0, 1, TopPRule::water_filling, c.vocab));
  const std::vector<RowLaw> host = arena.download(laws.data, laws.size);
  std::vector<std::int32_t> draft;
  for (std::int64_t row = 0; row < draft_rows(c); ++row) {
    const std::int64_t slot = row % c.block_size;
    const auto at = static_cast<std::size_t>(row / c.block_size * (c.block_size + 1) + slot);
    const std::int32_t wrong = slot == middle(c) ? 1 : 0;
    draft.push_back((host[at].argmax + wrong) % c.vocab);
  }
  return draft;
}

PreparedCase prepare_greedy_accept(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const Rows target = target_logits(c, arena);
  const GreedyAcceptArgs args = {
      .batch = c.batch,
      .length = c.block_size,
      .draft_stride = c.block_size,
      .logits = target,
      .draft = arena.upload(almost_accepted(c, arena, target)),
      .lengths = full_lengths(c, arena),
      .accepted = arena.zeros<std::int32_t>(target_rows(c)),
      .accept_length = arena.zeros<std::int32_t>(c.batch),
      .laws = arena.zeros<RowLaw>(target_rows(c)),
      .status = status,
  };
  return {[&b = arena.backend(), args] { b.greedy_accept(args); },
          {output("accepted", args.accepted, c.batch, c.block_size + 1),
           output("accept_length", args.accept_length, c.batch, 1)},
          status};
}

PreparedCase prepare_probabilistic_accept(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const Rows draft = probabilities_of(c, arena, backbone_logits(c, arena));
  std::int32_t* const proposed = arena.zeros<std::int32_t>(draft_rows(c));
  // As the draft would propose them.
  Case rows = c;
  rows.batch = static_cast<std::int32_t>(draft_rows(c));
  arena.backend().sample_probability_rows(
      {.batch = rows.batch,
       .block_size = 1,
       .step = 0,
       .probabilities = draft,
       .uniforms = arena.upload(arena.uniforms(rows.batch, BenchStream::propose)),
       .tokens = proposed,
       .scratch = arena.scratch(row_scan_scratch(rows.batch, c.vocab))});
  const std::int64_t uniforms = c.batch * (2 * std::int64_t{c.block_size} + 1);
  const ProbabilisticAcceptArgs args = {
      .batch = c.batch,
      .length = c.block_size,
      .draft_stride = c.block_size,
      .target = probabilities_of(c, arena, target_logits(c, arena)),
      .draft = draft,
      .tokens = proposed,
      .lengths = full_lengths(c, arena),
      .uniforms = arena.upload(arena.uniforms(uniforms, BenchStream::accept)),
      .accepted = arena.zeros<std::int32_t>(target_rows(c)),
      .accept_length = arena.zeros<std::int32_t>(c.batch),
      .scratch = arena.scratch(row_scan_scratch(c.batch, c.vocab)),
      .status = status,
  };
  return {[&b = arena.backend(), args] { b.probabilistic_accept(args); },
          {output("accepted", args.accepted, c.batch, c.block_size + 1),
           output("accept_length", args.accept_length, c.batch, 1)},
          status};
}

// --- confidence and lengths ---

ConfidenceScoresArgs scores_args(const Case& c, Arena& arena, const std::int32_t* draft,
                                 const std::int32_t* previous, std::uint32_t* status) {
  const std::int64_t size = std::int64_t{c.hidden} + c.rank;
  std::vector<float> weight = arena.uniforms(size, BenchStream::confidence_weight);
  // The dot product has a deviation of about 1.
  const float scale = std::sqrt(12.0f / static_cast<float>(size));
  for (float& w : weight) w = (w - 0.5f) * scale;
  return {
      .batch = c.batch,
      .block_size = c.block_size,
      .hidden = arena.hidden(draft_rows(c), c.hidden, BenchStream::hidden),
      .w1 = arena.markov_rows(c.vocab, c.rank),
      .weight = {arena.upload(weight), size},
      .bias = 1.5f,
      .first_previous = previous,
      .draft = draft,
      .scores = arena.zeros<float>(draft_rows(c)),
      .status = status,
  };
}

ConfidenceScoresArgs scores_args(const Case& c, Arena& arena, std::uint32_t* status) {
  return scores_args(c, arena, tokens(arena, draft_rows(c), c, BenchStream::token),
                     tokens(arena, c.batch, c, BenchStream::previous), status);
}

PreparedCase prepare_confidence(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const ConfidenceScoresArgs args = scores_args(c, arena, status);
  return {[&b = arena.backend(), args] { b.confidence_scores(args); },
          {output("scores", args.scores, c.batch, c.block_size)},
          status};
}

PreparedCase prepare_confidence_threshold(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const ThresholdLengthsArgs args = {
      .scores = scores_args(c, arena, status),
      .threshold = 0.3,
      .lengths = arena.zeros<std::int32_t>(c.batch),
  };
  return {[&b = arena.backend(), args] { b.threshold_lengths(args); },
          {output("scores", args.scores.scores, c.batch, c.block_size),
           output("lengths", args.lengths, c.batch, 1)},
          status};
}

PreparedCase prepare_confidence_sps(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const SpsLengthsArgs args = {
      .scores = scores_args(c, arena, status),
      .survival_floor = 0.1,
      .cost = {},
      .lengths = arena.zeros<std::int32_t>(c.batch),
  };
  return {[&b = arena.backend(), args] { b.sps_lengths(args); },
          {output("scores", args.scores.scores, c.batch, c.block_size),
           output("lengths", args.lengths, c.batch, 1)},
          status};
}

PreparedCase prepare_batch_schedule(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  std::vector<float> confidence = arena.uniforms(draft_rows(c), BenchStream::confidence);
  for (float& value : confidence) value = 1 - 0.6f * value * value;
  // A step costs more with every 64 tokens, as that of a real engine.
  std::vector<double> price;
  for (std::int64_t drafts = 0; drafts <= draft_rows(c); ++drafts) {
    price.push_back(5 + 0.6 * as_number((drafts + c.batch + 63) / 64));
  }
  const BatchScheduleArgs args = {
      .step = {.requests = c.batch,
               .positions = c.block_size,
               .stride = c.block_size,
               .confidence = arena.upload(confidence),
               .slots = full_lengths(c, arena)},
      .price = {arena.upload(price), static_cast<std::int64_t>(price.size())},
      .options = {},
      .chosen = arena.zeros<std::int32_t>(1),
      .lengths = arena.zeros<std::int32_t>(c.batch),
      .status = status,
  };
  return {[&b = arena.backend(), args] { b.batch_schedule(args); },
          {output("lengths", args.lengths, c.batch, 1)},
          status};
}

// --- whole rounds ---

PreparedCase prepare_sampled_round(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const std::int64_t accept_uniforms = c.batch * (2 * std::int64_t{c.block_size} + 1);
  VanillaMarkovSampleArgs proposal = proposal_args(c, arena, status);
  float* const propose = arena.zeros<float>(draft_rows(c));
  float* const accept = arena.zeros<float>(accept_uniforms);
  proposal.uniforms = propose;
  const SpsLengthsArgs lengths = {
      .scores = scores_args(c, arena, proposal.tokens, proposal.first_previous, status),
      .survival_floor = 0.1,
      .cost = {},
      .lengths = arena.zeros<std::int32_t>(c.batch),
  };
  const LogitsToProbabilitiesArgs probabilities = {
      .logits = target_logits(c, arena),
      .rule = c.sampling_rule(),
      .probabilities = arena.rows(target_rows(c), c.vocab),
      .laws = arena.zeros<RowLaw>(target_rows(c)),
      .status = status,
  };
  const ProbabilisticAcceptArgs acceptance = {
      .batch = c.batch,
      .length = c.block_size,
      .draft_stride = c.block_size,
      .target = probabilities.probabilities,
      .draft = proposal.draft_probabilities,
      .tokens = proposal.tokens,
      .lengths = lengths.lengths,
      .uniforms = accept,
      .accepted = arena.zeros<std::int32_t>(target_rows(c)),
      .accept_length = arena.zeros<std::int32_t>(c.batch),
      .scratch = arena.scratch(row_scan_scratch(c.batch, c.vocab)),
      .status = status,
  };
  const std::uint64_t offset = 2 * std::uint64_t{arena.set()};
  return {
      [=, &b = arena.backend()] {
        b.fill_uniforms({.uniforms = {propose, draft_rows(c)}, .seed = 12, .offset = offset});
        b.fill_uniforms({.uniforms = {accept, accept_uniforms}, .seed = 12, .offset = offset + 1});
        b.vanilla_markov_sample(proposal);
        b.sps_lengths(lengths);
        b.logits_to_probabilities(probabilities);
        b.probabilistic_accept(acceptance);
      },
      {output("tokens", proposal.tokens, c.batch, c.block_size),
       output("lengths", lengths.lengths, c.batch, 1),
       output("accepted", acceptance.accepted, c.batch, c.block_size + 1),
       output("accept_length", acceptance.accept_length, c.batch, 1)},
      status};
}

PreparedCase prepare_greedy_round(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const GreedyProposeArgs proposal = greedy_args(c, arena, half_w2(c, arena), status);
  const SpsLengthsArgs lengths = {
      .scores = scores_args(c, arena, proposal.tokens, proposal.first_previous, status),
      .survival_floor = 0.1,
      .cost = {},
      .lengths = arena.zeros<std::int32_t>(c.batch),
  };
  const BuildVerifyTokensArgs verify = {
      .batch = c.batch,
      .length = c.block_size,
      .draft_stride = c.block_size,
      .last = proposal.first_previous,
      .draft = proposal.tokens,
      .verify = arena.zeros<std::int32_t>(target_rows(c)),
  };
  const GreedyAcceptArgs acceptance = {
      .batch = c.batch,
      .length = c.block_size,
      .draft_stride = c.block_size,
      .logits = target_logits(c, arena),
      .draft = proposal.tokens,
      .lengths = lengths.lengths,
      .accepted = arena.zeros<std::int32_t>(target_rows(c)),
      .accept_length = arena.zeros<std::int32_t>(c.batch),
      .laws = arena.zeros<RowLaw>(target_rows(c)),
      .status = status,
  };
  return {[=, &b = arena.backend()] {
            b.greedy_propose(proposal);
            b.sps_lengths(lengths);
            b.build_verify_tokens(verify);
            b.greedy_accept(acceptance);
          },
          {output("tokens", proposal.tokens, c.batch, c.block_size),
           output("lengths", lengths.lengths, c.batch, 1),
           output("verify", verify.verify, c.batch, c.block_size + 1),
           output("accepted", acceptance.accepted, c.batch, c.block_size + 1),
           output("accept_length", acceptance.accept_length, c.batch, 1)},
          status};
}

/// A anchors in a row: A + P target rows, as the slots of an anchor stand beside the rows of the
/// positions behind it, and P draft rows for each anchor.
/// The rows of the positions that the anchors' blocks are compared with.
std::int64_t reduced_target_rows(const Case& c) {
  return std::int64_t{c.anchors} + c.block_size - 1;
}
std::int64_t reduced_draft_rows(const Case& c) { return std::int64_t{c.anchors} * c.block_size; }

PreparedCase prepare_reduce(const Case& c, Arena& arena) {
  std::uint32_t* const status = arena.zeros<std::uint32_t>(1);
  const std::int64_t targets = reduced_target_rows(c);
  const std::int64_t drafts = reduced_draft_rows(c);
  const Matrix lm_head = arena.vocabulary_matrix(c.vocab, c.hidden, BenchStream::lm_head);
  const ProjectArgs target = {
      .a = arena.hidden(targets, c.hidden, BenchStream::context),
      .b = lm_head,
      .out = arena.rows(targets, c.vocab),
      .products = c.products,
  };
  const DraftRowsArgs draft = {
      .hidden = arena.hidden(drafts, c.hidden, BenchStream::hidden),
      .hidden_row = counting(arena, drafts),  // a replay says which rows have a target beside them
      .previous = {tokens(arena, drafts, c, BenchStream::previous), drafts},
      .head = lm_head,
      .w1 = arena.markov_rows(c.vocab, c.rank),
      .w2 = arena.vocabulary_matrix(c.vocab, c.rank, BenchStream::w2),
      .out = arena.rows(drafts, c.vocab),
      .products = c.products,
      .status = status,
  };
  const RowLawsArgs target_laws = {
      .logits = target.out, .rule = c.sampling_rule(), .laws = laws_array(arena, targets)};
  const RowLawsArgs draft_laws = {
      .logits = draft.out, .rule = c.sampling_rule(), .laws = laws_array(arena, drafts)};
  const std::vector<std::int32_t> recorded = arena.ids(drafts, c.vocab, BenchStream::token);
  std::vector<RowPair> pairs;
  for (std::int32_t row = 0; row < static_cast<std::int32_t>(drafts); ++row) {
    pairs.push_back(
        {row / c.block_size + row % c.block_size, row, recorded[static_cast<std::size_t>(row)]});
  }
  const ComparePairsArgs compare = {
      .target = target.out,
      .target_laws = {target_laws.laws.data, targets},
      .draft = draft.out,
      .draft_laws = {draft_laws.laws.data, drafts},
      .pairs = {arena.upload(pairs), drafts},
      .out = {arena.zeros<PairOutcome>(drafts), drafts},
  };
  return {[=, &b = arena.backend()] {
            b.project(target);
            b.row_laws(target_laws);
            b.draft_rows(draft);
            b.row_laws(draft_laws);
            b.compare_pairs(compare);
          },
          {output("pairs", compare.out.data, c.anchors, c.block_size, Compare::pairs)},
          status};
}

// --- fewest bytes and operations ---

double target_row_bytes(const Case& c) { return as_number(target_rows(c)) * row_bytes(c); }
double draft_row_bytes(const Case& c) { return as_number(draft_rows(c)) * row_bytes(c); }

double head_flops(const Case& c, double rows) { return 2 * rows * vocab_of(c) * c.hidden; }

double widen_bytes(const Case& c) {
  return as_number(target_rows(c)) * vocab_of(c) * (kHalf + kFloat);
}
double project_bytes(const Case& c) {
  return (vocab_of(c) + as_number(target_rows(c))) * c.hidden * kHalf + target_row_bytes(c);
}
double project_flops(const Case& c) { return head_flops(c, as_number(target_rows(c))); }
double draft_rows_bytes(const Case& c) {
  const double rows = as_number(draft_rows(c));
  return (vocab_of(c) + rows) * c.hidden * kHalf + w2_bytes(c) + w1_bytes(c, rows) +
         draft_row_bytes(c);
}
double draft_rows_flops(const Case& c) {
  const double rows = as_number(draft_rows(c));
  return head_flops(c, rows) + markov_flops(c, rows);
}
double markov_logits_bytes(const Case& c) {
  return w2_bytes(c) + w1_bytes(c, c.batch) + 2 * batch_of(c) * row_bytes(c);
}
double markov_logits_flops(const Case& c) { return markov_flops(c, c.batch); }
double row_laws_bytes(const Case& c) {
  return target_row_bytes(c) + as_number(target_rows(c)) * kLawBytes;
}
double probabilities_bytes(const Case& c) { return 2 * target_row_bytes(c); }
double uniforms_bytes(const Case& c) { return batch_of(c) * (2 * c.block_size + 1) * kFloat; }
/// w2 as codes and scales.
double float8_w2_bytes(const Case& c) { return vocab_of(c) * (c.rank + kHalf); }
double quantize_bytes(const Case& c) { return w2_bytes(c) + float8_w2_bytes(c); }
// The weights are read once for every step.
double steps_bytes(const Case& c, double w2) {
  return c.block_size * w2 + w1_bytes(c, as_number(draft_rows(c)));
}
double proposal_weight_bytes(const Case& c) { return steps_bytes(c, w2_bytes(c)); }
double proposal_flops(const Case& c) { return markov_flops(c, as_number(draft_rows(c))); }
double sampled_proposal_bytes(const Case& c) {
  return proposal_weight_bytes(c) + 2 * draft_row_bytes(c) + 2 * as_number(draft_rows(c)) * kFloat;
}
// A greedy proposal needs no probabilities: tokens are all that comes of it.
double greedy_bytes(const Case& c, double w2) {
  return steps_bytes(c, w2) + draft_row_bytes(c) + as_number(draft_rows(c)) * kFloat;
}
double greedy_proposal_bytes(const Case& c) { return greedy_bytes(c, w2_bytes(c)); }
double greedy_proposal_float8_bytes(const Case& c) { return greedy_bytes(c, float8_w2_bytes(c)); }
double select_top_k_bytes(const Case& c) {
  return batch_of(c) * (row_bytes(c) + c.top_k * 2 * kFloat);
}
// Values and ids, and as many probabilities and ids.
double sample_top_k_bytes(const Case& c) { return batch_of(c) * (c.top_k * 4 + 2) * kFloat; }
double sample_probabilities_bytes(const Case& c) {
  return batch_of(c) * (row_bytes(c) + 2 * kFloat);
}
double store_bytes(const Case& c) { return 2 * batch_of(c) * row_bytes(c); }
double verify_tokens_bytes(const Case& c) { return 2 * as_number(target_rows(c)) * kFloat; }
double greedy_accept_bytes(const Case& c) {
  return target_row_bytes(c) + as_number(draft_rows(c) + target_rows(c)) * kFloat +
         2 * batch_of(c) * kFloat;
}
// A rejected block reads the two rows of its residual; an accept test, two numbers.
double probabilistic_accept_bytes(const Case& c) {
  return 2 * batch_of(c) * row_bytes(c) + as_number(5 * draft_rows(c) + target_rows(c)) * kFloat;
}
double confidence_bytes(const Case& c) {
  return as_number(draft_rows(c)) * (c.hidden * kHalf + kFloat) +
         w1_bytes(c, as_number(draft_rows(c))) + (c.hidden + c.rank) * kFloat;
}
double lengths_bytes(const Case& c) { return confidence_bytes(c) + batch_of(c) * kFloat; }
double batch_schedule_bytes(const Case& c) {
  return as_number(draft_rows(c)) * (kFloat + 8) + 8 + 2 * batch_of(c) * kFloat;
}
double sample_rows_bytes(const Case& c) {
  return draft_row_bytes(c) + as_number(draft_rows(c)) * (kLawBytes + 8 + 2 * kFloat);
}
double pair_bytes(const Case& c) {
  return 2 * draft_row_bytes(c) +
         as_number(draft_rows(c)) * (2 * kLawBytes + static_cast<double>(sizeof(RowPair)) +
                                     static_cast<double>(sizeof(PairOutcome)));
}
// Weights, backbone and the target's logits; what a round decides is small.
double round_bytes(const Case& c) {
  return proposal_weight_bytes(c) + draft_row_bytes(c) + target_row_bytes(c) + lengths_bytes(c);
}
double reduce_bytes(const Case& c) {
  const double rows = as_number(reduced_target_rows(c) + reduced_draft_rows(c));
  return (vocab_of(c) + rows) * c.hidden * kHalf + w2_bytes(c) +
         w1_bytes(c, as_number(reduced_draft_rows(c))) +
         as_number(reduced_draft_rows(c)) *
             static_cast<double>(sizeof(RowPair) + sizeof(PairOutcome));
}
double reduce_flops(const Case& c) {
  const double rows = as_number(reduced_target_rows(c) + reduced_draft_rows(c));
  return head_flops(c, rows) + markov_flops(c, as_number(reduced_draft_rows(c)));
}

constexpr unsigned kRows = kAxisBatch | kAxisBlock | kAxisVocab;
constexpr unsigned kMarkov = kRows | kAxisRank;
constexpr unsigned kConfidence = kMarkov | kAxisHidden;
constexpr unsigned kSparse = kAxisBatch | kAxisVocab | kAxisTopK;

std::vector<Family> make_table() {
  using enum BenchRule;
  // name, what, axes, rules, depths of products, whole batch, reference entries, bytes, flops,
  // prepare
  return {
      {"widen",
       "f16 rows to f32, B (P+1) rows",
       kRows,
       {unused},
       ProductDepths::none,
       false,
       2,
       widen_bytes,
       nullptr,
       prepare_widen},
      {"project",
       "hidden states times lm_head, B (P+1) rows",
       kRows | kAxisHidden,
       {unused},
       ProductDepths::hidden,
       false,
       2,
       project_bytes,
       project_flops,
       prepare_project},
      {"row_laws",
       "laws of B (P+1) rows",
       kRows,
       {plain, top_k_top_p, greedy},
       ProductDepths::none,
       false,
       2,
       row_laws_bytes,
       nullptr,
       prepare_row_laws},
      {"compare_pairs",
       "sum of min(p, q) of B P pairs of rows",
       kRows,
       {plain},
       ProductDepths::none,
       false,
       2,
       pair_bytes,
       nullptr,
       prepare_compare_pairs},
      {"sample_rows",
       "a token from each of B P rows",
       kRows,
       {plain},
       ProductDepths::none,
       false,
       2,
       sample_rows_bytes,
       nullptr,
       prepare_sample_rows},
      {"sample_excess",
       "a token from the excess of each of B P pairs",
       kRows,
       {plain},
       ProductDepths::none,
       false,
       2,
       pair_bytes,
       nullptr,
       prepare_sample_excess},
      {"draft_rows",
       "draft logits from hidden states, Markov bias included, B P rows",
       kMarkov | kAxisHidden,
       {unused},
       ProductDepths::hidden_and_rank,
       false,
       2,
       draft_rows_bytes,
       draft_rows_flops,
       prepare_draft_rows},
      {"markov_logits",
       "logits with Markov bias, one step of B rows",
       kMarkov,
       {unused},
       ProductDepths::markov,
       false,
       2,
       markov_logits_bytes,
       markov_logits_flops,
       prepare_markov_logits},
      {"sampled_proposal",
       "P steps: Markov logits, probabilities, sample",
       kMarkov,
       {plain, top_k_top_p},
       ProductDepths::markov,
       false,
       2,
       sampled_proposal_bytes,
       proposal_flops,
       prepare_proposal},
      {"greedy_proposal",
       "P steps: best token of the Markov logits",
       kMarkov,
       {greedy},
       ProductDepths::markov,
       false,
       2,
       greedy_proposal_bytes,
       proposal_flops,
       prepare_greedy_proposal},
      {"greedy_proposal_fp8",
       "P steps: best token of the Markov logits, w2 in FP8",
       kMarkov,
       {greedy},
       ProductDepths::markov,
       false,
       2,
       greedy_proposal_float8_bytes,
       proposal_flops,
       prepare_greedy_proposal_float8,
       refuses_float8},
      {"quantize_fp8",
       "w2 to FP8 codes and scales",
       kAxisVocab | kAxisRank,
       {unused},
       ProductDepths::none,
       true,
       0,
       quantize_bytes,
       nullptr,
       prepare_quantize,
       refuses_float8},
      {"store_probabilities",
       "rows of a step to their place in [B, P, V]",
       kRows,
       {unused},
       ProductDepths::none,
       false,
       2,
       store_bytes,
       nullptr,
       prepare_store},
      {"probabilities",
       "logits to probabilities, B (P+1) rows",
       kRows,
       {plain, top_k_top_p, top_p},
       ProductDepths::none,
       false,
       2,
       probabilities_bytes,
       nullptr,
       prepare_probabilities},
      {"uniforms",
       "B (2P+1) uniforms",
       kAxisBatch | kAxisBlock,
       {unused},
       ProductDepths::none,
       false,
       2,
       uniforms_bytes,
       nullptr,
       prepare_uniforms},
      {"sample_probabilities",
       "a token from each of B rows of probabilities",
       kRows,
       {plain},
       ProductDepths::none,
       false,
       2,
       sample_probabilities_bytes,
       nullptr,
       prepare_sample_probabilities},
      {"select_top_k",
       "the K best tokens of each of B rows",
       kSparse,
       {unused},
       ProductDepths::none,
       false,
       2,
       select_top_k_bytes,
       nullptr,
       prepare_select_top_k,
       refuses_top_k},
      {"sample_top_k",
       "a law over K tokens and one drawn from it, B rows",
       kSparse,
       {unused},
       ProductDepths::none,
       false,
       2,
       sample_top_k_bytes,
       nullptr,
       prepare_sample_top_k,
       refuses_top_k},
      {"verify_tokens",
       "the tokens that the target verifies",
       kRows,
       {unused},
       ProductDepths::none,
       false,
       2,
       verify_tokens_bytes,
       nullptr,
       prepare_verify_tokens},
      {"greedy_accept",
       "greedy verification of B blocks, rejected in the middle",
       kRows,
       {unused},
       ProductDepths::none,
       false,
       2,
       greedy_accept_bytes,
       nullptr,
       prepare_greedy_accept},
      {"probabilistic_accept",
       "rejection sampling of B blocks, rejected in the middle",
       kRows,
       {plain},
       ProductDepths::none,
       false,
       2,
       probabilistic_accept_bytes,
       nullptr,
       prepare_probabilistic_accept},
      {"confidence",
       "scores of B P slots",
       kConfidence,
       {unused},
       ProductDepths::none,
       false,
       2,
       confidence_bytes,
       nullptr,
       prepare_confidence},
      {"confidence_threshold",
       "scores, and lengths by a threshold",
       kConfidence,
       {unused},
       ProductDepths::none,
       false,
       2,
       lengths_bytes,
       nullptr,
       prepare_confidence_threshold},
      {"confidence_sps",
       "scores, and lengths by expected tokens per cost",
       kConfidence,
       {unused},
       ProductDepths::none,
       false,
       2,
       lengths_bytes,
       nullptr,
       prepare_confidence_sps},
      {"batch_schedule",
       "lengths of all B requests of a step together",
       kAxisBatch | kAxisBlock,
       {unused},
       ProductDepths::none,
       true,
       0,
       batch_schedule_bytes,
       nullptr,
       prepare_batch_schedule},
      {"sampled_round",
       "uniforms, sampled proposal, sps, probabilities, acceptance",
       kConfidence,
       {plain},
       ProductDepths::markov,
       false,
       2,
       round_bytes,
       proposal_flops,
       prepare_sampled_round},
      {"greedy_round",
       "greedy proposal, sps, verify tokens, acceptance",
       kConfidence,
       {greedy},
       ProductDepths::markov,
       false,
       2,
       round_bytes,
       proposal_flops,
       prepare_greedy_round},
      {"reduce",
       "teacher-forced anchors: P draft rows and a target row each, compared",
       kAxisAnchors | kAxisBlock | kAxisVocab | kAxisRank | kAxisHidden,
       {plain},
       ProductDepths::hidden_and_rank,
       false,
       1,
       reduce_bytes,
       reduce_flops,
       prepare_reduce},
  };
}

}  // namespace

const std::vector<Family>& bench_families() {
  static const std::vector<Family> table = make_table();
  return table;
}

}  // namespace dspark
