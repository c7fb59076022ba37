#include "cost/cost_table.h"

namespace dspark {

std::string_view cost_format_name(CostFormat format) {
  switch (format) {
    case CostFormat::sglang_1d:
      return "sglang-1d";
    case CostFormat::sglang_2d:
      return "sglang-2d";
    case CostFormat::trtllm:
      return "trtllm";
    case CostFormat::trtllm_exact:
      return "trtllm-exact";
    case CostFormat::vllm_ascend:
      return "vllm-ascend";
    case CostFormat::mlx:
      return "mlx";
    case CostFormat::rows:
      return "rows";
  }
  return "";
}

std::string_view cost_lookup_rule(CostFormat format) {
  switch (format) {
    case CostFormat::sglang_1d:
      return "the largest probe at or below, else the first";
    case CostFormat::sglang_2d:
    case CostFormat::trtllm:
      return "a sum of parts, each linear between its probes and clamped at the ends";
    case CostFormat::trtllm_exact:
      return "the cells alone; 0 tokens are the native path, the full block";
    case CostFormat::vllm_ascend:
      return "the next larger probe, else the largest";
    case CostFormat::mlx:
      return "linear; below clamped, above the last slope goes on";
    case CostFormat::rows:
      return "linear; below and above the outermost slope goes on";
  }
  return "";
}

bool is_sum(CostFormat format) {
  return format == CostFormat::sglang_2d || format == CostFormat::trtllm;
}

}  // namespace dspark
