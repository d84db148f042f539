"""What runs inside a job's processes: phases, permits, lingering state, weights, checkpoints.

``weave.init()`` joins the group named by the environment. Alone, everything is a plain call.
"""
