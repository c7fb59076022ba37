#include "cost/cost.h"

namespace dspark {

double round_cost(const LinearCost& cost, double verified) {
  return cost.draft + cost.verify_base + cost.verify_token * (verified + 1.0) +
         cost.accept * verified;
}

double step_cost(const LinearCost& cost) { return cost.verify_base + cost.verify_token; }

}  // namespace dspark
