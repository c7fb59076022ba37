#include "replay/device_data.h"

namespace dspark {

DeviceHeads::DeviceHeads(Backend& backend, const Heads& heads, std::int32_t vocab) {
  confidence_bias = heads.confidence_bias;
  if (heads.has_markov()) {
    markov_w1 = place(backend, heads.markov_w1, heads.markov_w1.rows);
    markov_w2 = place(backend, heads.markov_w2, vocab);
  }
  if (!heads.lm_head.empty()) lm_head = place(backend, heads.lm_head, vocab);
  draft_lm_head =
      heads.draft_lm_head.empty() ? lm_head : place(backend, heads.draft_lm_head, vocab);
  if (heads.has_confidence()) {
    const std::size_t size = heads.confidence_weight.size() * sizeof(float);
    buffers_.push_back(backend.allocate(size));
    backend.upload(buffers_.back().data(), heads.confidence_weight.data(), size);
    bytes += size;
    confidence_weight = {static_cast<const float*>(buffers_.back().data()),
                         static_cast<std::int64_t>(heads.confidence_weight.size())};
  }
}

Matrix DeviceHeads::place(Backend& backend, const HostMatrix& matrix, std::int64_t rows) {
  Matrix view{matrix.bytes.data(), matrix.type, rows, matrix.cols, matrix.cols};
  const std::size_t size =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(matrix.cols) * size_of(matrix.type);
  bytes += size;
  if (!backend.shares_host_memory()) {
    buffers_.push_back(backend.allocate(size));
    backend.upload(buffers_.back().data(), matrix.bytes.data(), size);
    view.data = buffers_.back().data();
  }
  return view;
}

LogitSource::LogitSource(Backend& backend, const TraceFile& trace, RowData logits, RowData hidden,
                         const Matrix& head, std::int32_t vocab, Products products)
    : backend_(&backend),
      head_(head),
      products_(products),
      data_(trace.row_data(logits) ? logits : hidden),
      stored_(data_ == logits),
      vocab_(vocab) {
  const RowDataInfo info = trace.row_data(data_).value();
  rows_needed_ = stored_ && info.type == DType::f32 ? 0 : 1;
  rows_per_block_ = info.rows_per_block;
}

void LogitSource::allocate(std::int64_t blocks) {
  if (rows_needed_ > 0) rows_ = DeviceRows(*backend_, blocks * rows_per_block_, vocab_);
}

Rows LogitSource::make(const Matrix& rows) {
  if (rows_needed_ == 0) {
    // Nothing writes to logits; Rows has no form that says so.
    auto* const data = static_cast<float*>(const_cast<void*>(rows.data));
    return {data, rows.rows, vocab_, rows.stride};
  }
  const Rows out = rows_.rows(rows.rows);
  if (stored_) {
    Matrix kept = rows;
    kept.cols = vocab_;
    backend_->widen({.in = kept, .out = out});
  } else {
    backend_->project({.a = rows, .b = head_, .out = out, .products = products_});
  }
  return out;
}

}  // namespace dspark
