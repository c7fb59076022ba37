#include <algorithm>

#include "support/error.h"
#include "synth/generator.h"

namespace dspark::synth {
namespace {

/// Requests in work at most, whatever the vocabulary.
constexpr std::int64_t kRequestsAtOnce = 64;

/// Simulates the rounds of a batch of requests in lockstep. A slot's hidden state leads through the
/// token drafted before it, so slots are drafted one after the other, by the parts of the backend's
/// vanilla_markov_sample; all target rows of a round are independent of the drafts, but for where
/// they stand.
class RoundsWriter {
 public:
  RoundsWriter(Generator& generator, TraceWriter& writer, const SynthProgress& progress)
      : generator_(generator),
        writer_(writer),
        progress_(progress),
        options_(generator.options()),
        vocab_(options_.vocab_size),
        hidden_(options_.hidden_size),
        block_(options_.block_size),
        greedy_(generator.rule().greedy) {
    // Logits and probabilities of P draft and P + 1 target rows, and of one step.
    const std::int64_t rows_per_round = 4 * block_ + 4;
    batch_ =
        std::min({generator.blocks_at_once(rows_per_round), kRequestsAtOnce, options_.sequences});
    const std::int64_t slots = batch_ * block_;
    const std::int64_t verify = batch_ * (block_ + 1);
    target_logits_ = floats(verify * vocab_);
    backbone_ = floats(slots * vocab_);
    corrected_ = floats(batch_ * vocab_);
    step_probabilities_ = floats(batch_ * vocab_);
    if (!greedy_) {
      draft_probabilities_ = floats(slots * vocab_);
      target_probabilities_ = floats(verify * vocab_);
      accept_uniforms_ = floats(batch_ * (2 * block_ + 1));
    }
    proposal_uniforms_ = floats(slots);
    previous_ = ints(batch_);
    draft_ = ints(slots);
    lengths_ = ints(batch_);
    accepted_ = ints(verify);
    accept_length_ = ints(batch_);
    laws_ = generator.backend().allocate(static_cast<std::size_t>(verify) * sizeof(RowLaw));
    status_ = generator.backend().allocate(sizeof(std::uint32_t));
    scratch_bytes_ = std::max(row_scan_scratch(batch_, static_cast<std::int32_t>(vocab_)),
                              build_markov_logits_scratch(static_cast<std::int32_t>(batch_)));
    scratch_ = generator.backend().allocate(scratch_bytes_);
  }

  void write() {
    if (generator_.stores_draft_hidden()) writer_.create(RowData::draft_hidden, options_.type);
    if (generator_.stores_logits()) writer_.create(RowData::draft_logits, options_.type);
    if (generator_.stores_hidden()) writer_.create(RowData::target_hidden, options_.type);
    if (generator_.stores_logits()) writer_.create(RowData::target_logits, options_.type);
    for (std::int64_t first = 0; first < options_.sequences; first += batch_) {
      const std::int64_t count = std::min(batch_, options_.sequences - first);
      std::vector<std::int32_t> anchors;
      for (std::int64_t b = 0; b < count; ++b) anchors.push_back(generator_.first_token(first + b));
      for (std::int64_t round = 0; round < options_.length; ++round) {
        write_round(first, round, anchors);
        done_ += count;
        if (progress_) progress_(done_, options_.sequences * options_.length);
      }
    }
    writer_.write(records_);
  }

