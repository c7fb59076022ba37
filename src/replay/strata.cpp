#include "replay/strata.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <utility>

namespace dspark {
namespace {

constexpr std::size_t kColumns = 5;

/// Sums over the full blocks of a part, or of one cell of it: nothing but doubles.
struct Sums {
  double anchors = 0, survival = 0, tokens = 0, claims = 0, claimed = 0;

  void add(double first, double all, double claim) {
    anchors += 1;
    survival += first;
    tokens += all;
    if (!(claim >= 0 && claim <= 1)) return;
    claims += 1;
    claimed += claim;
  }
  [[nodiscard]] double survival_mean() const { return survival / anchors; }
  [[nodiscard]] double tau_mean() const { return tokens / anchors; }
  [[nodiscard]] double claim_mean() const { return claimed / claims; }
};
static_assert(sizeof(Sums) == kColumns * sizeof(double));

/// A part of a trace, cell by cell.
class Part {
 public:
  explicit Part(std::size_t cells) : cells_(cells) {}

  void add(std::size_t cell, double first, double all, double claim) {
    cells_[cell].add(first, all, claim);
    total_.add(first, all, claim);
  }
  [[nodiscard]] bool empty() const { return total_.anchors == 0; }

  [[nodiscard]] Stratum stratum(const char* by, std::string label,
                                const Resampling* resampling) const {
    Stratum out;
    out.by = by;
    out.label = std::move(label);
    out.anchors = total_.anchors;
    if (empty()) return out;
    out.survival = total_.survival_mean();
    out.tau_open_loop = total_.tau_mean();
    if (total_.claims > 0) out.predicted_conditional = total_.claim_mean();
    if (resampling != nullptr && resampling->possible()) add_intervals(*resampling, out);
    if (out.anchors < kFewAnchors) out.intervals = {};
    return out;
  }

 private:
  void add_intervals(const Resampling& resampling, Stratum& out) const {
    std::vector<double> columns(cells_.size() * kColumns), scratch, sums;
    for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
      const auto values = std::bit_cast<std::array<double, kColumns>>(cells_[cell]);
      std::copy(values.begin(), values.end(),
                columns.begin() + static_cast<std::ptrdiff_t>(cell * kColumns));
    }
    resampling.draw_sums(columns.data(), kColumns, scratch, sums);
    std::vector<double> values;
    const auto draw = [&](double (Sums::*number)() const) {
      values.resize(resampling.draws());  // interval() drops what is not finite
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::array<double, kColumns> at;
        std::copy_n(sums.data() + i * kColumns, kColumns, at.begin());
        values[i] = (std::bit_cast<Sums>(at).*number)();
      }
    };
    draw(&Sums::survival_mean);
    out.intervals.survival = resampling.interval(*out.survival, values, 0, 1);
    if (out.predicted_conditional) {
      draw(&Sums::claim_mean);
      out.intervals.predicted_conditional =
          resampling.interval(*out.predicted_conditional, values, 0, 1);
    }
    draw(&Sums::tau_mean);
    out.intervals.tau_open_loop = resampling.interval(*out.tau_open_loop, values, 1);
    out.widening = resampling.widening();
    for (std::size_t i = 0; i < resampling.draws(); ++i) {
      out.anchor_draws.push_back(sums[i * kColumns]);
      out.token_draws.push_back(sums[i * kColumns + 2]);
    }
  }

  std::vector<Sums> cells_;
  Sums total_;
};

// 0-63, 64-127, 128-255, ...
constexpr std::int64_t kFirstDepth = 64;

std::size_t depth_bucket(std::int64_t depth) {
  std::size_t bucket = 0;
  for (std::int64_t end = kFirstDepth; depth >= end && bucket < 56; end *= 2) ++bucket;
  return bucket;
}

std::string depth_label(std::size_t bucket) {
  const std::int64_t end = kFirstDepth << bucket;
  return "positions " + std::to_string(bucket == 0 ? 0 : end / 2) + "-" + std::to_string(end - 1);
}

std::string confidence_label(int bin) {
  const auto edge = [](int tenths) {
    return tenths == 10 ? std::string("1") : "0." + std::to_string(tenths);
  };
  constexpr int tenths = 10 / kConfidenceStrata;
  return "confidence " + (bin == 0 ? std::string("0") : edge(bin * tenths)) + "-" +
         edge((bin + 1) * tenths);
}

/// The interval of a mean over strata, `mean(draw)` of which the estimate is `estimate`; empty
/// where one of them has no draws.
template <class Mean>
std::optional<Range> interval_of_mean(const std::vector<Stratum*>& strata, double estimate,
                                      double confidence, const Mean& mean) {
  std::size_t draws = SIZE_MAX;
  double widening = 1;
  for (const Stratum* stratum : strata) {
    draws = std::min(draws, stratum->anchor_draws.size());
    widening = std::max(widening, stratum->widening);
  }
  if (draws == 0 || draws == SIZE_MAX) return std::nullopt;
  std::vector<double> values;
  for (std::size_t i = 0; i < draws; ++i) {
    const double value = mean(i);
    if (std::isfinite(value)) values.push_back(estimate + widening * (value - estimate));
  }
  if (2 * values.size() < draws) return std::nullopt;
  return percentile_range(values, confidence);
}

