"""`python -m tilewright explain`: what the compiler made of a kernel, and why, on one page.

`verb` reads the command line; `launch` finds out what the kernel is called with; `gather` compiles
and collects a `report`; `text` and `page` show it. The rest of the modules each find one of its
parts.
"""
