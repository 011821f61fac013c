#include "hooks.h"

namespace mycroft {

Cell<uint32_t> g_hooks;

}  // namespace mycroft
