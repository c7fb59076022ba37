#include "replay/round_flow.h"

namespace dspark {

void RoundFlow::begin(std::int32_t block_size, std::int32_t repeats) {
  block_size_ = block_size;
  cells_.assign((map_ != nullptr ? map_->cells : 1) * columns(), 0.0);
  accepted_.assign(static_cast<std::size_t>(block_size) + 1, 0.0);
  verified_by_repeat_.assign(static_cast<std::size_t>(repeats), 0.0);
  trimmed_ = 0;
}

void RoundFlow::scale(double factor) {
  for (double& sum : cells_) sum *= factor;
  for (double& count : accepted_) count *= factor;
  trimmed_ *= factor;
}

double RoundFlow::total(std::size_t column) const {
  double sum = 0;
  for (std::size_t at = column; at < cells_.size(); at += columns()) sum += cells_[at];
  return sum;
}

std::vector<double> RoundFlow::scheduled_rounds() const {
  std::vector<double> sums;
  for (std::size_t column = scheduled; column < columns(); ++column) sums.push_back(total(column));
  return sums;
}

}  // namespace dspark
