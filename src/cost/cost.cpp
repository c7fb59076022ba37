#include "cost/cost.h"

namespace dspark {

double step_cost(const LinearCost& cost) { return cost.verify_base + cost.verify_token; }

}  // namespace dspark
