#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/error.h"
#include "support/text.h"
#include "synth/generator.h"

namespace dspark::synth {
namespace {

/// Bound on vocabulary-wide rows in work, on either side.
constexpr std::int64_t kTileBytes = std::int64_t{256} << 20;
/// Rows of weights that are made at a time.
constexpr std::int64_t kBlockBytes = std::int64_t{32} << 20;
/// Attempts at a row whose argmax is clear before the options are to blame.
constexpr std::uint32_t kAttempts = 1000;

/// By how much the stored type may turn the difference of two logits of a row: four half-units of
/// the largest there may be.
float logit_rounding(const SynthOptions& options) {
  if (options.store == StoredRows::hidden) return 0;
  const double largest = 8 * (options.logit_std + options.markov_std);
  const double half_unit = options.type == StoredType::bf16  ? 0x1p-8
                           : options.type == StoredType::f16 ? 0x1p-11
                                                             : 0x1p-24;
  return static_cast<float>(4 * largest * half_unit);
}

GapSetting gap_setting(const SynthOptions& options, const Weights& weights) {
  GapSetting out;
  out.rule =
      make_sampling_rule(options.temperature, options.top_k, options.top_p, TopPRule::water_filling,
                         static_cast<std::int32_t>(options.vocab_size));
  out.temperature = out.rule.greedy ? 1.0 : options.temperature;
  out.top_p = out.rule.top_p == 0 ? 1.0 : double(out.rule.top_p) * 0x1p-32;
  out.type = options.type;
  out.wall = weights.wall();
  // Greedy traces must not depend on rounding at all; under filters it is enough that they rarely
  // do.
  constexpr float kClear = 0.0625f;
  out.margin =
      out.rule.greedy ? std::max(kClear, logit_rounding(options)) : logit_rounding(options) / 4;
  return out;
}

/// Calls make(id, row) in parallel for blocks of rows of `width` numbers, and then use(first,
/// count, block).
template <class T, class Make, class Use>
void in_blocks(std::int64_t rows, std::int64_t width, int threads, const Make& make,
               const Use& use) {
  const auto row_bytes = static_cast<std::int64_t>(sizeof(T)) * width;
  const std::int64_t step = std::clamp<std::int64_t>(kBlockBytes / row_bytes, 1, rows);
  std::vector<T> block(static_cast<std::size_t>(step * width));
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t count = std::min(step, rows - first);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t i = 0; i < count; ++i) make(first + i, block.data() + i * width);
    use(first, count, block.data());
  }
}

}  // namespace

Generator::Generator(Backend& backend, const SynthOptions& options)
    : backend_(backend),
      options_(options),
      weights_(options),
      setting_(gap_setting(options, weights_)) {}

void Generator::write_heads(TraceWriter& writer) {
  const std::int64_t vocab = weights_.vocab();
  const std::int64_t hidden = weights_.hidden();
  const std::int64_t rank = weights_.rank();
  const int threads = options_.threads;
  const StoredType type = options_.type;

  if (rank > 0) {
    const auto matrix = [&](HeadData data, auto member) {
      writer.create(data, type, vocab, rank);
      in_blocks<float>(
          vocab, rank, threads, [&](std::int64_t id, float* out) { (weights_.*member)(id, out); },
          [&](std::int64_t, std::int64_t count, const float* block) {
            writer.append(data, block, count);
          });
    };
    matrix(HeadData::markov_w1, &Weights::markov_w1_row);
    matrix(HeadData::markov_w2, &Weights::markov_w2_row);
  }
  if (options_.confidence) {
    const std::vector<float> weight = weights_.confidence_weight();
    const float bias = Weights::confidence_bias();
    writer.create(HeadData::confidence_weight, type, static_cast<std::int64_t>(weight.size()), 1);
    writer.append(HeadData::confidence_weight, weight.data(),
                  static_cast<std::int64_t>(weight.size()));
    writer.create(HeadData::confidence_bias, type, 1, 1);
    writer.append(HeadData::confidence_bias, &bias, 1);
  }

  const std::size_t row_bytes = static_cast<std::size_t>(hidden) * sizeof(Float16);
  const std::size_t bytes = static_cast<std::size_t>(vocab) * row_bytes;
  if (bytes > backend_.free_memory()) {
    throw device_error("synth",
                       "lm_head of " + std::to_string(vocab) + " x " + std::to_string(hidden) +
                           " takes " + human_bytes(bytes) + " of memory, and " +
                           human_bytes(backend_.free_memory()) + " are free",
                       "choose a smaller --vocab or --hidden");
  }
  lm_head_ = backend_.allocate(bytes);
  if (stores_hidden()) writer.create(HeadData::lm_head, type, vocab, hidden);
  std::vector<float> wide;
  in_blocks<Float16>(
      vocab, hidden, threads, [&](std::int64_t id, Float16* out) { weights_.lm_head_row(id, out); },
      [&](std::int64_t first, std::int64_t count, const Float16* block) {
        backend_.upload(
            static_cast<std::byte*>(lm_head_.data()) + static_cast<std::size_t>(first) * row_bytes,
            block, static_cast<std::size_t>(count) * row_bytes);
        if (!stores_hidden()) return;
        wide.resize(static_cast<std::size_t>(count * hidden));
#pragma omp parallel for num_threads(threads) schedule(static)
        for (std::int64_t i = 0; i < count * hidden; ++i) {
          wide[static_cast<std::size_t>(i)] = to_float(block[i]);
        }
        writer.append(HeadData::lm_head, wide.data(), count);
      });
}

