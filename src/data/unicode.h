// What tokenizers ask about characters: their general category, and the canonical forms of a text.
#ifndef TNI_DATA_UNICODE_H
#define TNI_DATA_UNICODE_H

#include "base/heap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// General categories of Unicode, by its names. A set of them is a mask of bits.
typedef enum {
    TNI_LU,
    TNI_LL,
    TNI_LT,
    TNI_LM,
    TNI_LO,
    TNI_MN,
    TNI_MC,
    TNI_ME,
    TNI_ND,
    TNI_NL,
    TNI_NO,
    TNI_PC,
    TNI_PD,
    TNI_PS,
    TNI_PE,
    TNI_PI,
    TNI_PF,
    TNI_PO,
    TNI_SM,
    TNI_SC,
    TNI_SK,
    TNI_SO,
    TNI_ZS,
    TNI_ZL,
    TNI_ZP,
    TNI_CC,
    TNI_CF,
    TNI_CS,
    TNI_CO,
    TNI_CN,
    TNI_CATEGORIES
} tni_category;

// Not a code point: what stands for a byte that is not UTF-8. Its category is none.
static const uint32_t tni_no_character = UINT32_MAX;

// The bit of a character's category; 0 for what is no character.
uint32_t tni_category_bit(uint32_t c);
// The mask of a category or of a group of them by name ("L", "Lu"); 0 if there is none.
uint32_t tni_category_mask(const char *name, size_t n);
bool     tni_is_space(uint32_t c);
// Letters, marks, numbers that are digits or letters, connectors: \w of Oniguruma; and of Rust's
// regular expressions, which differ in a few characters.
bool tni_is_word(uint32_t c);
bool tni_joins_words(uint32_t c);

// Reads the character at s < end; *next is where the one after it begins. A byte that is not UTF-8
// is tni_no_character by itself.
uint32_t tni_read_character(const char *s, const char *end, const char **next);

// Bytes while they grow, in memory of a heap; begins as zeros.
typedef struct {
    char  *data;
    size_t bytes, capacity;
} tni_byte_list;

// Appends n bytes; false when memory is out.
bool tni_byte_list_add(tni_heap *h, tni_byte_list *b, const char *s, size_t n);

// Writes the canonical form of a text over `to`: composed (NFC) or decomposed (NFD). Bytes that are
// not UTF-8 stay. False when memory is out.
bool tni_canonical(tni_heap *h, tni_byte_list *to, const char *s, size_t n, bool composed);

#endif
