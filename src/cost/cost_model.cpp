#include "cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cost/lines.h"
#include "support/error.h"

namespace dspark {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// What happens outside the probes of a curve.
enum class Beyond { clamp, go_on };

double slope(const CostCurve& curve, std::size_t i) {
  return (curve.value[i + 1] - curve.value[i]) / static_cast<double>(curve.at[i + 1] - curve.at[i]);
}

// Linear between the probes. Continuations never fall away from the curve: their slope is at least
// 0.
double linear_at(const CostCurve& curve, double x, Beyond below, Beyond above) {
  const std::size_t last = curve.size() - 1;
  const auto first_x = static_cast<double>(curve.at.front());
  const auto last_x = static_cast<double>(curve.at[last]);
  if (x <= first_x) {
    if (below == Beyond::clamp || last == 0) return curve.value.front();
    return curve.value.front() - std::max(0.0, slope(curve, 0)) * (first_x - x);
  }
  if (x >= last_x) {
    if (above == Beyond::clamp || last == 0) return curve.value[last];
    return curve.value[last] + std::max(0.0, slope(curve, last - 1)) * (x - last_x);
  }
  const auto next =
      std::upper_bound(curve.at.begin(), curve.at.end(), x,
                       [](double a, std::int64_t b) { return a < static_cast<double>(b); });
  const auto i = static_cast<std::size_t>(next - curve.at.begin()) - 1;
  const auto at = static_cast<double>(curve.at[i]);
  if (x == at) return curve.value[i];
  const double value = curve.value[i] + slope(curve, i) * (x - at);
  // Rounding must not carry it past the probe.
  return std::clamp(value, std::min(curve.value[i], curve.value[i + 1]),
                    std::max(curve.value[i], curve.value[i + 1]));
}

double floor_at(const CostCurve& curve, std::int64_t x) {
  const auto next = std::upper_bound(curve.at.begin(), curve.at.end(), x);
  const auto i =
      next == curve.at.begin() ? 0 : static_cast<std::size_t>(next - curve.at.begin()) - 1;
  return curve.value[i];
}

double next_at(const CostCurve& curve, std::int64_t x) {
  const auto found = std::lower_bound(curve.at.begin(), curve.at.end(), x);
  return found == curve.at.end() ? curve.value.back()
                                 : curve.value[static_cast<std::size_t>(found - curve.at.begin())];
}

double exact_at(const CostCurve& curve, std::int64_t x) {
  const auto found = std::lower_bound(curve.at.begin(), curve.at.end(), x);
  if (found == curve.at.end() || *found != x) return kNaN;
  return curve.value[static_cast<std::size_t>(found - curve.at.begin())];
}

void check_cost(double value) {
  if (!(value >= 0 && std::isfinite(value))) throw internal_error("CostModel", "not a cost");
}

void check_increasing(const std::vector<std::int64_t>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] < (i == 0 ? 1 : values[i - 1] + 1)) {
      throw internal_error("CostModel", "a list that does not increase");
    }
  }
}

}  // namespace

// A table with what its lookups need.
class CostModel::Surface {
 public:
  explicit Surface(CostTable table)
      : table_(std::move(table)), flat_(dspark::is_flat(cost_lines(table_))) {
    const bool measured = table_.format == CostFormat::rows || table_.format == CostFormat::mlx;
    if (measured) over_tokens_ = curve_over_tokens(table_.rows);
    least_ = std::numeric_limits<double>::infinity();
    for (const CostRow& row : table_.rows) {
      for (const double ms : row.curve.value) least_ = std::min(least_, ms);
    }
  }

  [[nodiscard]] const CostTable& table() const { return table_; }
  [[nodiscard]] bool is_flat() const { return flat_; }

  [[nodiscard]] double ms(std::int64_t requests, std::int64_t tokens) const {
    switch (table_.format) {
      case CostFormat::sglang_1d:
        return 1000.0 / floor_at(table_.tokens, tokens);
      case CostFormat::vllm_ascend: {
        const double value = next_at(table_.tokens, tokens);
        return table_.rates ? 1000.0 / value : value;
      }
      case CostFormat::sglang_2d:
        return 1000.0 * sum(requests, tokens);
      case CostFormat::trtllm:
        return sum(requests, tokens);
      case CostFormat::trtllm_exact:
        return cell(requests, tokens);
      case CostFormat::mlx:
      case CostFormat::rows:
        return std::max(measured(requests, static_cast<double>(tokens)), least_);
    }
    throw internal_error("CostModel", "unknown format");
  }

 private:
  [[nodiscard]] double sum(std::int64_t requests, std::int64_t tokens) const {
    const auto part = [](const CostCurve& curve, std::int64_t x) {
      return curve.empty() ? 0.0
                           : linear_at(curve, static_cast<double>(x), Beyond::clamp, Beyond::clamp);
    };
    return table_.constant + part(table_.requests, requests) + part(table_.tokens, tokens);
  }

  // The full block runs on the native path, which stands at 0 tokens.
  [[nodiscard]] double cell(std::int64_t requests, std::int64_t tokens) const {
    const auto row = std::lower_bound(
        table_.rows.begin(), table_.rows.end(), requests,
        [](const CostRow& entry, std::int64_t count) { return entry.requests < count; });
    if (row == table_.rows.end() || row->requests != requests) return kNaN;
    const bool full = tokens == requests * (table_.max_draft_len + 1);
    return exact_at(row->curve, full ? 0 : tokens);
  }