Matrix Generator::lm_head() const {
  return {lm_head_.data(), DType::f16, weights_.vocab(), weights_.hidden(), weights_.hidden()};
}

Matrix Generator::markov_w2() const {
  if (weights_.rank() == 0) return {};
  return {lm_head_.data(), DType::f16, weights_.vocab(), weights_.rank(), weights_.hidden()};
}

Matrix Generator::markov_w1() {
  const std::int64_t vocab = weights_.vocab();
  const std::int64_t rank = weights_.rank();
  if (rank == 0) return {};
  if (markov_w1_.data() == nullptr) {
    const std::size_t row_bytes = static_cast<std::size_t>(rank) * sizeof(float);
    markov_w1_ = backend_.allocate(static_cast<std::size_t>(vocab) * row_bytes);
    in_blocks<float>(
        vocab, rank, options_.threads,
        [&](std::int64_t id, float* out) { weights_.markov_w1_row(id, out); },
        [&](std::int64_t first, std::int64_t count, const float* block) {
          backend_.upload(static_cast<std::byte*>(markov_w1_.data()) +
                              static_cast<std::size_t>(first) * row_bytes,
                          block, static_cast<std::size_t>(count) * row_bytes);
        });
  }
  return {markov_w1_.data(), DType::f32, vocab, rank, rank};
}

std::int64_t Generator::blocks_at_once(std::int64_t rows_per_block) const {
  const std::int64_t row = std::max(weights_.vocab(), weights_.hidden());
  return std::max<std::int64_t>(1, kTileBytes / (row * 4 * rows_per_block));
}

void Generator::project(const float* hidden, const Rows& logits) {
  const std::size_t bytes =
      static_cast<std::size_t>(logits.rows * weights_.hidden()) * sizeof(float);
  if (bytes > staging_.bytes()) staging_ = backend_.allocate(bytes);
  backend_.upload(staging_.data(), hidden, bytes);
  backend_.project(
      {{staging_.data(), DType::f32, logits.rows, weights_.hidden(), weights_.hidden()},
       lm_head(),
       logits});
}

void Generator::download(const Rows& rows, float* out) const {
  const auto vocab = static_cast<std::int64_t>(rows.vocab);
  const std::size_t row_bytes = static_cast<std::size_t>(vocab) * sizeof(float);
  if (rows.stride == vocab) {
    backend_.download(out, rows.data, static_cast<std::size_t>(rows.rows) * row_bytes);
    return;
  }
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    backend_.download(out + i * vocab, rows.data + i * rows.stride, row_bytes);
  }
}

void Generator::store_rounding(const Rows& rows, float* host) const {
  if (!stores_logits() || options_.type == StoredType::f32 || options_.type == StoredType::f64) {
    return;
  }
  const auto vocab = static_cast<std::int64_t>(rows.vocab);
  round_to(options_.type, {host, static_cast<std::size_t>(rows.rows * vocab)}, options_.threads);
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    backend_.upload(rows.data + i * rows.stride, host + i * vocab,
                    static_cast<std::size_t>(vocab) * sizeof(float));
  }
}