/// Every stratum counts once; one that a draw left out does not count there.
double macro_mean(const std::vector<Stratum*>& strata, std::size_t draw) {
  double sum = 0, count = 0;
  for (const Stratum* stratum : strata) {
    if (!(stratum->anchor_draws[draw] > 0)) continue;
    sum += stratum->token_draws[draw] / stratum->anchor_draws[draw];
    count += 1;
  }
  return sum / count;
}

/// Every anchor counts once.
double micro_mean(const std::vector<Stratum*>& strata, std::size_t draw) {
  double tokens = 0, anchors = 0;
  for (const Stratum* stratum : strata) {
    tokens += stratum->token_draws[draw];
    anchors += stratum->anchor_draws[draw];
  }
  return tokens / anchors;
}

}  // namespace

std::vector<Stratum> make_strata(const OutcomeTable& table, const Resampling* resampling) {
  const CellMap map = resampling != nullptr ? map_cells(*resampling) : CellMap{};
  const Part nothing(map.cells);
  Part whole = nothing;
  std::vector<Part> depths;
  std::vector<Part> confidences(kConfidenceStrata, nothing);
  const auto block = static_cast<std::size_t>(table.block_size);
  for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
    const std::int64_t first = table.sequence_offsets[s];
    for (std::int64_t n = first; n < table.sequence_offsets[s + 1]; ++n) {
      if (table.slots[static_cast<std::size_t>(n)] < table.block_size) continue;
      const std::size_t row = static_cast<std::size_t>(n) * block;
      double reach = 1, tokens = 1;
      for (std::size_t k = 0; k < block; ++k) {
        tokens += reach * table.alpha[row + k];
        reach *= table.beta[row + k];
      }
      const double claim = static_cast<double>(table.confidence[row]);
      const std::size_t bucket = depth_bucket(n - first);
      if (bucket >= depths.size()) depths.resize(bucket + 1, nothing);
      const std::size_t cell = map[static_cast<std::size_t>(n)];
      whole.add(cell, table.alpha[row], tokens, claim);
      depths[bucket].add(cell, table.alpha[row], tokens, claim);
      if (claim >= 0 && claim <= 1) {
        const int bin =
            std::min(kConfidenceStrata - 1, static_cast<int>(claim * kConfidenceStrata));
        confidences[static_cast<std::size_t>(bin)].add(cell, table.alpha[row], tokens, claim);
      }
    }
  }
  std::vector<Stratum> out = {whole.stratum("trace", "", resampling)};
  for (std::size_t bucket = 0; bucket < depths.size(); ++bucket) {
    if (depths[bucket].empty()) continue;
    out.push_back(depths[bucket].stratum("depth", depth_label(bucket), resampling));
  }
  for (int bin = 0; bin < kConfidenceStrata; ++bin) {
    const Part& part = confidences[static_cast<std::size_t>(bin)];
    if (part.empty()) continue;
    out.push_back(part.stratum("confidence", confidence_label(bin), resampling));
  }
  return out;
}

void finish_strata(ReplayResult& result) {
  struct Kind {
    std::vector<Stratum*> strata;
  };
  std::vector<Kind> kinds;
  std::map<std::vector<std::string>, std::size_t> index;
  for (Stratum& stratum : result.strata) {
    // Whole traces, each as it was recorded, are compared with each other, parts within their trace
    // and setting.
    std::vector<std::string> key = {stratum.by, stratum.verification, stratum.sampling.drafts,
                                    stratum.sampling.top_p_rule};
    if (stratum.by != "trace") {
      key.insert(key.end(),
                 {stratum.trace, std::to_string(stratum.sampling.temperature),
                  std::to_string(stratum.sampling.top_k), std::to_string(stratum.sampling.top_p)});
    }
    const auto [at, is_new] = index.try_emplace(std::move(key), kinds.size());
    if (is_new) kinds.emplace_back();
    kinds[at->second].strata.push_back(&stratum);
  }
  result.strata_means.clear();
  for (const Kind& kind : kinds) {
    double macro = 0, micro = 0, count = 0, anchors = 0;
    Stratum* worst = nullptr;
    int candidates = 0;
    for (Stratum* stratum : kind.strata) {
      stratum->worst = false;
      if (!stratum->tau_open_loop) continue;
      macro += *stratum->tau_open_loop;
      count += 1;
      micro += stratum->anchors * *stratum->tau_open_loop;
      anchors += stratum->anchors;
      if (stratum->anchors < kFewAnchors) continue;
      ++candidates;
      if (worst == nullptr || *stratum->tau_open_loop < *worst->tau_open_loop) worst = stratum;
    }
    if (candidates >= 2) worst->worst = true;
    if (!(anchors > 0)) continue;
    const Stratum& first = *kind.strata.front();
    StrataMean mean = {first.by == "trace" ? "" : first.trace,
                       first.verification,
                       first.sampling,
                       first.by,
                       macro / count,
                       micro / anchors,
                       {},
                       {}};
    mean.macro_interval =
        interval_of_mean(kind.strata, mean.macro, result.confidence,
                         [&](std::size_t draw) { return macro_mean(kind.strata, draw); });
    mean.micro_interval =
        interval_of_mean(kind.strata, mean.micro, result.confidence,
                         [&](std::size_t draw) { return micro_mean(kind.strata, draw); });
    result.strata_means.push_back(std::move(mean));
  }
  for (Stratum& stratum : result.strata) stratum.anchor_draws = stratum.token_draws = {};
}

}  // namespace dspark
