// The pens' ways: how people write the ten digits, as strokes in a unit square, y downwards.
#ifndef TNI_DATA_DIGIT_STROKES_H
#define TNI_DATA_DIGIT_STROKES_H

enum { TNI_STROKE_POINTS = 10, TNI_STYLE_STROKES = 3, TNI_DIGIT_STYLES = 4 };

// Points that the pen passes, joined by a smooth curve or by straight lines. A closed curve ends on
// its first point.
typedef enum { TNI_CURVE, TNI_LOOP, TNI_LINES } tni_stroke_kind;
typedef struct {
    tni_stroke_kind kind;
    int             points;
    float           at[TNI_STROKE_POINTS][2];
} tni_stroke;

// One way to write one digit; strokes 0: there is none.
typedef struct {
    int        strokes;
    tni_stroke stroke[TNI_STYLE_STROKES];
} tni_digit_style;

// clang-format off
#define CURVE(n, ...) { TNI_CURVE, n, { __VA_ARGS__ } }
#define LOOP(n, ...)  { TNI_LOOP,  n, { __VA_ARGS__ } }
#define LINES(n, ...) { TNI_LINES, n, { __VA_ARGS__ } }

static const tni_digit_style tni_digit_styles[10][TNI_DIGIT_STYLES] = {
    {   // 0: an oval; one that begins past its end at the top; a slanted one
        { 1, { LOOP(8, {.50f,.05f}, {.28f,.16f}, {.20f,.50f}, {.28f,.84f}, {.50f,.95f}, {.72f,.84f}, {.80f,.50f}, {.72f,.16f}) } },
        { 1, { CURVE(9, {.62f,.10f}, {.38f,.10f}, {.21f,.38f}, {.26f,.78f}, {.50f,.95f}, {.74f,.78f}, {.78f,.40f}, {.62f,.12f}, {.46f,.06f}) } },
        { 1, { LOOP(8, {.62f,.05f}, {.38f,.18f}, {.24f,.52f}, {.24f,.84f}, {.40f,.95f}, {.64f,.82f}, {.77f,.48f}, {.76f,.16f}) } },
    },
    {   // 1: a line; with a flag; with flag and foot
        { 1, { LINES(2, {.52f,.05f}, {.48f,.95f}) } },
        { 1, { LINES(3, {.32f,.24f}, {.54f,.05f}, {.52f,.95f}) } },
        { 2, { LINES(3, {.32f,.24f}, {.54f,.05f}, {.52f,.94f}), LINES(2, {.30f,.94f}, {.74f,.94f}) } },
    },
    {   // 2: a flat foot; a loop at the foot; a curved foot
        { 2, { CURVE(6, {.22f,.28f}, {.36f,.08f}, {.64f,.07f}, {.77f,.28f}, {.58f,.58f}, {.20f,.93f}), LINES(2, {.20f,.93f}, {.82f,.92f}) } },
        { 1, { CURVE(9, {.22f,.24f}, {.48f,.06f}, {.74f,.24f}, {.62f,.54f}, {.36f,.86f}, {.20f,.88f}, {.26f,.72f}, {.54f,.86f}, {.84f,.86f}) } },
        { 1, { CURVE(8, {.24f,.22f}, {.46f,.06f}, {.72f,.20f}, {.64f,.50f}, {.26f,.88f}, {.42f,.84f}, {.62f,.94f}, {.84f,.84f}) } },
    },
    {   // 3: round; flat on top; with a small loop in the middle
        { 1, { CURVE(8, {.22f,.18f}, {.46f,.05f}, {.73f,.22f}, {.46f,.46f}, {.68f,.52f}, {.78f,.72f}, {.50f,.95f}, {.20f,.82f}) } },
        { 2, { LINES(3, {.22f,.08f}, {.76f,.08f}, {.44f,.42f}), CURVE(5, {.44f,.42f}, {.72f,.50f}, {.76f,.76f}, {.50f,.95f}, {.20f,.84f}) } },
        { 1, { CURVE(9, {.24f,.14f}, {.52f,.06f}, {.70f,.26f}, {.44f,.47f}, {.36f,.42f}, {.60f,.48f}, {.78f,.70f}, {.52f,.95f}, {.22f,.86f}) } },
    },
    {   // 4: open; closed; open and curved
        { 2, { LINES(3, {.30f,.08f}, {.22f,.56f}, {.82f,.54f}), LINES(2, {.66f,.20f}, {.62f,.95f}) } },
        { 1, { LINES(4, {.60f,.95f}, {.62f,.06f}, {.18f,.64f}, {.86f,.64f}) } },
        { 2, { CURVE(5, {.26f,.10f}, {.22f,.40f}, {.34f,.54f}, {.58f,.52f}, {.74f,.40f}), CURVE(3, {.76f,.08f}, {.72f,.50f}, {.66f,.95f}) } },
    },
    {   // 5: with a corner; its bar apart; one smooth line
        { 2, { LINES(3, {.76f,.07f}, {.31f,.07f}, {.27f,.46f}), CURVE(6, {.27f,.46f}, {.50f,.38f}, {.74f,.50f}, {.76f,.78f}, {.50f,.95f}, {.20f,.85f}) } },
        { 2, { CURVE(7, {.34f,.12f}, {.28f,.44f}, {.52f,.40f}, {.74f,.56f}, {.72f,.82f}, {.46f,.95f}, {.22f,.86f}), LINES(2, {.34f,.11f}, {.80f,.08f}) } },
        { 1, { CURVE(9, {.78f,.08f}, {.46f,.10f}, {.33f,.24f}, {.34f,.42f}, {.60f,.46f}, {.74f,.64f}, {.66f,.86f}, {.44f,.95f}, {.22f,.86f}) } },
    },
    {   // 6: a round back; a straight back; a large loop
        { 1, { CURVE(9, {.70f,.10f}, {.42f,.22f}, {.25f,.52f}, {.28f,.84f}, {.52f,.95f}, {.74f,.80f}, {.70f,.58f}, {.48f,.52f}, {.28f,.68f}) } },
        { 1, { CURVE(8, {.56f,.05f}, {.34f,.40f}, {.24f,.74f}, {.40f,.94f}, {.66f,.90f}, {.74f,.70f}, {.54f,.58f}, {.27f,.72f}) } },
        { 1, { CURVE(9, {.62f,.06f}, {.36f,.20f}, {.22f,.50f}, {.24f,.80f}, {.50f,.95f}, {.78f,.78f}, {.76f,.52f}, {.52f,.42f}, {.24f,.58f}) } },
    },
    {   // 7: plain; with a bar; with a serif; a curved stem
        { 1, { LINES(3, {.20f,.09f}, {.80f,.08f}, {.42f,.95f}) } },
        { 2, { LINES(3, {.20f,.09f}, {.80f,.08f}, {.42f,.95f}), LINES(2, {.36f,.50f}, {.76f,.48f}) } },
        { 1, { LINES(4, {.20f,.24f}, {.22f,.09f}, {.80f,.08f}, {.46f,.95f}) } },
        { 2, { CURVE(3, {.20f,.12f}, {.48f,.08f}, {.80f,.10f}), CURVE(4, {.80f,.10f}, {.62f,.38f}, {.50f,.64f}, {.46f,.95f}) } },
    },
    {   // 8: one crossing line; two circles; begun in the middle
        { 1, { LOOP(8, {.70f,.16f}, {.44f,.05f}, {.28f,.24f}, {.66f,.60f}, {.72f,.84f}, {.48f,.95f}, {.26f,.80f}, {.40f,.54f}) } },
        { 2, { LOOP(6, {.50f,.05f}, {.30f,.15f}, {.32f,.36f}, {.50f,.46f}, {.68f,.36f}, {.70f,.15f}), LOOP(6, {.50f,.46f}, {.26f,.58f}, {.27f,.84f}, {.50f,.95f}, {.73f,.84f}, {.74f,.58f}) } },
        { 1, { CURVE(10, {.72f,.20f}, {.50f,.05f}, {.28f,.20f}, {.44f,.44f}, {.70f,.64f}, {.66f,.90f}, {.38f,.94f}, {.26f,.74f}, {.46f,.48f}, {.74f,.18f}) } },
    },
    {   // 9: a straight stem; a curved tail; loop and stem apart
        { 1, { CURVE(9, {.72f,.20f}, {.50f,.06f}, {.28f,.20f}, {.30f,.44f}, {.52f,.52f}, {.70f,.36f}, {.73f,.16f}, {.70f,.56f}, {.66f,.95f}) } },
        { 1, { CURVE(10, {.72f,.24f}, {.52f,.06f}, {.29f,.18f}, {.28f,.42f}, {.50f,.52f}, {.71f,.36f}, {.74f,.30f}, {.70f,.66f}, {.52f,.93f}, {.26f,.88f}) } },
        { 2, { LOOP(6, {.54f,.06f}, {.32f,.14f}, {.28f,.36f}, {.46f,.50f}, {.66f,.38f}, {.70f,.16f}), CURVE(4, {.72f,.10f}, {.72f,.40f}, {.66f,.70f}, {.54f,.95f}) } },
    },
};
// clang-format on

#undef CURVE
#undef LOOP
#undef LINES

#endif