 private:
  /// One round of requests first, first + 1, ...; `anchors`, one for each, becomes the last tokens
  /// emitted.
  void write_round(std::int64_t first, std::int64_t round, std::vector<std::int32_t>& anchors) {
    Backend& backend = generator_.backend();
    const auto count = static_cast<std::int64_t>(anchors.size());
    backend.fill(status_.data(), 0, sizeof(std::uint32_t));
    draw_target_rows(first, round, count);
    const std::vector<std::int32_t> draft = propose(first, round, anchors);
    const std::vector<std::int32_t> lengths = proposal_lengths(first, round, count);
    backend.upload(lengths_.data(), lengths.data(), lengths.size() * sizeof lengths[0]);
    if (greedy_) {
      verify_greedily(count);
    } else {
      verify_by_sampling(first, round, count);
    }

    std::vector<std::int32_t> accepted(static_cast<std::size_t>(count * (block_ + 1)));
    std::vector<std::int32_t> emitted(static_cast<std::size_t>(count));
    std::uint32_t status = kOpOk;
    backend.download(accepted.data(), accepted_.data(), accepted.size() * sizeof accepted[0]);
    backend.download(emitted.data(), accept_length_.data(), emitted.size() * sizeof emitted[0]);
    backend.download(&status, status_.data(), sizeof status);
    if (status != kOpOk) {
      throw internal_error("synth", "the backend reports status " + std::to_string(status) +
                                        " for a round of its own making");
    }

    append(records_.draft_tokens, draft);
    append(records_.proposal_length, lengths);
    append(records_.accept_length, emitted);
    for (std::int64_t b = 0; b < count; ++b) {
      const auto at = static_cast<std::size_t>(b);
      records_.request.push_back(static_cast<std::int32_t>(first + b));
      records_.round.push_back(static_cast<std::int32_t>(round));
      records_.anchor_token.push_back(anchors[at]);
      std::int32_t* tokens = accepted.data() + b * (block_ + 1);
      anchors[at] = tokens[emitted[at] - 1];
      std::fill(tokens + emitted[at], tokens + block_ + 1, -1);
    }
    append(records_.accepted_tokens, accepted);
    if (generator_.stores_draft_hidden()) {
      writer_.append(RowData::draft_hidden, draft_hidden_.data(), count);
    }
    if (generator_.stores_logits()) {
      writer_.append(RowData::draft_logits, draft_logits_.data(), count);
      writer_.append(RowData::target_logits, rows_.logits.data(), count);
    }
    if (generator_.stores_hidden()) {
      writer_.append(RowData::target_hidden, rows_.hidden.data(), count);
    }
  }

  /// Target row k of each request, k = 0..P, and the gap of the draft row that proposes beside it.
  void draw_target_rows(std::int64_t first, std::int64_t round, std::int64_t count) {
    std::vector<RowId> ids;
    targets_.clear();
    for (std::int64_t b = 0; b < count; ++b) {
      for (std::int64_t k = 0; k <= block_; ++k) {
        ids.push_back({first + b, round, k});
        targets_.push_back(k < block_ ? generator_.slot_target(first + b, round, k + 1)
                                      : SlotTarget{});
      }
    }
    generator_.draw_rows(ids, targets_, rows_, rows(target_logits_, count * (block_ + 1)));
  }

  /// Drafts slot by slot: hidden states, backbone logits as stored, and [count, P] tokens.
  std::vector<std::int32_t> propose(std::int64_t first, std::int64_t round,
                                    const std::vector<std::int32_t>& anchors) {
    Backend& backend = generator_.backend();
    const auto count = static_cast<std::int64_t>(anchors.size());
    std::vector<float> uniforms;
    for (std::int64_t b = 0; b < count; ++b) {
      for (std::int64_t k = 1; k <= block_; ++k) {
        uniforms.push_back(as_recorded(draw(options_.seed, Draw::propose, first + b, round, k)));
      }
    }
    if (!greedy_) append(records_.proposal_uniforms, uniforms);
    backend.upload(proposal_uniforms_.data(), uniforms.data(),
                   uniforms.size() * sizeof uniforms[0]);
    backend.upload(previous_.data(), anchors.data(), anchors.size() * sizeof anchors[0]);
    backend.fill(draft_.data(), 0, static_cast<std::size_t>(count * block_) * sizeof(std::int32_t));

    draft_hidden_.resize(static_cast<std::size_t>(count * block_ * hidden_));
    if (generator_.stores_logits()) {
      draft_logits_.resize(static_cast<std::size_t>(count * block_ * vocab_));
    }
    std::vector<std::int32_t> draft(static_cast<std::size_t>(count * block_), 0);
    for (std::int64_t k = 0; k < block_; ++k) {
      make_backbone(k, anchors, draft);
      draft_step(k, count);
      backend.download(draft.data(), draft_.data(), draft.size() * sizeof draft[0]);
    }
    return draft;
  }

