"""`python -m redis_ckpt.demo`: an agent is killed in the middle of a superstep and goes on.

Needs the extra `demo`; no network, no key, no server of yours.
"""
