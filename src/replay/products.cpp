#include "replay/products.h"

#include <fmt/format.h>

#include <optional>

namespace dspark {
namespace {

/// True if hidden states that stand in for logits meet tensor cores.
bool projects_on_tensor_cores(const Backend& backend, const TraceFile& trace, const Heads& heads) {
  const auto projects = [&](RowData logits, RowData hidden, const HostMatrix& head) {
    const std::optional<RowDataInfo> info = trace.row_data(hidden);
    return !trace.row_data(logits) && info && !head.empty() &&
           backend.has_tensor_products(info->type, head.type, info->width);
  };
  const HostMatrix& draft_head = heads.draft_lm_head.empty() ? heads.lm_head : heads.draft_lm_head;
  return projects(RowData::draft_logits, RowData::draft_hidden, draft_head) ||
         projects(RowData::target_logits, RowData::target_hidden, heads.lm_head);
}

}  // namespace

const char* products_name(Products products) {
  return products == Products::exact ? "exact" : "tensor";
}

Products products_of(const Backend& backend, const TraceFile& trace, const Heads& heads,
                     Products asked) {
  const bool biases =
      heads.has_markov() && heads.markov_w1.cols <= kMostTensorRank &&
      backend.has_tensor_products(heads.markov_w1.type, heads.markov_w2.type, heads.markov_w1.cols);
  return biases || projects_on_tensor_cores(backend, trace, heads) ? asked : Products::exact;
}

std::string products_notice(const Backend& backend, const TraceFile& trace, const Heads& heads,
                            Products asked) {
  const std::string& file = trace.header().file;
  if (asked == Products::exact) {
    if (!projects_on_tensor_cores(backend, trace, heads)) return {};
    return fmt::format(
        "{}: products are exact, with the same bits as on the CPU; --products tensor is faster "
        "here and differs in the last bits",
        file);
  }
  if (products_of(backend, trace, heads, asked) == Products::tensor) return {};
  return fmt::format(
      "{}: --products tensor needs a GPU with tensor cores, weights and hidden states that are all "
      "f16 or all bf16, and sizes that are multiples of 8 (ranks up to 512); its products are "
      "exact",
      file);
}

}  // namespace dspark