  /// Backbone rows of slot k + 1, which follows draft[:, k - 1] (slot 1: the anchor).
  void make_backbone(std::int64_t k, const std::vector<std::int32_t>& anchors,
                     const std::vector<std::int32_t>& draft) {
    const auto count = static_cast<std::int64_t>(anchors.size());
    slot_hidden_.resize(static_cast<std::size_t>(count * hidden_));
    for (std::int64_t b = 0; b < count; ++b) {
      const auto row = static_cast<std::size_t>(b * (block_ + 1) + k);
      const std::int32_t previous = k == 0 ? anchors[static_cast<std::size_t>(b)]
                                           : draft[static_cast<std::size_t>(b * block_ + k - 1)];
      float* out = slot_hidden_.data() + b * hidden_;
      generator_.draft_hidden(rows_.hidden.data() + static_cast<std::int64_t>(row) * hidden_,
                              previous, rows_.gaps[row], targets_[row].acceptance, out);
      std::copy(out, out + hidden_, draft_hidden_.data() + (b * block_ + k) * hidden_);
    }
    Rows slot = rows(backbone_, count);
    slot.data += k * vocab_;
    slot.stride = block_ * vocab_;
    generator_.project(slot_hidden_.data(), slot);
    if (!generator_.stores_logits()) return;
    slot_logits_.resize(static_cast<std::size_t>(count * vocab_));
    generator_.download(slot, slot_logits_.data());
    generator_.store_rounding(slot, slot_logits_.data());
    for (std::int64_t b = 0; b < count; ++b) {
      const float* source = slot_logits_.data() + b * vocab_;
      std::copy(source, source + vocab_, draft_logits_.data() + (b * block_ + k) * vocab_);
    }
  }

  /// Draws draft[:, k]: step k of vanilla_markov_sample.
  void draft_step(std::int64_t k, std::int64_t count) {
    Backend& backend = generator_.backend();
    const auto batch = static_cast<std::int32_t>(count);
    const auto block = static_cast<std::int32_t>(block_);
    const auto step = static_cast<std::int32_t>(k);
    auto* status = static_cast<std::uint32_t*>(status_.data());
    const Scratch scratch{scratch_.data(), scratch_bytes_};

    BuildMarkovLogitsArgs markov;
    markov.batch = batch;
    markov.block_size = block;
    markov.step = step;
    markov.backbone = rows(backbone_, count * block_);
    markov.w1 = generator_.markov_w1();
    markov.w2 = generator_.markov_w2();
    markov.first_previous = static_cast<const std::int32_t*>(previous_.data());
    markov.draft = static_cast<const std::int32_t*>(draft_.data());
    markov.corrected = rows(corrected_, count);
    markov.scratch = scratch;
    markov.status = status;
    backend.build_markov_logits(markov);

    LogitsToProbabilitiesArgs softmax;
    softmax.logits = rows(corrected_, count);
    softmax.rule = generator_.rule();
    softmax.probabilities = rows(step_probabilities_, count);
    softmax.laws = static_cast<RowLaw*>(laws_.data());
    softmax.status = status;
    backend.logits_to_probabilities(softmax);

    SampleProbabilityRowsArgs sample;
    sample.batch = batch;
    sample.block_size = block;
    sample.step = step;
    sample.probabilities = rows(step_probabilities_, count);
    sample.uniforms = static_cast<const float*>(proposal_uniforms_.data());
    sample.tokens = static_cast<std::int32_t*>(draft_.data());
    sample.scratch = scratch;
    sample.status = status;
    backend.sample_probability_rows(sample);

    if (greedy_) return;
    StoreDraftStepProbabilitiesArgs store;
    store.batch = batch;
    store.block_size = block;
    store.step = step;
    store.source = rows(step_probabilities_, count);
    store.destination = rows(draft_probabilities_, count * block_);
    backend.store_draft_step_probabilities(store);
  }

  std::vector<std::int32_t> proposal_lengths(std::int64_t first, std::int64_t round,
                                             std::int64_t count) const {
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(count),
                                      static_cast<std::int32_t>(block_));
    if (!options_.random_lengths) return lengths;
    for (std::int64_t b = 0; b < count; ++b) {
      const std::uint64_t u = draw(options_.seed, Draw::length, first + b, round);
      lengths[static_cast<std::size_t>(b)] = static_cast<std::int32_t>(1 + as_index(u, block_));
    }
    return lengths;
  }

