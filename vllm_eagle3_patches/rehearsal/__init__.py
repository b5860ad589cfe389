"""Rehearsal: the whole start-up of the installed, real engine, on small twins of the models.

rules, layers, drafter   config.json of the real pair -> config.json of the twins
prepare                  the twins on disk, and the request for the children
overlay                  with --apply: a throw-away copy of vLLM with the patched bytes
run, supervise, stages   child processes, stages with time limits, nothing left behind
inside/                  what runs in the target's interpreter; the only part that imports
                         torch, Transformers and vLLM
diagnosis, memory, report
"""
