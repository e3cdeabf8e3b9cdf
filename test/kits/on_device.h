// on_device.h: tests that run on any device, by its name, against ref or against recordings. Where
// they come in parts, this is part `part` of `parts`.
#ifndef TEST_ON_DEVICE_H
#define TEST_ON_DEVICE_H

// device_folds.c
void scans_on(const char *device);
void extrema_on(const char *device);
void sorts_on(const char *device);
void long_lines_on(const char *device);

// device_cases.c
void products_on(const char *device);
void sums_on(const char *device);
void scatters_on(const char *device);
void losses_on(const char *device);

// Attention and its gradient, in 16 bits more of it; gradients against those of ref, and against
// differences; training steps that PyTorch did. Each is in the file of its subject.
void attention_on(const char *device, int part, int parts);
void attention_halves_on(const char *device, int part, int parts);
void attention_forms_on(const char *device, int part, int parts);
void recognize_on(const char *device, int part, int parts);
void gradients_on(const char *device, int part, int parts);
void differences_on(const char *device, int part, int parts);
void recordings_on(const char *device, int part, int parts);

#endif