  void verify_greedily(std::int64_t count) {
    GreedyAcceptArgs args;
    args.batch = static_cast<std::int32_t>(count);
    args.length = static_cast<std::int32_t>(block_);
    args.draft_stride = args.length;
    args.logits = rows(target_logits_, count * (block_ + 1));
    args.draft = static_cast<const std::int32_t*>(draft_.data());
    args.lengths = static_cast<const std::int32_t*>(lengths_.data());
    args.accepted = static_cast<std::int32_t*>(accepted_.data());
    args.accept_length = static_cast<std::int32_t*>(accept_length_.data());
    args.laws = static_cast<RowLaw*>(laws_.data());
    args.status = static_cast<std::uint32_t*>(status_.data());
    generator_.backend().greedy_accept(args);
  }

  void verify_by_sampling(std::int64_t first, std::int64_t round, std::int64_t count) {
    Backend& backend = generator_.backend();
    std::vector<float> uniforms;
    for (std::int64_t b = 0; b < count; ++b) {
      for (std::int64_t j = 0; j <= 2 * block_; ++j) {
        uniforms.push_back(as_recorded(draw(options_.seed, Draw::accept, first + b, round, j)));
      }
    }
    append(records_.accept_uniforms, uniforms);
    backend.upload(accept_uniforms_.data(), uniforms.data(), uniforms.size() * sizeof uniforms[0]);

    LogitsToProbabilitiesArgs softmax;
    softmax.logits = rows(target_logits_, count * (block_ + 1));
    softmax.rule = generator_.rule();
    softmax.probabilities = rows(target_probabilities_, count * (block_ + 1));
    softmax.laws = static_cast<RowLaw*>(laws_.data());
    softmax.status = static_cast<std::uint32_t*>(status_.data());
    backend.logits_to_probabilities(softmax);

    ProbabilisticAcceptArgs args;
    args.batch = static_cast<std::int32_t>(count);
    args.length = static_cast<std::int32_t>(block_);
    args.draft_stride = args.length;
    args.target = softmax.probabilities;
    args.draft = rows(draft_probabilities_, count * block_);
    args.tokens = static_cast<const std::int32_t*>(draft_.data());
    args.lengths = static_cast<const std::int32_t*>(lengths_.data());
    args.uniforms = static_cast<const float*>(accept_uniforms_.data());
    args.accepted = static_cast<std::int32_t*>(accepted_.data());
    args.accept_length = static_cast<std::int32_t*>(accept_length_.data());
    args.scratch = {scratch_.data(), scratch_bytes_};
    args.status = static_cast<std::uint32_t*>(status_.data());
    backend.probabilistic_accept(args);
  }

  template <class T>
  static void append(std::vector<T>& to, const std::vector<T>& values) {
    to.insert(to.end(), values.begin(), values.end());
  }
  [[nodiscard]] Buffer floats(std::int64_t count) const {
    return generator_.backend().allocate(static_cast<std::size_t>(count) * sizeof(float));
  }
  [[nodiscard]] Buffer ints(std::int64_t count) const {
    return generator_.backend().allocate(static_cast<std::size_t>(count) * sizeof(std::int32_t));
  }
  [[nodiscard]] Rows rows(const Buffer& buffer, std::int64_t count) const {
    return {static_cast<float*>(buffer.data()), count, static_cast<std::int32_t>(vocab_), vocab_};
  }

  Generator& generator_;
  TraceWriter& writer_;
  const SynthProgress& progress_;
  const SynthOptions& options_;
  std::int64_t vocab_, hidden_, block_;
  bool greedy_;
  std::int64_t batch_ = 1;
  std::int64_t done_ = 0;
  std::size_t scratch_bytes_ = 0;
  Buffer target_logits_, backbone_, corrected_, step_probabilities_;
  Buffer draft_probabilities_, target_probabilities_;
  Buffer proposal_uniforms_, accept_uniforms_;
  Buffer previous_, draft_, lengths_, accepted_, accept_length_, laws_, scratch_, status_;
  TargetRows rows_;
  std::vector<SlotTarget> targets_;
  std::vector<float> draft_hidden_, draft_logits_, slot_hidden_, slot_logits_;
  RoundRecords records_;
};

}  // namespace

void write_rounds(Generator& generator, TraceWriter& writer, const SynthProgress& progress) {
  RoundsWriter(generator, writer, progress).write();
}

}  // namespace dspark::synth
