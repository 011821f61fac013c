// What the recorder knows of the handles that the plugin gave out: their numbers, types, stops.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace mycroft {

struct Known {
    uint64_t handle;  // 0: free
    uint64_t number;
    uint64_t type;
    uint32_t stops;
    uint32_t repeats;
    int last_state;
};

// Two generations, so that memory stays bounded: when the young one is full, the old one is forgotten, but
// for what has not been stopped, of which more may come however late.
class Book {
  public:
    explicit constexpr Book(uint32_t young = 1 << 18) : limit_(young) {}

    Known* find(uint64_t handle) {
        Known* const halves[] = {young_, old_};
        for (Known* half : halves) {
            if (half == nullptr || handle == 0) continue;
            Known* const known = place(half, handle);
            if (known != nullptr && known->handle == handle) return known;
        }
        return nullptr;
    }

    void put(const Known& known) {
        if (young_ == nullptr || used_ >= limit_) turn();
        insert(known);
    }

  private:
    void turn() {
        Known* const gone = old_;
        old_ = young_;
        young_ = static_cast<Known*>(std::calloc(2 * limit_, sizeof(Known)));
        used_ = 0;
        for (uint32_t i = 0; gone != nullptr && i < 2 * limit_ && used_ < limit_ / 2; ++i) {
            const Known& known = gone[i];
            if (known.handle == 0 || known.stops != 0) continue;
            const Known* const newer = place(old_, known.handle);
            if (newer == nullptr || newer->handle != known.handle) insert(known);
        }
        std::free(gone);
    }

    void insert(const Known& known) {
        Known* const where = young_ != nullptr ? place(young_, known.handle) : nullptr;
        if (where == nullptr) return;
        used_ += where->handle == 0 ? 1 : 0;
        *where = known;
    }

    Known* place(Known* half, uint64_t handle) const {
        uint64_t at = (handle ^ handle >> 31) * 0x9e3779b97f4a7c15ULL >> 20;
        for (uint32_t probe = 0; probe < 2 * limit_; ++probe, ++at) {
            Known& known = half[at % (2 * limit_)];
            if (known.handle == 0 || known.handle == handle) return &known;
        }
        return nullptr;
    }

    uint32_t limit_;
    uint32_t used_ = 0;
    Known* young_ = nullptr;
    Known* old_ = nullptr;
};

}  // namespace mycroft
