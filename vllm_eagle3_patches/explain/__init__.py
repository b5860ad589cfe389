"""A vLLM server log -> the root cause, the gate it belongs to, and what to do.

    bytes -> scan (only lines that can matter) -> lines (process, level, text)
          -> tracebacks (exceptions, one state for each process) -> story -> report

What is looked for is data: `signatures.json`. Memory does not grow with the log.
"""
