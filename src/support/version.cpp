#include "support/version.h"

namespace dspark {

const char* version() { return DSPARK_VERSION; }

}  // namespace dspark
