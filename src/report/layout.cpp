#include "report/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/text.h"

namespace dspark {
namespace {

// Code points, which is the width of the text in a terminal for what names and numbers are made of.
std::size_t text_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

void append_padded(std::string& line, const std::string& text, std::size_t width, bool to_right) {
  const std::string space(width - std::min(width, text_width(text)), ' ');
  line += to_right ? space + text : text + space;
}

// Whether the character at `i` could change the layout, or become a link, markup or HTML.
bool is_markup(std::string_view text, std::size_t i) {
  const auto is_word = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0);
  };
  switch (text[i]) {
    case '_':
      return i == 0 || !is_word(i - 1) || !is_word(i + 1);  // else a part of a word
    case ':':
      return text.substr(i + 1).starts_with("//");
    case '#':
      return is_word(i + 1);
    case '.':
      return text.substr(0, i).ends_with("www");
    default:
      return std::string_view("\\`*~&@[]|<>").find(text[i]) != std::string_view::npos;
  }
}

}  // namespace

void append_aligned(std::string& out, const Grid& grid) {
  std::vector<std::size_t> widths;
  for (const GridColumn& column : grid.columns) {
    std::size_t width = text_width(column.header);
    for (const std::string& cell : column.cells) width = std::max(width, text_width(cell));
    widths.push_back(width);
  }
  const auto append_line = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t c = 0; c < grid.columns.size(); ++c) {
      if (c > 0) line += "  ";
      append_padded(line, cell_of(grid.columns[c]), widths[c], grid.columns[c].is_number);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  out += '\n';
  append_line([](const GridColumn& column) { return column.header; });
  for (std::size_t row = 0; row < grid.rows(); ++row) {
    append_line([row](const GridColumn& column) { return column.cells[row]; });
  }
}

void append_markdown(std::string& out, const Grid& grid) {
  out += "\n|";
  for (const GridColumn& column : grid.columns) out += ' ' + markdown_text(column.header) + " |";
  out += "\n|";
  for (const GridColumn& column : grid.columns) out += column.is_number ? " ---: |" : " --- |";
  out += '\n';
  for (std::size_t row = 0; row < grid.rows(); ++row) {
    out += '|';
    for (const GridColumn& column : grid.columns) {
      const std::string cell = markdown_text(column.cells[row]);
      out += cell.empty() ? " |" : ' ' + cell + " |";
    }
    out += '\n';
  }
}

std::string markdown_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_markup(text, i)) out += '\\';
    out += text[i];
  }
  return out;
}

std::string csv_text(std::string_view text) {
  std::string escaped = escape_text(text);
  if (escaped.find_first_of(",\"") == std::string::npos) return escaped;
  std::string out = "\"";
  for (const char c : escaped) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string csv_line(const std::vector<std::string>& cells) {
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace dspark
