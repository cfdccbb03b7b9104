"""Programs that begin as forks of a process which has loaded TensorFlow already.

Loading takes 4 s of CPU, most of what a short program costs, and the tests start hundreds of them.
A fork is a process of its own, with its own id, signals, files and memory, and it runs the program
as `python -m` does. Its threads, TensorFlow's among them, begin in it alone. What differs:
/proc/PID/cmdline and /proc/PID/environ are the loaded process's; `started.py` knows the fork's.
"""
