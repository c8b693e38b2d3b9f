"""oneDNN's Graph API by ctypes: no compiler, any libdnnl from 3.2 on."""
