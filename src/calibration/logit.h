// Between confidences and their logits.
#pragma once

#include <cmath>

namespace dspark {

/// The logit of a confidence in [0, 1] that was rounded to f32. 0 and 1, which have none, stand for
/// the numbers that round to them and are taken half a step of f32 inside: 2^-150 (logit about
/// -104) and 1 - 2^-25 (about 17.3). NaN stays NaN.
[[nodiscard]] inline double logit_of(float confidence) {
  auto c = static_cast<double>(confidence);
  if (c <= 0) c = 0x1p-150;
  if (c >= 1) c = 1 - 0x1p-25;
  return std::log(c) - std::log1p(-c);
}

/// sigmoid(logit / temperature), in [0, 1]; `temperature` > 0.
[[nodiscard]] inline double tempered(double logit, double temperature) {
  return 1.0 / (1.0 + std::exp(-logit / temperature));
}

}  // namespace dspark