void Generator::draw_rows(std::span<const RowId> ids, std::span<const SlotTarget> targets,
                          TargetRows& rows, Rows device_logits) {
  const auto count = static_cast<std::int64_t>(ids.size());
  const auto per_row = static_cast<std::int64_t>(targets.size()) / std::max<std::int64_t>(count, 1);
  const std::int64_t vocab = weights_.vocab();
  const std::int64_t hidden = weights_.hidden();
  rows.hidden.resize(static_cast<std::size_t>(count * hidden));
  rows.logits.resize(static_cast<std::size_t>(count * vocab));
  rows.gaps.resize(targets.size());

  std::vector<std::int64_t> pending(static_cast<std::size_t>(count));
  std::iota(pending.begin(), pending.end(), 0);
  std::vector<std::uint8_t> clear(static_cast<std::size_t>(count));
  for (std::uint32_t attempt = 0; !pending.empty(); ++attempt) {
    if (attempt == kAttempts) {
      throw usage_error("synth",
                        "no row with a clear argmax in " + std::to_string(kAttempts) + " attempts",
                        "choose a larger --logit-std or a wider --dtype");
    }
    for (const std::int64_t i : pending) {
      const RowId& id = ids[static_cast<std::size_t>(i)];
      weights_.target_hidden(
          draw(options_.seed, Draw::context, id.sequence, id.position, id.slot, attempt),
          rows.hidden.data() + i * hidden);
    }
    // The first attempt is one matrix product; the few rows that need another are taken in runs.
    for (std::size_t first = 0; first < pending.size();) {
      std::size_t last = first + 1;
      while (last < pending.size() && pending[last] == pending[last - 1] + 1) ++last;
      const std::int64_t row = pending[first];
      Rows run = device_logits;
      run.data += row * device_logits.stride;
      run.rows = static_cast<std::int64_t>(last - first);
      project(rows.hidden.data() + row * hidden, run);
      download(run, rows.logits.data() + row * vocab);
      first = last;
    }
    const auto pending_count = static_cast<std::int64_t>(pending.size());
#pragma omp parallel num_threads(options_.threads)
    {
      RowHalves halves(setting_);
#pragma omp for schedule(dynamic)
      for (std::int64_t p = 0; p < pending_count; ++p) {
        const std::int64_t i = pending[static_cast<std::size_t>(p)];
        halves.load({rows.logits.data() + i * vocab, static_cast<std::size_t>(vocab)},
                    weights_.half_b());
        clear[static_cast<std::size_t>(i)] = halves.clear();
        for (std::int64_t k = 0; k < per_row; ++k) {
          const auto at = static_cast<std::size_t>(i * per_row + k);
          rows.gaps[at] = halves.gap(targets[at].acceptance, targets[at].choice);
        }
      }
    }
    std::erase_if(pending, [&](std::int64_t i) { return clear[static_cast<std::size_t>(i)] != 0; });
  }
  device_logits.rows = count;
  store_rounding(device_logits, rows.logits.data());
}

SlotTarget Generator::slot_target(std::int64_t sequence, std::int64_t position,
                                  std::int64_t slot) const {
  const auto& profile = options_.acceptance;
  const double mean = profile[std::min(static_cast<std::size_t>(slot - 1), profile.size() - 1)];
  const double u = as_double(draw(options_.seed, Draw::spread, sequence, position, slot));
  SlotTarget out;
  out.acceptance = mean + options_.spread * std::min(mean, 1 - mean) * (2 * u - 1);
  out.choice = as_double(draw(options_.seed, Draw::choice, sequence, position, slot));
  return out;
}

void Generator::draft_hidden(const float* target_hidden, std::int32_t previous, const Gap& gap,
                             double acceptance, float* out) const {
  const std::int64_t rank = weights_.rank();
  const std::int64_t context = weights_.context();
  weights_.markov_w1_row(previous, out);
  for (std::int64_t r = 0; r < rank; ++r) out[r] = target_hidden[r] - out[r];
  std::copy(target_hidden + rank, target_hidden + context, out + rank);
  out[context] = gap.high;
  out[context + 1] = gap.low;
  constexpr double kSure = 8;  // as a logit
  const double odds = std::log(acceptance) - std::log1p(-acceptance);
  const double channel = std::clamp(odds, -kSure, kSure) - double(Weights::confidence_bias());
  out[context + 2] = round_to(options_.type, static_cast<float>(channel));
}

std::int32_t Generator::first_token(std::int64_t sequence) const {
  return static_cast<std::int32_t>(
      as_index(draw(options_.seed, Draw::first_token, sequence), weights_.vocab()));
}

}  // namespace dspark::synth
