// What NVIDIA's libraries decline or fail at, for people: lines on stderr if TN_LOG has "library".
#ifndef TNI_CUDA_LIBRARY_LOG_H
#define TNI_CUDA_LIBRARY_LOG_H

// Writes a line, as printf would, if the environment asks for it.
void tni_library_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
