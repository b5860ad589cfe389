"""Gives EAGLE-3 speculative decoding to the vLLM that is already installed."""

__version__ = "0.1.0"
