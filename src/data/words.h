// How GPT-2 cuts a text into words before it looks for tokens in them.
#ifndef TNI_DATA_WORDS_H
#define TNI_DATA_WORDS_H

// The end of the word that begins at `at` < end: what this pattern matches there.
//     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// A byte that is not UTF-8 counts as a character that is neither letter, number nor white space.
const char *tni_word_end(const char *at, const char *end);

#endif
