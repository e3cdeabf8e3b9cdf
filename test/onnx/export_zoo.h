// export_zoo.h: the networks of tenon/models.h as ONNX models, for check_export.py.
#ifndef TEST_EXPORT_ZOO_H
#define TEST_EXPORT_ZOO_H

// Writes them below a folder; 0, or 1 if one of them could not be written.
int export_zoo(const char *folder);

#endif
