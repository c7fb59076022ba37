// The hand-made examples of configs/cost, and short tables in text.
#pragma once

#include <string>

#include "cost/cost_table.h"

namespace dspark::test {

/// A file of configs/cost, without ".json".
inline CostTable example(const std::string& name) {
  return read_cost_table(std::string(DSPARK_SOURCE) + "/configs/cost/" + name + ".json");
}

inline CostTable parsed(const std::string& text) { return parse_cost_table(text, "t.json"); }

}  // namespace dspark::test
