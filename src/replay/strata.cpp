#include "replay/strata.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>

namespace dspark {
namespace {

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

  [[nodiscard]] Stratum stratum(const char* by, std::string label) const {
    Stratum out;
    out.by = by;
    out.label = std::move(label);
    out.anchors = anchors;
    if (anchors > 0) {
      out.survival = survival / anchors;
      out.tau_open_loop = tokens / anchors;
    }
    if (claims > 0) out.predicted_conditional = claimed / claims;
    return out;
  }
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

}  // namespace

std::vector<Stratum> make_strata(const OutcomeTable& table) {
  Sums whole;
  std::vector<Sums> depths;
  std::array<Sums, kConfidenceStrata> confidences;
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
      if (bucket >= depths.size()) depths.resize(bucket + 1);
      whole.add(table.alpha[row], tokens, claim);
      depths[bucket].add(table.alpha[row], tokens, claim);
      if (claim >= 0 && claim <= 1) {
        const int bin =
            std::min(kConfidenceStrata - 1, static_cast<int>(claim * kConfidenceStrata));
        confidences[static_cast<std::size_t>(bin)].add(table.alpha[row], tokens, claim);
      }
    }
  }
  std::vector<Stratum> out = {whole.stratum("trace", "")};
  for (std::size_t bucket = 0; bucket < depths.size(); ++bucket) {
    if (depths[bucket].anchors > 0) {
      out.push_back(depths[bucket].stratum("depth", depth_label(bucket)));
    }
  }
  for (int bin = 0; bin < kConfidenceStrata; ++bin) {
    const Sums& sums = confidences[static_cast<std::size_t>(bin)];
    if (sums.anchors > 0) out.push_back(sums.stratum("confidence", confidence_label(bin)));
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
    // Whole traces are compared with each other, parts within their trace and setting.
    std::vector<std::string> key = {stratum.by, stratum.verification};
    if (stratum.by != "trace") {
      key.insert(key.end(), {stratum.trace, std::to_string(stratum.sampling.temperature),
                             std::to_string(stratum.sampling.top_k),
                             std::to_string(stratum.sampling.top_p), stratum.sampling.top_p_rule});
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
    result.strata_means.push_back({first.by == "trace" ? "" : first.trace, first.verification,
                                   first.sampling, first.by, macro / count, micro / anchors});
  }
}

}  // namespace dspark
