"""`python -m tilewright explain`: a report on how a kernel was compiled, as HTML, text or JSON.

`verb` parses the command line; `launch` determines the arguments of the kernel; `gather` compiles
it and collects a `report`; `text` and `page` render the report. Each other module computes one part
of it.
"""
