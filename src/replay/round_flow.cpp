#include "replay/round_flow.h"

namespace dspark {

void RoundFlow::begin(std::int32_t block_size, std::int32_t repeats) {
  block_size_ = block_size;
  cells_.assign((map_ != nullptr ? map_->cells : 1) * columns(), 0.0);
  accepted_.assign(static_cast<std::size_t>(block_size) + 1, 0.0);
  verified_by_repeat_.assign(static_cast<std::size_t>(repeats), 0.0);
  trimmed_ = 0;
}

std::vector<double> RoundFlow::scheduled_rounds() const {
  std::vector<double> sums(static_cast<std::size_t>(block_size_) + 1, 0.0);
  for (std::size_t cell = 0; cell < cells_.size(); cell += columns()) {
    for (std::size_t l = 0; l < sums.size(); ++l) sums[l] += cells_[cell + scheduled + l];
  }
  return sums;
}

}  // namespace dspark
