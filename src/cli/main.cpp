// dspark-replay: replays recorded speculative-decoding traces.
#include <exception>
#include <new>

#include "cli/command_line.h"
#include "cli/messages.h"
#include "cli/output.h"
#include "cli/process.h"
#include "support/error.h"

namespace {

// The one place where errors become exit codes.
dspark::ExitCode report_current_exception() {
  using dspark::ExitCode;
  try {
    throw;
  } catch (const dspark::Error& error) {
    dspark::print_error(error.what());
    return error.code();
  } catch (const dspark::ReaderGone&) {
    return ExitCode::internal;
  } catch (const std::bad_alloc&) {
    dspark::print_error("out of memory; set --memory-budget or a smaller --chunk");
    return ExitCode::device;
  } catch (const std::exception& error) {
    dspark::print_error(std::string("internal error: ") + error.what() + "; please report it");
    return ExitCode::internal;
  }
}

}  // namespace

int main(int argc, char** argv) {
  dspark::ExitCode code = dspark::ExitCode::done;
  try {
    dspark::prepare_process();
    code = dspark::execute_command_line(argc, argv);
  } catch (...) {
    code = report_current_exception();
  }
  return static_cast<int>(code);
}
