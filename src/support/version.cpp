#include "support/version.h"

namespace dspark {

const char* version() { return DSPARK_VERSION; }

const char* commit() { return DSPARK_COMMIT; }

}  // namespace dspark
