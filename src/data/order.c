// The order of an epoch.
#include "data/order.h"

// With at least 12 bits, few items are mixed as well as many; the two halves differ by at most one
// bit.
tni_order tni_order_by(tni_draw keys, int64_t count)
{
    tni_order o    = { .count = (uint64_t)count };
    int       bits = 12;
    while (bits < 62 && o.count > (uint64_t)1 << bits) bits++;
    o.low  = bits / 2;
    o.high = bits - o.low;
    for (int i = 0; i < TNI_ORDER_ROUNDS; i++) o.key[i] = tni_draw_bits(&keys);
    return o;
}

// A Feistel network is a bijection whatever its hash is, since each half is changed by the other
// alone.
static uint64_t permute_place(const tni_order *o, uint64_t v)
{
    uint64_t low = v & (((uint64_t)1 << o->low) - 1), high = v >> o->low;
    for (int i = 0; i < TNI_ORDER_ROUNDS; i += 2) {
        high ^= tni_draw_mix(low ^ o->key[i]) >> (64 - o->high);
        low ^= tni_draw_mix(high ^ o->key[i + 1]) >> (64 - o->low);
    }
    return high << o->low | low;
}

// Walks the cycle until it is inside count again (cycle walking), on average less than twice unless
// there are fewer than 2048 items.
int64_t tni_order_item(const tni_order *o, int64_t place)
{
    uint64_t v = (uint64_t)place;
    do v = permute_place(o, v);
    while (v >= o->count);
    return (int64_t)v;
}
