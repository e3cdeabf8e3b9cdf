// The kernels of attention on the tensor cores, as text: the header of all flash_text*.c files. A
// program is constants (flash_plan.c), what all kernels on the tensor cores share (cores_text.h),
// tni_text_flash, and one of the others.
#ifndef TNI_CUDA_FLASH_TEXT_H
#define TNI_CUDA_FLASH_TEXT_H

#include <stddef.h>

extern const char *const tni_text_flash[];            // what all share: copies of tiles
extern const char *const tni_text_flash_unchanged[];  // the functions of no score program
extern const char        tni_text_score_place[];      // the place of a score, for programs
extern const char        tni_text_hides_nothing[];    // what programs print that hide tiles
extern const char *const tni_text_flash_scores[];     // which scores count, and stores of results
extern const char *const tni_text_flash_forward[];    // flash_forward
extern const char *const tni_text_flash_gradient[];   // what the next two share
extern const char *const tni_text_flash_queries[];    // flash_queries
extern const char *const tni_text_flash_keys[];       // flash_keys
extern const char *const tni_text_flash_decode[];     // flash_decode

#endif
