"""cuBLASLt by ctypes: a partition is one product of matrices with its epilogue."""