  [[nodiscard]] double along(std::size_t row, double tokens) const {
    return linear_at(table_.rows[row].curve, tokens,
                     table_.clamps_below ? Beyond::clamp : Beyond::go_on, Beyond::go_on);
  }

  [[nodiscard]] double measured(std::int64_t requests, double tokens) const {
    if (!over_tokens_.empty()) {
      return linear_at(over_tokens_, tokens, table_.clamps_below ? Beyond::clamp : Beyond::go_on,
                       Beyond::go_on);
    }
    const std::vector<CostRow>& rows = table_.rows;
    const auto found = std::lower_bound(
        rows.begin(), rows.end(), requests,
        [](const CostRow& entry, std::int64_t count) { return entry.requests < count; });
    auto upper = static_cast<std::size_t>(found - rows.begin());
    if (upper < rows.size() && rows[upper].requests == requests) return along(upper, tokens);

    // Two request counts with a slope between them: around the one that is asked for, or the
    // outermost two.
    upper = std::clamp<std::size_t>(upper, 1, rows.size() - 1);
    const std::size_t lower = upper - 1;
    const auto count = static_cast<double>(requests);
    const auto low = static_cast<double>(rows[lower].requests);
    const auto high = static_cast<double>(rows[upper].requests);
    const double at_low = along(lower, tokens * low / count);
    const double at_high = along(upper, tokens * high / count);
    const double rise = (at_high - at_low) / (high - low);
    if (count < low) return at_low - std::max(0.0, rise) * (low - count);
    if (count > high) return at_high + std::max(0.0, rise) * (count - high);
    return at_low + rise * (count - low);
  }

  CostTable table_;
  bool flat_;
  CostCurve over_tokens_;
  double least_ = 0;
};

CostModel::CostModel() = default;

CostModel::CostModel(const LinearCost& linear) : linear_(linear) {}

CostModel::CostModel(CostTable table)
    : draft_(table.draft),
      overhead_(table.overhead.value_or(0)),
      surface_(std::make_shared<const Surface>(std::move(table))) {}

std::int64_t CostModel::charged_tokens(std::int64_t tokens) const {
  const auto found = std::lower_bound(buckets_.begin(), buckets_.end(), tokens);
  return found == buckets_.end() ? tokens : *found;
}

double CostModel::verify(std::int64_t requests, std::int64_t tokens) const {
  tokens = charged_tokens(tokens);
  if (surface_ != nullptr) return surface_->ms(requests, tokens);
  return linear_.verify_base + linear_.verify_token * static_cast<double>(tokens);
}

double CostModel::draft(std::int64_t requests) const {
  if (!draft_.empty()) {
    return linear_at(draft_, static_cast<double>(requests), Beyond::clamp, Beyond::go_on);
  }
  return surface_ != nullptr ? 0.0 : linear_.draft;
}

double CostModel::accept(std::int64_t drafts) const {
  return surface_ != nullptr ? 0.0 : linear_.accept * static_cast<double>(drafts);
}

double CostModel::plain_step(std::int64_t requests) const { return verify(requests, requests); }

double CostModel::speculative_step(std::int64_t requests, std::int64_t drafts) const {
  const std::int64_t tokens = requests + drafts;
  if (surface_ != nullptr) return draft(requests) + verify(requests, tokens) + overhead_;
  // The order of round_cost(), for the same bits.
  return draft(requests) + linear_.verify_base +
         linear_.verify_token * static_cast<double>(charged_tokens(tokens)) + accept(drafts) +
         overhead_;
}

const std::string& CostModel::unit() const {
  static const std::string relative;
  static const std::string ms = "ms";
  return surface_ != nullptr ? ms : relative;
}

bool CostModel::is_flat() const {
  if (surface_ != nullptr) return surface_->is_flat();
  return linear_.verify_token == 0 && linear_.accept == 0;
}

std::optional<LinearCost> CostModel::linear() const {
  if (surface_ != nullptr || !draft_.empty() || overhead_ != 0 || !buckets_.empty()) {
    return std::nullopt;
  }
  return linear_;
}

const CostTable* CostModel::table() const {
  return surface_ != nullptr ? &surface_->table() : nullptr;
}

bool CostModel::has_draft() const { return surface_ == nullptr || !draft_.empty(); }

void CostModel::set_draft(double per_step) {
  check_cost(per_step);
  linear_.draft = per_step;
  draft_ = surface_ != nullptr ? CostCurve{{1}, {per_step}} : CostCurve{};
}

void CostModel::set_draft(const std::vector<std::pair<std::int64_t, double>>& by_requests) {
  CostCurve curve;
  for (const auto& [requests, cost] : by_requests) {
    check_cost(cost);
    curve.at.push_back(requests);
    curve.value.push_back(cost);
  }
  if (curve.empty()) throw internal_error("CostModel", "an empty list of draft times");
  check_increasing(curve.at);
  draft_ = std::move(curve);
}

void CostModel::set_overhead(double per_step) {
  check_cost(per_step);
  overhead_ = per_step;
}

void CostModel::set_buckets(std::vector<std::int64_t> buckets) {
  check_increasing(buckets);
  buckets_ = std::move(buckets);
}

std::vector<double> round_prices(const CostModel& model, std::int32_t block_size) {
  std::vector<double> prices;
  for (std::int32_t l = 0; l <= block_size; ++l) prices.push_back(model.speculative_step(1, l));
  return prices;
}

}  // namespace dspark
