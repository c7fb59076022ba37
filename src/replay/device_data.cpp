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
    const std::size_t bytes = heads.confidence_weight.size() * sizeof(float);
    buffers_.push_back(backend.allocate(bytes));
    backend.upload(buffers_.back().data(), heads.confidence_weight.data(), bytes);
    confidence_weight = {static_cast<const float*>(buffers_.back().data()),
                         static_cast<std::int64_t>(heads.confidence_weight.size())};
  }
}

Matrix DeviceHeads::place(Backend& backend, const HostMatrix& matrix, std::int64_t rows) {
  Matrix view{matrix.bytes.data(), matrix.type, rows, matrix.cols, matrix.cols};
  if (!backend.shares_host_memory()) {
    const std::size_t bytes = static_cast<std::size_t>(rows) *
                              static_cast<std::size_t>(matrix.cols) * size_of(matrix.type);
    buffers_.push_back(backend.allocate(bytes));
    backend.upload(buffers_.back().data(), matrix.bytes.data(), bytes);
    view.data = buffers_.back().data();
  }
  return view;
}

RowStream::RowStream(Backend& backend, TraceFile& trace, RowData data, std::int64_t capacity,
                     std::int32_t vocab)
    : backend_(&backend), trace_(&trace), data_(data), info_(trace.row_data(data).value()) {
  keep_ = vocab;
  const std::int64_t rows = capacity * info_.rows_per_block;
  const std::size_t stored =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(info_.width) * size_of(info_.type);
  host_.resize(stored);
  if (!backend.shares_host_memory()) stored_ = backend.allocate(stored);
  rows_ = DeviceRows(backend, rows, keep_);
}

Rows RowStream::load(std::int64_t first, std::int64_t count) {
  trace_->read(data_, first, count, host_.data());
  const std::int64_t rows = count * info_.rows_per_block;
  Matrix stored{host_.data(), info_.type, rows, keep_, info_.width};
  if (!backend_->shares_host_memory()) {
    backend_->upload(stored_.data(), host_.data(),
                     static_cast<std::size_t>(rows) * static_cast<std::size_t>(info_.width) *
                         size_of(info_.type));
    stored.data = stored_.data();
  }
  const Rows out = rows_.rows(rows);
  backend_->widen({.in = stored, .out = out});
  return out;
}

LogitStream::LogitStream(Backend& backend, TraceFile& trace, RowData logits, RowData hidden,
                         const Matrix& head, std::int64_t capacity, std::int32_t vocab,
                         Products products, bool keep_hidden)
    : backend_(&backend), head_(head), products_(products) {
  if (trace.row_data(logits)) stored_.emplace(backend, trace, logits, capacity, vocab);
  if (stored_ && !keep_hidden) return;
  hidden_.emplace(backend, trace, hidden, capacity, trace.row_data(hidden).value().width);
  if (!stored_) projected_ = DeviceRows(backend, capacity * hidden_->rows_per_block(), vocab);
}

Rows LogitStream::load(std::int64_t first, std::int64_t count) {
  if (hidden_) (void)hidden_->load(first, count);
  if (stored_) return stored_->load(first, count);
  const Rows logits = projected_.rows(count * hidden_->rows_per_block());
  backend_->project(
      {.a = hidden_->matrix(count), .b = head_, .out = logits, .products = products_});
  return logits;
}

}  // namespace dspark
