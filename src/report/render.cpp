#include "report/render.h"

#include "report/formats.h"
#include "support/error.h"

namespace dspark {

std::string render(const ReplayResult& result, OutputFormat format, const RenderOptions& options) {
  switch (format) {
    case OutputFormat::table:
      return render_table(result, options);
    case OutputFormat::md:
      return render_markdown(result, options);
    case OutputFormat::csv:
      return render_csv(result);
    case OutputFormat::json:
      return render_json(result);
    case OutputFormat::jsonl:
      return render_jsonl(result);
  }
  throw internal_error("render", "unknown output format");
}

}  // namespace dspark
