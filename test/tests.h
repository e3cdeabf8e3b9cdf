// tests.h: every table of tests, one line each. TESTS(name) stands for tests_name in test_name.c.
// The runner includes it with TESTS() defined; the order is the order of running.
TESTS(project)
TESTS(install)
TESTS(ref)
TESTS(cpu)
TESTS(op_text)
TESTS(composed)
TESTS(math)
TESTS(gemm)
TESTS(print)
TESTS(examples)
TESTS(docs)
TESTS(programs)
