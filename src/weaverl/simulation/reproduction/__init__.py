"""Every published figure beside ours, and how the savings depend on what the source leaves open.

Each study makes the runs that it needs with the same `simulate` that the command line calls, and turns what came out
into rows. `published` alone has published values; nothing here is copied from them into ours.
"""
