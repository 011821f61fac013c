// From open to ended and back: every change of Operation::control but the taking of a slot.
//
// Whoever sets kEnding is the only one to write that end: until kEnded, which comes after the record, nobody
// takes the slot nor ends the operation again. What begins or finishes meanwhile leaves kTouched, and the one
// who writes looks again. Nobody waits for anybody.
#pragma once

#include <cstdint>

#include "operations.h"

namespace mycroft {

// A child (kOneFlow, kOneKernel) has begun: false if the operation is gone.
bool retain(Operation& operation, uint32_t generation, uint64_t child);

// It has finished: the operation ends if that was the last thing it waited for.
void release(Operation& operation, uint32_t generation, uint64_t child);

// It is not known to have finished, and nothing more will come of it.
void abandon(Operation& operation, uint32_t generation, uint64_t child);

// One of its flows has had a step.
void mark_stepped(Operation& operation, uint32_t generation);

void mark_enqueued(Operation& operation, uint32_t generation);

// Ends an operation that had this control, for a reason that is none of its own events; false if it has
// another by now.
bool end_unseen(Operation& operation, uint64_t control, EndReason reason);

// Ends what a successor has overtaken.
bool retire(Operation& operation);

// Ends what has nothing under way, because its slot is needed; one that is being launched only if so said.
bool recycle(Operation& operation, bool launching);

// Open, and nobody is writing its end.
constexpr bool endable(uint64_t control) {
    return control_state(control) == kOpen && (control & kEndingBit) == 0;
}

}  // namespace mycroft
